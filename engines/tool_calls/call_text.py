"""What all ways to write a tool call have in common: it is read as it comes, and its arguments, a
JSON object, are passed on while they are written, once it is sure which function is called.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Generator
from enum import Enum
from typing import Final, TypeAlias

# A parser that is sent one character at a time.
Parser: TypeAlias = Generator[None, str, None]
Value: TypeAlias = Generator[None, str, str]

_SPACE: Final = " \t\n\r"


class CallState(Enum):
    """How far a call is. `OPEN` is the only one that takes characters."""

    OPEN = "open"
    COMPLETE = "complete"
    BROKEN = "broken"


class NotACallError(Exception):
    """What is written is no call."""


class CallText(ABC):
    """A call of one of the functions `names`.

    `name` is set when the text is sure to be one; `is_told` is for whoever tells of it. Nothing is
    passed on of a text that turns out to be no call; one that goes wrong later is `BROKEN`.
    """

    def __init__(self, names: frozenset[str]) -> None:
        self._names = names
        self._passes_on = False
        self._arguments: list[str] = []
        self._written: list[str] = []
        self.name = ""
        self.is_told = False
        self.state = CallState.OPEN
        self._parser = self._read()
        next(self._parser)

    @property
    def written(self) -> str:
        """Everything that was read."""
        return "".join(self._written)

    def read(self, text: str) -> str:
        """Read as much of `text` as belongs to the call; the rest of it."""
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

    @abstractmethod
    def _read(self) -> Parser:
        """Read the call to its end. Raises NotACallError."""

    @abstractmethod
    def _settle(self) -> bool:
        """The text is at its end: whether it is a call whose arguments are a JSON object."""

    def _push(self, character: str) -> None:
        self._written.append(character)
        try:
            self._parser.send(character)
        except NotACallError:
            self.state = CallState.BROKEN
        except StopIteration:
            self.state = CallState.COMPLETE if self._settle() else CallState.BROKEN

    def _recognise(self, name: object) -> None:
        """Only a function that was offered can be called."""
        expect(isinstance(name, str) and name in self._names)
        self.name = str(name)

    def _string(self) -> Value:
        """Read a JSON string from behind its first quote."""
        value = ['"']
        is_escaped = False
        while True:
            character = yield
            value.append(character)
            self._pass_on(character)
            if character == '"' and not is_escaped:
                return "".join(value)
            is_escaped = character == "\\" and not is_escaped

    def _nested(self, first: str) -> Value:
        """Read an object or a list from behind its first bracket."""
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


def expect(holds: bool) -> None:
    """Raise NotACallError where something does not hold."""
    if not holds:
        raise NotACallError


def skip_space(character: str) -> Value:
    """The first character that is no space, of this one and those that follow."""
    while character in _SPACE:
        character = yield
    return character


def scalar(first: str) -> Generator[None, str, tuple[str, str]]:
    """A number or a word, and the character after it."""
    value, character = "", first
    while character not in ",}]" and character not in _SPACE:
        value += character
        character = yield
    return value, character


def parse(text: str) -> object:
    """The value of JSON text; an empty tuple where it is none."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return ()
