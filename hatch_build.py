"""Compiles the operator registry (YAML) to JSON when a wheel or an editable install is made."""

import sys
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CompileRegistry(BuildHookInterface[Any]):
    """Runs torch_fl_spec.registry_compile on the YAML sources of the tree being built."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write operators.json beside the YAML folder; the driver reads JSON only."""
        sys.path.insert(0, str(Path(self.root) / "spec"))
        from torch_fl_spec.registry_compile import compile_registry

        compile_registry()
