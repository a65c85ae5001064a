"""Reads config.yaml and the variables above it, and says of everything wrong where it stands and what is allowed."""

from __future__ import annotations

import dataclasses
import json
import os
import types
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import yaml
from annotated_types import Ge, Gt, Le
from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from torch_fl.config import ENVIRONMENT, Config, ConfigError, DeviceRule, Loaded

_Place = tuple[str | int, ...]

_NAMES = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}
_BOUNDS = {Ge: ("ge", "of at least"), Gt: ("gt", "above"), Le: ("le", "of at most")}


class _Loader(yaml.SafeLoader):
    """Safe, and a date is text as it stands: no key here takes one."""


_Loader.yaml_implicit_resolvers = {
    first: [entry for entry in entries if entry[0] != "tag:yaml.org,2002:timestamp"]
    for first, entries in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def read(path: Path | None, variables: Mapping[str, str]) -> Loaded:
    """File (None: there is none) under the variables; raises ConfigError with all problems."""
    data, sources = _read_file(path) if path is not None else ({}, {})
    for name, text in variables.items():
        _override(data, sources, name, text)
    try:
        # Through JSON, since strict rules take a JSON array for a tuple and an object for a dataclass.
        config = TypeAdapter(Config).validate_json(json.dumps(data))
    except TypeError as error:  # a key of a kind that JSON lacks
        raise ConfigError(f"{path}: {error}") from None
    except ValidationError as error:
        raise ConfigError("\n".join(_problem(detail, sources) for detail in error.errors())) from None
    problems = _doubled(config, sources)
    if problems:
        raise ConfigError("\n".join(problems))
    return Loaded(config, {".".join(map(str, place)): source for place, source in sources.items()}, path)


def _read_file(path: Path) -> tuple[dict[str, Any], dict[_Place, str]]:
    """(data, place -> "path:line")."""
    sources: dict[_Place, str] = {}
    try:
        loader = _Loader(path.read_text(encoding="utf-8"))
        try:
            node = loader.get_single_node()
            if node is not None:
                _mark(node, (), path, sources)
            data = {} if node is None else loader.construct_document(node)
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        line = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
        raise ConfigError(f"{path}{line}: this is not YAML: {error.problem}") from None
    except (OSError, UnicodeDecodeError, yaml.YAMLError, RecursionError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from None
    if not isinstance(data, dict):
        raise ConfigError(f"{path}:1: keys and values are needed, such as `precision: fast`")
    sections = {item.name for item in dataclasses.fields(Config)}
    # A section whose lines are all commented out says nothing.
    data = {key: value for key, value in data.items() if value is not None or key not in sections}
    _resolve_paths(data, path.resolve().parent)
    return data, sources


def _mark(node: yaml.Node, place: _Place, path: Path, sources: dict[_Place, str]) -> None:
    """Note the line of everything below a node; a key that stands twice is refused, where YAML would take the last."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            below = (*place, str(key.value))
            line = key.start_mark.line + 1
            if below in sources:
                name = ".".join(map(str, below))
                raise ConfigError(f"{path}:{line}: {name}: this key stands twice, first at {sources[below]}")
            sources[below] = f"{path}:{line}"
            _mark(value, below, path, sources)
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            entry = (*place, index)
            sources[entry] = f"{path}:{value.start_mark.line + 1}"
            _mark(value, entry, path, sources)


def _override(data: dict[str, Any], sources: dict[_Place, str], name: str, text: str) -> None:
    """Put a variable's value where the file would have it."""
    key = ENVIRONMENT[name]
    source = f"environment variable {name}"
    if key == "devices":
        _choose_devices(data, sources, text, source)
        return
    section, _, last = key.rpartition(".")
    holder = data
    if section:
        if data.get(section) is None:
            data[section] = {}
        holder = data[section]
        if not isinstance(holder, dict):  # wrong in the file, whatever the variable says: it is refused as it stands
            return
    place: _Place = tuple(key.split("."))
    holder[last] = _value(text, place)
    sources[place] = source
    _resolve_paths(data, Path.cwd())


def _choose_devices(data: dict[str, Any], sources: dict[_Place, str], text: str, source: str) -> None:
    """The types that a variable lists, in its order; what the file says of one of them stays."""
    rules = {rule["type"]: (index, rule) for index, rule in _rules(data)}
    below = {place: line for place, line in sources.items() if place[0] == "devices"}
    for old in below:
        del sources[old]
    data["devices"] = []
    sources[("devices",)] = source
    for word in text.split(","):
        if not (name := _absolute(word.strip(), Path.cwd())):
            continue
        place: _Place = ("devices", len(data["devices"]))
        former, rule = rules.get(name, (None, {}))
        sources |= {place + old[2:]: line for old, line in below.items() if old[1:2] == (former,)}
        sources |= {place: source, (*place, "type"): source}
        data["devices"].append({**rule, "type": name})


def _rules(data: Mapping[str, Any]) -> list[tuple[int, dict[str, Any]]]:
    """(index, rule) of the file's rules that have a type, whatever else is wrong with them."""
    rules = data.get("devices")
    return [
        (index, rule)
        for index, rule in enumerate(rules if isinstance(rules, list) else ())
        if isinstance(rule, dict) and isinstance(rule.get("type"), str)
    ]


def _value(text: str, place: _Place) -> Any:
    """A variable's text as its key wants it; what does not fit stays text, and is refused like a wrong value."""
    converters: dict[Any, Callable[[str], Any]] = {bool: _truth, float: float}
    try:
        return converters.get(_base(_hint(place)), str)(text)
    except ValueError:
        return text


def _truth(text: str) -> bool:
    words = {"1": True, "true": True, "0": False, "false": False}
    try:
        return words[text.lower()]
    except KeyError:
        raise ValueError(text) from None


def _resolve_paths(data: Mapping[str, Any], folder: Path) -> None:
    """Make paths absolute in place: `registry`, `logging.path`, and a type that has a separator."""
    for holder, key in (
        *((rule, "type") for _, rule in _rules(data)),
        (data, "registry"),
        (data.get("logging"), "path"),
    ):
        if isinstance(holder, dict) and isinstance(holder.get(key), str):
            name = holder[key]
            holder[key] = _absolute(name, folder) if key == "type" else str(folder / Path(name).expanduser())


def _absolute(word: str, folder: Path) -> str:
    return os.path.normpath(folder / Path(word).expanduser()) if os.sep in word else word


def _doubled(config: Config, sources: Mapping[_Place, str]) -> list[str]:
    """A type that two rules name: which count holds?"""
    first: dict[str, int] = {}
    problems = []
    for index, rule in enumerate(config.devices or ()):
        if rule.type in first:
            earlier = sources[_known(("devices", first[rule.type], "type"), sources)]
            where = sources[_known(("devices", index, "type"), sources)]
            problems.append(f"{where}: devices: {rule.type!r} is named twice, first at {earlier}")
        first.setdefault(rule.type, index)
    return problems


def _problem(detail: ErrorDetails, sources: Mapping[_Place, str]) -> str:
    place: _Place = tuple(detail["loc"])
    known = _known(place, sources)
    where = sources.get(known, "configuration")
    key = ".".join(map(str, place))
    hint = _hint(place[:-1])
    if detail["type"] == "unexpected_keyword_argument":
        return f"{where}: {key}: unknown key; allowed: {_keys(hint)}"
    if detail["type"] == "missing":
        return f"{where}: {key}: missing; needed: {_allowed(_hint(place))}"
    return f"{where}: {key}: {detail['input']!r:.80} is not allowed; allowed: {_allowed(_hint(place))}"


def _known(place: _Place, sources: Mapping[_Place, str]) -> _Place:
    """The innermost part of a place that has a source."""
    while place and place not in sources:
        place = place[:-1]
    return place


def _hint(place: _Place) -> Any:
    """The type that the dataclasses give a place; Any for one that they do not know."""
    hint: Any = Config
    for part in place:
        if dataclasses.is_dataclass(hint):
            hint = get_type_hints(hint, include_extras=True).get(str(part), Any)
        elif isinstance(part, int):
            hint = DeviceRule
        hint = _present(hint)
    return hint


def _present(hint: Any) -> Any:
    """`X | None` without the None."""
    if get_origin(hint) in (Union, types.UnionType):
        return next(part for part in get_args(hint) if part is not type(None))
    return hint


def _base(hint: Any) -> Any:
    return get_args(hint)[0] if get_origin(hint) is Annotated else hint


def _keys(hint: Any) -> str:
    return ", ".join(item.name for item in dataclasses.fields(hint)) if dataclasses.is_dataclass(hint) else "none"


def _allowed(hint: Any) -> str:
    """What a key takes, in words."""
    if get_origin(hint) is Literal:
        return ", ".join(map(str, get_args(hint)))
    if get_origin(hint) is tuple:
        return "a list, each entry with the keys " + _keys(DeviceRule)
    if dataclasses.is_dataclass(hint):
        return f"the keys {_keys(hint)}"
    words = _NAMES.get(_base(hint), "another value")
    bounds = [
        f"{word} {getattr(bound, name):g}"
        for bound in getattr(hint, "__metadata__", ())
        for kind, (name, word) in _BOUNDS.items()
        if isinstance(bound, kind)
    ]
    return " ".join([words, " and ".join(bounds)]).strip()
