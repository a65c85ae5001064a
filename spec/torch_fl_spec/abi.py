"""The C header as Python sees it: one cffi `ffi`, the constants, the header's id.

The struct layouts have a single description, `include/torch_fl/plugin.h`. The text between its cdef
marks is compiled once into an out-of-line ABI-mode cffi module and cached under the user cache, so
that a driver process imports it in a few milliseconds instead of parsing C on every start.

Constants are attributes: `abi.FL_OK`, `abi.FL_KIND_ERROR`, `abi.FL_DTYPE_F32`.
`python -m torch_fl_spec.abi --stamp` writes the header's id into the header.
"""

from __future__ import annotations

import hashlib
import importlib.util
import re
import sys
from pathlib import Path
from typing import Any

from .cache import cache_dir as cache_dir

INCLUDE_DIR = Path(__file__).parent / "include"
HEADER_PATH = INCLUDE_DIR / "torch_fl" / "plugin.h"
HELPER_HEADER_PATH = Path(__file__).parent / "helper" / "torch_fl_helper.h"

_ID_LINE = re.compile(r'^#define FL_HEADER_ID "([0-9a-f]*)"\n', re.MULTILINE)
_CDEF = re.compile(r"/\* <cdef> \*/\n(.*)/\* </cdef> \*/", re.DOTALL)

# The exported symbol (a prototype with an attribute in the header, which cffi cannot read) and the
# few libc functions that place structs before guard pages and end a process the C way.
_GLUE = """
fl_status fl_plugin_query_v1(const fl_host* host, const fl_plugin** out, fl_error* err);
void* mmap(void* address, uint64_t length, int protection, int flags, int fd, int64_t offset);
int munmap(void* address, uint64_t length);
int mprotect(void* address, uint64_t length, int protection);
void exit(int status);
"""


def header_text() -> str:
    """The header, LF line ends."""
    return HEADER_PATH.read_text(encoding="utf-8").replace("\r\n", "\n")


def compute_header_id(text: str) -> str:
    """sha256 (hex) of a header's text without its FL_HEADER_ID line [FL-VERSION-006]."""
    return hashlib.sha256(_ID_LINE.sub("", text).encode("utf-8")).hexdigest()


def stamped_header_id(text: str) -> str:
    """The id that the header itself carries; plugins bake this one in."""
    found = _ID_LINE.search(text)
    if found is None:
        raise ValueError(f'{HEADER_PATH}: no line `#define FL_HEADER_ID "..."`')
    return found.group(1)


def cdef_section(text: str) -> str:
    """The part between the cdef marks, without the marks."""
    found = _CDEF.search(text)
    if found is None:
        raise ValueError("no text between /* <cdef> */ and /* </cdef> */")
    return found.group(1)


def _generate(cdef: str, name: str, path: Path) -> None:
    """Write the out-of-line module; a reader sees the whole file or none."""
    import contextlib
    import io
    import tempfile

    import cffi

    builder = cffi.FFI()
    builder.cdef(cdef)
    builder.set_source(name, None)
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent) as scratch:
        temporary = Path(scratch) / path.name
        with contextlib.redirect_stdout(io.StringIO()):  # it announces the file it writes
            builder.emit_python_code(str(temporary))
        temporary.replace(path)


def _import_file(name: str, path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _load_ffi(text: str) -> Any:
    import _cffi_backend

    helper = cdef_section(HELPER_HEADER_PATH.read_text(encoding="utf-8"))
    cdef = cdef_section(text) + _GLUE + helper
    key = f"{_cffi_backend.__version__} {sys.version_info[:2]}\n{cdef}"
    digest = hashlib.sha256(key.encode("utf-8")).hexdigest()[:16]
    name = f"_torch_fl_abi_{digest}"
    path = cache_dir() / "abi" / f"{name}.py"
    try:
        if not path.exists():
            _generate(cdef, name, path)
        return _import_file(name, path).ffi
    except OSError:
        # No writable cache (a sealed container): pay the 50 ms on each start.
        import tempfile

        with tempfile.TemporaryDirectory() as scratch:
            path = Path(scratch) / f"{name}.py"
            _generate(cdef, name, path)
            return _import_file(name, path).ffi


_TEXT = header_text()

#: sha256 of this header as FL-VERSION-006 computes it.
HEADER_ID: str = compute_header_id(_TEXT)

#: Every integer `#define` of the header's cdef section.
CONSTANTS: dict[str, int] = {
    name: int(value, 0)
    for name, value in re.findall(r"^#define (FL_\w+) (0x[0-9a-fA-F]+|\d+)", cdef_section(_TEXT), re.MULTILINE)
}

#: Short dtype name ("f32") to its number, FL_DTYPE_NONE excluded, and back.
DTYPES: dict[str, int] = {
    name[9:].lower(): value
    for name, value in CONSTANTS.items()
    if name.startswith("FL_DTYPE_") and name != "FL_DTYPE_NONE"
}
DTYPE_NAMES: dict[int, str] = {value: name for name, value in DTYPES.items()}

# Numbers up to FL_DEVICE_LOST stand at the head of the header, before any other small constant.
_STATUS = (
    "OK NOT_READY INVALID_ARGUMENT FAILED_PRECONDITION OUT_OF_RESOURCES INTERNAL OUT_OF_MEMORY "
    "UNIMPLEMENTED TIMEOUT ASYNC_FAILURE DEVICE_LOST"
)
STATUS_NAMES: dict[int, str] = {CONSTANTS[f"FL_{name}"]: name for name in _STATUS.split()}

#: The cffi object that knows every type of plugin.h and of the C helper.
ffi: Any = _load_ffi(_TEXT)

#: libc, through the same ffi.
libc: Any = ffi.dlopen(None)


def status_name(code: int) -> str:
    """ "INVALID_ARGUMENT" for 2; unknown codes say so, since they count as INTERNAL [FL-ERROR-002]."""
    return STATUS_NAMES.get(code, f"unknown status {code}")


def kind_of(struct: str) -> int | None:
    """FL_KIND_* of a growable struct by its C name, "struct " allowed; None for leaf types such as fl_arg."""
    name = struct.removeprefix("struct ").removeprefix("fl_").upper()
    return CONSTANTS.get(f"FL_KIND_{name}", CONSTANTS.get(f"FL_KIND_EXT_{name.removesuffix('_API')}"))


def introduced_size(struct: str) -> int | None:
    """FL_SIZE_V1_0_*: the size below which a struct is refused [FL-LAYOUT-006]; None for leaf types."""
    return CONSTANTS.get(f"FL_SIZE_V1_0_{struct.removeprefix('fl_').upper()}")


def flag_names(prefix: str, value: int) -> list[str]:
    """Names of the set bits of a flags word, e.g. ("FL_KERNEL_", 5); unknown bits as "0x40"."""
    names = {v: k[len(prefix) :] for k, v in CONSTANTS.items() if k.startswith(prefix)}
    return [names.get(1 << bit, hex(1 << bit)) for bit in range(32) if value >> bit & 1]


globals().update(CONSTANTS)  # each is an attribute of this module


def __getattr__(name: str) -> int:
    """Tells type checkers what the constants are; called for names that there are not."""
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def stamp(path: Path = HEADER_PATH) -> str:
    """Write the header's id into its FL_HEADER_ID line and return it."""
    text = path.read_text(encoding="utf-8").replace("\r\n", "\n")
    stamped_header_id(text)
    header_id = compute_header_id(text)
    path.write_text(_ID_LINE.sub(f'#define FL_HEADER_ID "{header_id}"\n', text), encoding="utf-8")
    return header_id


if __name__ == "__main__":
    if sys.argv[1:] == ["--stamp"]:
        print(stamp())
    else:
        print(HEADER_ID)
