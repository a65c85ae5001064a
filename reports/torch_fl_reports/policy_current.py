"""Policies to begin a registry with."""

from __future__ import annotations

from typing import get_args

from torch_fl_spec import INTERFACE, __version__
from torch_fl_spec.abi import HEADER_ID
from torch_fl_spec.registry import load_registry
from torch_fl_spec.rows import certifiable_profiles
from torch_fl_spec.suite_digest import suite_digest

from torch_fl_reports.model import Profile
from torch_fl_reports.policy import POLICY_SCHEMA, AcceptedSuite, Policy


def current_policy() -> Policy:
    """Accept exactly what is installed here: this suite, these operators, this header."""
    return Policy(
        schema=POLICY_SCHEMA,
        suites=[AcceptedSuite(version=__version__, source_digest=suite_digest())],
        registry_digests=[load_registry().digest],
        header_ids=[HEADER_ID],
        interfaces=[INTERFACE],
        profiles=[name for name in get_args(Profile) if name in certifiable_profiles()],
        efforts=["quick", "full"],
    )


def empty_policy() -> Policy:
    """Accept nothing until somebody writes down what."""
    return Policy(
        schema=POLICY_SCHEMA,
        suites=[],
        registry_digests=[],
        header_ids=[],
        interfaces=[],
        profiles=[],
        efforts=[],
    )
