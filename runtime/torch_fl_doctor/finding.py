"""What a check says, and how it is shown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from rich.console import Console
from rich.text import Text
from torch_fl_spec.printable import printable

State = Literal["ok", "warning", "problem"]

_STYLE: dict[State, str] = {"ok": "green", "warning": "yellow", "problem": "bold red"}
_LONGEST = 600  # characters of a line; what a compiler or a driver says may have no end


@dataclass(frozen=True)
class Finding:
    """One line. advice: what to do about it, "" where nothing is to be done."""

    state: State
    text: str
    advice: str = ""


def ok(text: str, advice: str = "") -> Finding:
    """Nothing wrong."""
    return Finding("ok", text, advice)


def warning(text: str, advice: str = "") -> Finding:
    """It works, and perhaps not as the user thinks."""
    return Finding("warning", text, advice)


def problem(text: str, advice: str) -> Finding:
    """It does not work."""
    return Finding("problem", text, advice)


def guarded(check: Callable[[], Iterable[Finding]]) -> Iterator[Finding]:
    """The findings of a check; one that fails itself has found something, too, and does not keep others from theirs."""
    try:
        yield from check()
    except OSError as error:
        yield problem(f"this check could not be finished: {error}", "see to the file that it names, and run it again")
    except Exception as error:
        text = f"this check could not be finished: {type(error).__name__}: {error}"
        yield problem(text, "please report it: that is a defect of `torch-fl doctor`")


def show(console: Console, finding: Finding) -> None:
    """Print one; of what a vendor said, only printable characters reach the terminal."""
    line = Text("  ")
    line.append(f"{finding.state:<8} ", _STYLE[finding.state])
    line.append(_one_line(finding.text))
    console.print(line, soft_wrap=True)
    if finding.advice:
        console.print(Text(f"           -> {_one_line(finding.advice)}"), soft_wrap=True)


def _one_line(text: str) -> str:
    line = printable(" | ".join(part.strip() for part in text.splitlines() if part.strip())).replace("\t", " ")
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]} ..."
