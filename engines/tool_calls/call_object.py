"""One tool call as a model writes it, `{"name": "f", "arguments": {...}}`, read as it comes.

Arguments are passed on while they are written, once the name is known. Nothing is passed on of an
object that turns out to be no call; one that goes wrong later is `broken`.
"""

import json
from collections.abc import Generator
from enum import Enum
from typing import Final, TypeAlias

# A parser that is sent one character at a time.
_Parser: TypeAlias = Generator[None, str, None]
_Value: TypeAlias = Generator[None, str, str]

_SPACE: Final = " \t\n\r"


class CallState(Enum):
    """How far a call is. `OPEN` is the only one that takes characters."""

    OPEN = "open"
    COMPLETE = "complete"
    BROKEN = "broken"


class CallObject:
    """A call of one of the functions `names`.

    `name` is set when the object is sure to be one; `is_told` is for whoever tells of it.
    """

    def __init__(self, names: frozenset[str], arguments_key: str) -> None:
        self._names = names
        self._arguments_key = arguments_key
        self._fields: dict[str, str] = {}
        self._passes_on = False
        self._arguments: list[str] = []
        self._parser = self._read()
        next(self._parser)
        self._written: list[str] = []
        self.name = ""
        self.is_told = False
        self.state = CallState.OPEN

    @property
    def written(self) -> str:
        """Everything that was read."""
        return "".join(self._written)

    def read(self, text: str) -> str:
        """Read as much of `text` as belongs to the object; the rest of it."""
        for position, character in enumerate(text):
            if self.state is not CallState.OPEN:
                return text[position:]
            self._push(character)
        return ""

    def take_arguments(self) -> str:
        """What can be told of the arguments and has not been yet."""
        if not self.name:
            return ""
        arguments = "".join(self._arguments)
        self._arguments.clear()
        return arguments

    def _push(self, character: str) -> None:
        self._written.append(character)
        try:
            self._parser.send(character)
        except _NotACallError:
            self.state = CallState.BROKEN
        except StopIteration:
            self.state = CallState.COMPLETE if self._settle() else CallState.BROKEN

    def _read(self) -> _Parser:
        character = yield from _skip_space((yield))
        _expect(character == "{")
        while character != "}":
            character = yield from _skip_space((yield))
            if character == "}" and not self._fields:
                break
            _expect(character == '"')
            key = _parse((yield from self._string()))
            _expect(isinstance(key, str) and key not in self._fields)
            _expect((yield from _skip_space((yield))) == ":")
            character = yield from self._field(str(key), (yield from _skip_space((yield))))
            _expect(character in {",", "}"})

    def _field(self, key: str, first: str) -> _Value:
        """Read one value, and answer the character after it."""
        self._fields[key] = ""
        self._passes_on = key == self._arguments_key and first == "{"
        if self._passes_on:
            self._recognise()
        following = ""
        if first == '"':
            value = yield from self._string()
        elif first in "{[":
            value = yield from self._nested(first)
        else:
            value, following = yield from _scalar(first)
        self._passes_on = False
        self._fields[key] = value
        if key == "name" and self._arguments_key in self._fields:
            self._recognise()
        return (yield from _skip_space(following or (yield)))

    def _string(self) -> _Value:
        value = ['"']
        is_escaped = False
        while True:
            character = yield
            value.append(character)
            self._pass_on(character)
            if character == '"' and not is_escaped:
                return "".join(value)
            is_escaped = character == "\\" and not is_escaped

    def _nested(self, first: str) -> _Value:
        self._pass_on(first)
        value, depth = [first], 1
        while depth:
            character = yield
            self._pass_on(character)
            value.append((yield from self._string()) if character == '"' else character)
            depth += (character in "{[") - (character in "}]")
        return "".join(value)

    def _pass_on(self, character: str) -> None:
        if self._passes_on:
            self._arguments.append(character)

    def _recognise(self) -> None:
        """The name, if it has been read; only a function that was offered can be called."""
        if "name" in self._fields:
            name = _parse(self._fields["name"])
            _expect(isinstance(name, str) and name in self._names)
            self.name = str(name)

    def _settle(self) -> bool:
        """The object is closed: whether it is a call whose arguments are a JSON object."""
        written = self._fields.get(self._arguments_key, "{}")
        arguments = _parse(written)
        if isinstance(arguments, str):
            written = arguments  # Some models write the object as a string.
            arguments = _parse(written)
        if arguments is None and written == "null":
            written, arguments = "{}", {}
        if not isinstance(arguments, dict):
            return False
        try:
            self._recognise()
        except _NotACallError:
            return False
        if not written.startswith("{") or written != self._fields.get(self._arguments_key):
            self._arguments = [written]
        return bool(self.name)


class _NotACallError(Exception):
    """What is written is no call."""


def _expect(holds: bool) -> None:
    if not holds:
        raise _NotACallError


def _skip_space(character: str) -> _Value:
    while character in _SPACE:
        character = yield
    return character


def _scalar(first: str) -> Generator[None, str, tuple[str, str]]:
    """A number or a word, and the character after it."""
    value, character = "", first
    while character not in ",}]" and character not in _SPACE:
        value += character
        character = yield
    return value, character


def _parse(text: str) -> object:
    """The value of JSON text; an empty tuple where it is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return ()
