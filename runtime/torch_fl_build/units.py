"""Translation units: sources that are compiled together, because torch's headers take longer to read than ours.

The file units.txt beside the sources has a line for each unit: patterns of its files, relative to the folder. A source
that no line names is a unit of its own. Sources of one unit share one anonymous namespace.
"""

from __future__ import annotations

from fnmatch import fnmatchcase

LIST = "units.txt"


def patterns(text: str) -> list[list[str]]:
    """The lines of a units.txt; what follows a # is a comment."""
    lines = (line.partition("#")[0].split() for line in text.splitlines())
    return [line for line in lines if line]


def units(files: dict[str, bytes]) -> list[list[str]]:
    """Sources by unit, paths as in `files` (Sources.read)."""
    rest = [name for name in files if name.endswith(".cpp")]
    found = []
    for line in patterns(files.get(f"src/{LIST}", b"").decode()):
        unit = [name for name in rest if any(fnmatchcase(name, f"src/{pattern}") for pattern in line)]
        rest = [name for name in rest if name not in unit]
        found.append(unit)
    return [unit for unit in [*found, *([name] for name in rest)] if unit]


def with_units(files: dict[str, bytes]) -> tuple[dict[str, bytes], list[str]]:
    """The files, with one more for each unit of several sources; and the names of those to compile."""
    made = dict(files)
    compiled = []
    for number, unit in enumerate(units(files), 1):
        if len(unit) == 1:
            compiled += unit
            continue
        name = f"src/unit_{number}.cpp"
        made[name] = "".join(f'#include "{source[4:]}"\n' for source in unit).encode()
        compiled.append(name)
    return made, compiled
