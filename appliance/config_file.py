"""How the configuration file becomes a Config, and what is said when it cannot.

Every fault in the file is reported at once, each with file, line, key path and the nearest right
key. Values are never repeated in a message: one of them may be a password.
"""

import re
import tomllib
from collections.abc import Iterator, Mapping
from math import isfinite
from pathlib import Path
from typing import Any, Final, TypeAlias, get_args, get_origin

import msgspec
from msgspec import Struct

from appliance.config import Config
from appliance.config_values import complaints
from appliance.errors import ConfigError
from appliance.nearest import MIN_LIKENESS, likeness, nearest
from appliance.toml_lines import line_of

KeyPath: TypeAlias = tuple[str, ...]

_TYPE_WORDS: Final = {
    "int": "a whole number",
    "float": "a number",
    "str": "text in quotes",
    "bool": "true or false",
    "array": "a list",
    "object": "a table",
}
_UNITS: Final = {"s": "seconds", "bytes": "bytes", "tokens": "tokens"}
_FOREIGN_UNITS: Final = frozenset(
    {"ms", "us", "sec", "secs", "seconds", "m", "min", "minutes", "h", "hours", "b", "kb", "mb"}
    | {"gb", "kib", "mib", "gib", "bits"}
)


class Fault(Struct, frozen=True, kw_only=True):
    """One thing wrong with a file. `line` 0 means the file as a whole."""

    code: str
    path: str
    line: int
    problem: str
    hint: str = ""


class InvalidConfigError(ConfigError):
    """A file with faults; the code is that of the first one, the message tells all of them."""

    def __init__(self, file: Path, faults: tuple[Fault, ...]) -> None:
        super().__init__(faults[0].code, "\n".join(_describe(file, fault) for fault in faults))
        self.faults = faults


def load(path: Path) -> Config:
    """The configuration in `path`; all defaults when there is no such file.

    Raises InvalidConfigError with code `config.unreadable`, `config.syntax`, `config.unknown_key`,
    `config.wrong_type`, `config.out_of_range` or `config.missing_key`.
    """
    try:
        # utf-8-sig: editors on Windows put a byte order mark first.
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        return Config()
    except (OSError, UnicodeDecodeError) as error:
        problem = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        fault = Fault(code="config.unreadable", path="", line=0, problem=str(problem))
        raise InvalidConfigError(path, (fault,)) from error
    return parse(text, path)


def parse(text: str, path: Path) -> Config:
    """The configuration written in `text`; `path` is only named in errors. Raises like `load`."""
    try:
        tree = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InvalidConfigError(path, (_syntax_fault(error),)) from error
    faults = tuple(_Checker(text).check(tree, Config, ()))
    if faults:
        raise InvalidConfigError(path, faults)
    return msgspec.convert(tree, Config)


def key_paths(struct: type[Struct] = Config, prefix: KeyPath = ()) -> Iterator[KeyPath]:
    """Every key path of the configuration, tables before what is in them."""
    for field in msgspec.structs.fields(struct):
        path = (*prefix, field.encode_name)
        yield path
        if _is_table(field.type):
            yield from key_paths(field.type, path)


class _Checker:
    """Walks the file's tree beside the Structs and collects every fault."""

    def __init__(self, text: str) -> None:
        self.text = text

    def check(self, tree: Mapping[str, Any], struct: type[Struct], at: KeyPath) -> Iterator[Fault]:
        fields = {field.encode_name: field.type for field in msgspec.structs.fields(struct)}
        for key, value in tree.items():
            path = (*at, key)
            if key not in fields:
                hint = _meant(path) or f"here can stand: {', '.join(fields)}"
                yield self._fault("config.unknown_key", path, "there is no such key", hint)
            elif _is_table(fields[key]) and isinstance(value, dict):
                yield from self.check(value, fields[key], path)
                yield from self._complaints(path, value)
            elif get_origin(fields[key]) is dict and isinstance(value, dict):
                yield from self._check_table(value, get_args(fields[key])[1], path)
            else:
                yield from self._check_value(value, fields[key], path)

    def _check_table(self, table: dict[str, Any], wanted: Any, path: KeyPath) -> Iterator[Fault]:  # noqa: ANN401 TOML
        faults = [
            fault
            for key, item in table.items()
            for fault in self._check_value(item, wanted, (*path, key))
        ]
        yield from faults or self._complaints(path, table)

    def _check_value(self, value: Any, wanted: Any, path: KeyPath) -> Iterator[Fault]:  # noqa: ANN401 TOML
        try:
            msgspec.convert(value, wanted)
        except msgspec.ValidationError as error:
            yield self._fault(*_explain(str(error), value, wanted, path))
            return
        if isinstance(value, float) and not isfinite(value):
            yield self._fault("config.out_of_range", path, "expected a finite number", "")
        else:
            yield from self._complaints(path, value)

    def _complaints(self, path: KeyPath, value: Any) -> Iterator[Fault]:  # noqa: ANN401 TOML
        for found in complaints(path, value):
            at = (*path, found.key) if found.key else path
            yield self._fault(found.code, at, found.problem, found.hint)

    def _fault(self, code: str, path: KeyPath, problem: str, hint: str) -> Fault:
        line = line_of(self.text, path)
        return Fault(code=code, path=".".join(path), line=line, problem=problem, hint=hint)


def _is_table(kind: Any) -> bool:  # noqa: ANN401 a type annotation
    return isinstance(kind, type) and issubclass(kind, Struct)


def _syntax_fault(error: ValueError | RecursionError) -> Fault:
    message = "tables nested too deeply" if isinstance(error, RecursionError) else str(error)
    found = re.search(r"\s*\(at line (\d+), column \d+\)$", message)
    return Fault(
        code="config.syntax",
        path="",
        line=int(found[1]) if found else 0,
        problem=f"not valid TOML: {message[: found.start()] if found else message}",
    )


def _explain(message: str, value: Any, wanted: Any, path: KeyPath) -> tuple[str, KeyPath, str, str]:  # noqa: ANN401 TOML
    """Turn msgspec's complaint about a value into code, path, problem and hint."""
    message, _, where = message.partition(" - at `$")
    place = f" (item {where.rstrip('`').strip('[]')})" if where.startswith("[") else ""
    if message.startswith("Invalid enum value"):
        choices = get_args(wanted)
        guess = nearest(str(value), choices)
        problem = f"expected one of {', '.join(choices)}"
        return "config.out_of_range", path, problem, f"did you mean {guess}?" if guess else ""
    if found := re.fullmatch(r"Expected `(.+)`, got `(\w+)`", message):
        expected = found[1].removesuffix(" | null")
        problem = f"expected {_TYPE_WORDS.get(expected, expected)}{place}, got {_got(found[2])}"
        quoted_number = found[2] == "str" and expected in {"int", "float", "bool"}
        hint = f"write {_TYPE_WORDS[expected]} without quotes" if quoted_number else ""
        return "config.wrong_type", path, problem, hint
    problem = re.sub(r"`([\w| ]+)`", lambda m: _number_words(m[1]), message)
    return "config.out_of_range", path, problem[:1].lower() + problem[1:] + place, ""


def _number_words(expected: str) -> str:
    return _TYPE_WORDS.get(expected.removesuffix(" | null"), expected)


def _got(kind: str) -> str:
    return "text" if kind == "str" else _TYPE_WORDS.get(kind, kind)


def _meant(path: KeyPath) -> str:
    """The nearest right key among all of them, in whichever table it lies."""
    best = max(key_paths(), key=lambda known: _closeness(path, known))
    if _closeness(path, best) < MIN_LIKENESS:
        return ""
    hint = f"did you mean {'.'.join(best)}?"
    unit = _UNITS.get(best[-1].rpartition("_")[2])
    if unit and path[-1] != best[-1] and _stem(path[-1]) == _stem(best[-1]):
        hint += f" It counts in {unit}."
    return hint


def _closeness(path: KeyPath, known: KeyPath) -> float:
    whole = likeness(".".join(path), ".".join(known))
    if path[-1].casefold() == known[-1]:
        return 2 + whole
    if _stem(path[-1]) == _stem(known[-1]):
        return 1 + whole
    return max(whole, likeness(path[-1], known[-1]))


def _stem(key: str) -> str:
    """A key without the unit at its end."""
    stem, _, last = key.casefold().rpartition("_")
    return stem if stem and (last in _UNITS or last in _FOREIGN_UNITS) else key.casefold()


def _describe(file: Path, fault: Fault) -> str:
    place = f"{file}:{fault.line}" if fault.line else str(file)
    key = f"{fault.path}: " if fault.path else ""
    return f"{place}: {key}{fault.problem}" + (f"; {fault.hint}" if fault.hint else "")
