"""The rule list: reader of rules.yaml, and SPEC.md's rule tables (`python -m torch_fl_spec.rules`)."""

from __future__ import annotations

import argparse
import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

SOURCE = Path(__file__).with_name("rules.yaml")
KINDS = ("vendor", "host", "project")
CHAPTERS = (
    "load",
    "version",
    "error",
    "thread",
    "process",
    "memory",
    "stream",
    "copy",
    "kernel",
    "random",
    "extension.pinned",
    "extension.fault",
)
NEEDS = ("fl.pinned", "fl.fault", "independent_streams", "kernels.random")
_ID = re.compile(r"FL-[A-Z]+-[0-9]{3}")
_FIELDS = {"id", "kind", "chapter", "text", "why", "check", "test", "needs", "required_by"}


@dataclass(frozen=True)
class Rule:
    """One numbered rule of SPEC.md."""

    id: str
    kind: str  # vendor | host | project
    chapter: str
    text: str
    why: str
    check: str  # what the check does, in words
    test: str | None = None  # host rules: the project's test, path::function
    needs: str | None = None  # the row may be not-claimed where the plugin lacks this
    required_by: tuple[str, ...] = ()  # profiles that demand what `needs` names

    @property
    def group(self) -> str:
        """The middle of the id: LAYOUT, MEM, ..."""
        return self.id.split("-")[1]


@functools.lru_cache(maxsize=1)
def load_rules() -> tuple[Rule, ...]:
    """All rules in their order; ValueError where rules.yaml is not well formed."""
    return parse_rules(yaml.safe_load(SOURCE.read_text(encoding="utf-8")))


def parse_rules(data: Any) -> tuple[Rule, ...]:
    """Rules of loaded YAML; ValueError names the rule and what is wrong with it."""
    rules = tuple(_rule(entry) for entry in data["rules"])
    ids = [rule.id for rule in rules]
    doubled = sorted({name for name in ids if ids.count(name) > 1})
    if doubled:
        raise ValueError(f"rules given twice: {', '.join(doubled)}")
    return rules


def vendor_rules() -> tuple[Rule, ...]:
    """The rules that have a check, and a row in every report."""
    return tuple(rule for rule in load_rules() if rule.kind == "vendor")


def _rule(entry: dict[str, Any]) -> Rule:
    name = str(entry.get("id"))
    unknown = set(entry) - _FIELDS
    problems = [
        (not _ID.fullmatch(name), "the id is not FL-<GROUP>-nnn"),
        (bool(unknown), f"unknown fields {sorted(unknown)}"),
        (entry.get("kind") not in KINDS, f"unknown kind {entry.get('kind')!r}"),
        (entry.get("chapter") not in CHAPTERS, f"unknown chapter {entry.get('chapter')!r}"),
        (any(not entry.get(field) for field in ("text", "why", "check")), "text, why and check are due"),
        ((entry.get("kind") == "host") != ("test" in entry), "host rules, and only these, name a test"),
        (entry.get("needs", NEEDS[0]) not in NEEDS, f"unknown need {entry.get('needs')!r}"),
        ("required_by" in entry and "needs" not in entry, "required_by without needs"),
    ]
    for wrong, message in problems:
        if wrong:
            raise ValueError(f"rules.yaml: {name}: {message}")
    return Rule(**{**entry, "required_by": tuple(entry.get("required_by", ()))})


def table(rules: Iterable[Rule], twins: Mapping[str, Sequence[str]]) -> str:
    """The rules as a Markdown list; `twins`: rule id -> ids of the defective plugins that break it."""
    lines = []
    for rule in rules:
        kind = "" if rule.kind == "vendor" else f" ({rule.kind})"
        lines.append(f"- **{rule.id}**{kind} {rule.text}  ")
        lines.append(f"  *Why:* {rule.why}  ")
        check = f"`{rule.test}`: {rule.check}" if rule.test else rule.check
        lines.append(f"  *Check:* {check}." + (f" *Needs:* `{rule.needs}`." if rule.needs else ""))
        if twins.get(rule.id):
            lines[-1] += f" *Twins:* {', '.join(twins[rule.id])}."
    return "\n".join(lines) + "\n"


def main() -> None:
    """Render SPEC.md's generated parts, in place or as a check."""
    from torch_fl_spec.spec_document import rendered

    parser = argparse.ArgumentParser(prog="python -m torch_fl_spec.rules", description=main.__doc__)
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--write", type=Path, metavar="SPEC.md", help="rewrite the generated parts")
    action.add_argument("--check", type=Path, metavar="SPEC.md", help="exit 1 where they are not current")
    arguments = parser.parse_args()
    path: Path = arguments.write or arguments.check
    old = path.read_text(encoding="utf-8")
    new = rendered(old)
    if arguments.write:
        path.write_text(new, encoding="utf-8")
    elif new != old:
        raise SystemExit(f"{path} is not current: python -m torch_fl_spec.rules --write {path}")


if __name__ == "__main__":
    main()
