"""Runnable blocks of a Markdown document.

A fenced block right below the line `<!-- run -->` is run by the tests; `<!-- run: exit 1 -->` says how its last command
ends. `$ ` begins a command, `> ` continues it, everything else is the output shown. As in a doctest, `...` stands
for anything and white space doesn't count.
"""

from __future__ import annotations

import doctest
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

_BLOCK = re.compile(r"<!-- run(?:: exit (?P<exit>\d+))? -->\n```[a-z]*\n(?P<text>.*?)```", re.S)
_FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@dataclass
class Command:
    """A shell command, the line of the document it stands in, and what is to come of it."""

    line: int
    text: str
    shown: str = ""
    exit: int = 0

    def fits(self, output: str) -> bool:
        """Whether the output is what the document shows; a document may show none of it."""
        return not self.shown.strip() or doctest.OutputChecker().check_output(self.shown, output, _FLAGS)


@dataclass
class Document:
    """A Markdown file and its runnable commands, in order."""

    path: Path
    commands: list[Command] = field(default_factory=list)


def read(path: Path) -> Document:
    """The document; ValueError for a mark that no block follows, or a block that begins with no command."""
    text = path.read_text(encoding="utf-8")
    document = Document(path)
    found = list(_BLOCK.finditer(text))
    if len(found) != len(re.findall(r"^<!-- run", text, re.M)):
        raise ValueError(f"{path}: a mark `<!-- run -->` without a fenced block below it")
    for block in found:
        first = text.count("\n", 0, block.start("text")) + 1
        commands = list(_commands(path, first, block["text"]))
        commands[-1].exit = int(block["exit"] or 0)
        document.commands += commands
    return document


def _commands(path: Path, first: int, text: str) -> Iterator[Command]:
    command: Command | None = None
    for number, line in enumerate(text.splitlines(), first):
        if line.startswith("$ "):
            if command is not None:
                yield command
            command = Command(number, line[2:])
        elif command is None:
            raise ValueError(f"{path}:{number}: a block to be run begins with `$ `")
        elif line.startswith("> ") and not command.shown:
            command.text += "\n" + line[2:]
        else:
            command.shown += line + "\n"
    if command is None:
        raise ValueError(f"{path}:{first}: an empty block to be run")
    yield command
