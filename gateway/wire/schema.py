"""How a JSON object becomes a checked Struct, and how what is wrong with it is said.

Nothing a client sends is ignored: a parameter is part of a Struct, or stands in a table of those
that cannot be honoured, or is unknown. Errors name fields and expected types, never values.
"""

import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Struct

from appliance.errors import RequestError
from gateway.wire.body import is_name

S = TypeVar("S", bound=Struct)

# A turn is three tokens at least and takes an engine 0.2 ms to tokenise: as many as this take about
# as long as the longest text that a body may hold, and fill 96,000 tokens of context.
MAX_TURNS: Final = 16_384

_PLACE: Final = re.compile(r"(?P<what>.*) - at `\$(?P<path>[^`]*)`\Z", re.DOTALL)
_FIELD: Final = re.compile(
    r"Object (?P<how>missing required|contains unknown) field `(?P<name>.*)`\Z", re.DOTALL
)
_INDEX: Final = re.compile(r"\[\d+\]")
_TYPES: Final = re.compile(r"`([a-z |]+)`")
_TYPE_NAMES: Final = {
    "str": "a string",
    "int": "an integer",
    "float": "a number",
    "bool": "true or false",
    "array": "a list",
    "object": "an object",
    "null": "null",
}


class Unsupported(Struct, frozen=True):
    """A parameter the box knows and does not honour: why, and the values that ask for nothing."""

    why: str
    neutral: tuple[Any, ...] = ()

    def accepts(self, value: object) -> bool:
        """Whether leaving this value unheeded changes nothing; null never asks for anything."""
        return value is None or any(
            type(value) is type(neutral) and value == neutral for neutral in self.neutral
        )


def take_unsupported(
    fields: dict[str, Any], unsupported: Mapping[str, Unsupported], path: str = ""
) -> None:
    """Take neutral values of unsupported parameters out of `fields`; refuse the others (400)."""
    for name, rule in unsupported.items():
        if name in fields and not rule.accepts(fields.pop(name)):
            raise unsupported_parameter(path + name, rule.why)


def check(fields: dict[str, Any], struct: type[S], expected: Mapping[str, str] = {}) -> S:
    """`fields` as that Struct. Raises RequestError (400) with the path of what is wrong.

    `expected` says, by path without indices, what to answer where a tag names something unknown.
    """
    known = struct.__struct_fields__
    for name in fields:
        if name not in known:
            raise _unknown_parameter(name, known)
    try:
        return msgspec.convert(fields, struct)
    except msgspec.ValidationError as error:
        raise _translate(str(error), expected) from None


def invalid_parameter(param: str, expected: str) -> RequestError:
    """A parameter has a value of the wrong type or range: say what was expected."""
    return RequestError(
        "request.invalid_parameter", f"{param}: {expected}", status=400, param=param
    )


def unsupported_parameter(param: str, why: str) -> RequestError:
    """A parameter is known and cannot be honoured."""
    return RequestError(
        "request.unsupported_parameter", f"{param} is not supported: {why}", status=400, param=param
    )


def missing_parameter(param: str) -> RequestError:
    """A parameter that must be there is not."""
    return RequestError(
        "request.missing_parameter", f"{param} is required", status=400, param=param
    )


def _unknown_parameter(name: str, known: tuple[str, ...]) -> RequestError:
    if not is_name(name):
        return RequestError("request.unknown_parameter", "a parameter is unknown", status=400)
    nearest = get_close_matches(name, known, n=1)
    return RequestError(
        "request.unknown_parameter",
        f"{name} is not a known parameter" + (f"; did you mean {nearest[0]}?" if nearest else ""),
        status=400,
        param=name,
    )


def _translate(text: str, expected: Mapping[str, str]) -> RequestError:
    """The RequestError for a msgspec.ValidationError, whose text is `WHAT - at `$PATH``."""
    place = _PLACE.match(text)
    what, path = (place["what"], place["path"].lstrip(".")) if place else (text, "")
    if field := _FIELD.match(what):
        return _translate_field(field["how"], field["name"], path)
    if what.startswith(("Invalid value", "Invalid enum value")):  # goes on to quote the value
        what = expected[_INDEX.sub("[]", path)]
    else:
        what = _TYPES.sub(lambda types: _name_types(types[1]), what)
    return invalid_parameter(path, what[0].lower() + what[1:])


def _translate_field(how: str, name: str, path: str) -> RequestError:
    if how == "missing required":
        return missing_parameter(f"{path}.{name}" if path else name)
    if not is_name(name):
        return RequestError(
            "request.unknown_parameter", f"{path} has an unknown field", status=400, param=path
        )
    param = f"{path}.{name}" if path else name
    return RequestError(
        "request.unknown_parameter", f"{param} is not a known field", status=400, param=param
    )


def _name_types(types: str) -> str:
    return " or ".join(_TYPE_NAMES.get(name, name) for name in types.split(" | "))
