"""Reproducers: a recorded list of commands, run again with nothing but the loader.

A reproducer is a folder of three files: repro.json (library, options, commands, a note), data.bin (the bytes that
the commands bring along) and repro.py, five lines for `python repro.py` or `gdb --args python repro.py`.
"""

from __future__ import annotations

import json
import math
import operator
import shlex
import struct
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from .abi import status_name
from .printable import printable

FORMAT = 1

# Keys under which a command names a place in shared memory, [offset, length]; "results" and "images" hold
# one per block.
_PLACE_KEYS = ("image", "mem", "memory")
_ALIGNMENT = 64

_SCRIPT = '''"""{note}"""

from torch_fl_spec.replay import replay

replay(__file__)
'''


def write_reproducer(
    folder: str | Path,
    library: str | Path,
    options: str,
    commands: Sequence[Mapping[str, Any]],
    blobs: Mapping[str, bytes],
    note: str,
    *,
    index: Sequence[int] | None = None,
    **session: Any,
) -> Path:
    """Write a reproducer folder and return the path of its repro.py.

    commands: as `Session.execute` takes them, except that input bytes may be named {"blob": name, "length": n}
    (any place where a command has [offset, length]); `blobs` holds them. session: further arguments of
    Session (grease, grease_seed, host_minor, mask), which decide what GREASE draws. note: what to look for. index: the
    element that was wrong, shown of each output that has it.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    data = bytearray()
    places: dict[str, list[int]] = {}
    for name, content in blobs.items():
        data += bytes(-len(data) % _ALIGNMENT)
        places[name] = [len(data), len(content)]
        data += content
    data += bytes(-len(data) % _ALIGNMENT)
    recorded = [_placed(command, places, len(data)) for command in commands]
    document = {
        "format": FORMAT,
        "note": note,
        **({} if index is None else {"index": list(index)}),
        "library": str(Path(library).resolve()),
        "options": options,
        "session": dict(session),
        "memory_bytes": max(len(data), _end_of_places(recorded)),
        "commands": recorded,
    }
    (folder / "data.bin").write_bytes(data)
    (folder / "repro.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    script = folder / "repro.py"
    quoted = printable(note).replace("\\", "\\\\").replace('"', "'")
    script.write_text(_SCRIPT.format(note=quoted), encoding="utf-8")
    return script


def replay_command(folder: Path) -> str:
    """What to type to run the reproducer in `folder`."""
    return shlex.join(["python", str(folder / "repro.py")])


def _placed(value: Any, places: Mapping[str, list[int]], base: int) -> Any:
    """A copy in which {"blob": name, ...} is its place in data.bin; other places move behind the data."""
    if isinstance(value, Mapping):
        if "blob" in value:
            return list(places[value["blob"]])
        placed = {}
        for key, item in value.items():
            if key in ("results", "images"):
                placed[key] = {block: _moved(place, places, base) for block, place in item.items()}
            elif key in _PLACE_KEYS:
                placed[key] = _moved(item, places, base)
            else:
                placed[key] = _placed(item, places, base)
        return placed
    if isinstance(value, (list, tuple)):
        return [_placed(item, places, base) for item in value]
    return value


def _moved(place: Any, places: Mapping[str, list[int]], base: int) -> Any:
    if isinstance(place, Mapping):
        return list(places[place["blob"]])
    return [place[0] + base, place[1]]


def _end_of_places(value: Any) -> int:
    """The first byte behind every place that the commands name."""
    if isinstance(value, Mapping):
        ends = [0]
        for key, item in value.items():
            if key in ("results", "images"):
                ends += [place[0] + place[1] for place in item.values()]
            elif key in _PLACE_KEYS:
                ends.append(item[0] + item[1])
            else:
                ends.append(_end_of_places(item))
        return max(ends)
    if isinstance(value, list):
        return max((_end_of_places(item) for item in value), default=0)
    return 0


def replay(path: str | Path, library: str | Path | None = None) -> list[dict[str, Any]]:
    """Run a reproducer (its folder or repro.py) and print each step; returns the results.

    library: another plugin than the recorded one. Results' bytes are printed as numbers of the tensor's dtype
    where a kernel case names it. The library is loaded as it lies there, and nothing is judged: the note tells of the
    row that failed, the elements are today's.
    """
    folder = Path(path).resolve()
    folder = folder.parent if folder.is_file() else folder
    document = json.loads((folder / "repro.json").read_text(encoding="utf-8"))
    if document["format"] != FORMAT:
        sys.exit(f"{folder}: format {document['format']}; this package reads format {FORMAT}")
    from .session import Session

    memory = bytearray(document["memory_bytes"])
    data = (folder / "data.bin").read_bytes()
    memory[: len(data)] = data
    print("recorded when the row failed:\n" + printable(document["note"]), flush=True)
    session = Session(library or document["library"], document["options"], **document["session"])
    session.attach_memory(memory)
    results = []
    for number, command in enumerate(document["commands"]):
        print(f"[{number}] {_summary(command)}", end="", flush=True)
        result = session.execute(command)
        print(f" -> {_outcome(result)}", flush=True)
        print_outputs(command, memory, document.get("index"))
        results.append(result)
    session.close()
    return results


def _summary(command: Mapping[str, Any]) -> str:
    names = [command[key] for key in ("do", "fn", "op", "variant", "name", "thread") if key in command]
    return " ".join(map(str, names))


def _outcome(result: Mapping[str, Any]) -> str:
    parts = []
    for step in ("plan", "upload", "run", "sync", "download"):
        if isinstance(result.get(step), Mapping):
            parts.append(f"{step} {_outcome(result[step])}")
    if "status" in result:
        parts.append(status_name(result["status"]))
        message = (result.get("err") or {}).get("message")
        parts += [f"({message})"] if message else []
    if result.get("outs"):
        parts.append(str(result["outs"]))
    if not parts:
        parts.append(json.dumps(result)[:200])
    return " ".join(parts)


_READERS = {
    **{"bool": "B", "u8": "B", "i8": "b", "i16": "h", "i32": "i", "i64": "q"},
    **{"f16": "e", "f32": "f", "f64": "d", "bf16": "H", "u16": "H", "u32": "I", "u64": "Q"},
}


def print_outputs(command: Mapping[str, Any], memory: bytearray, failed: Sequence[int] | None, limit: int = 16) -> None:
    """The first elements of each output tensor of a kernel case, and the one that failed."""
    from .abi import DTYPE_NAMES

    for name in command.get("outs", ()) if command.get("do") == "kernel_case" else ():
        tensor = command["tensors"][name]
        place = command.get("results", {}).get(tensor.get("block"))
        dtype = tensor["dtype"]
        dtype = DTYPE_NAMES.get(dtype) if isinstance(dtype, int) else dtype
        if place is None or dtype not in _READERS:
            continue
        start, sizes = place[0] + tensor["byte_offset"], tensor["sizes"]
        values = [str(_element(memory, start, dtype, tensor["strides"], index)) for index in _indices(sizes, limit)]
        values += ["..."] if math.prod(sizes) > limit else []
        print(f"    {name} {dtype} {sizes}: [{', '.join(values)}]")
        if failed is not None and len(failed) == len(sizes) and all(map(operator.lt, failed, sizes)):
            print(f"    now at {tuple(failed)}: {_element(memory, start, dtype, tensor['strides'], failed)}")


def _element(memory: bytearray, start: int, dtype: str, strides: Sequence[int], index: Sequence[int]) -> int | float:
    reader = struct.Struct("<" + _READERS[dtype])
    at = start + sum(map(operator.mul, index, strides)) * reader.size
    value: int | float = reader.unpack_from(memory, at)[0]
    if dtype == "bf16":  # the upper half of an f32
        value = struct.unpack("<f", struct.pack("<I", int(value) << 16))[0]
    return value


def _indices(sizes: Sequence[int], limit: int) -> Iterator[tuple[int, ...]]:
    """The first multi-indices in row-major order."""
    for number in range(min(math.prod(sizes), limit)):
        index = []
        for size in reversed(sizes):
            number, rest = divmod(number, size)
            index.append(rest)
        yield tuple(reversed(index))


if __name__ == "__main__":
    replay(*sys.argv[1:3])
