"""One tool call as a JSON object, `{"name": "f", "arguments": {...}}`, in whichever order."""

from engines.tool_calls.call_text import (
    CallText,
    NotACallError,
    Parser,
    Value,
    expect,
    parse,
    scalar,
    skip_space,
)


class CallObject(CallText):
    """A call whose arguments stand under the key `arguments_key`."""

    def __init__(self, names: frozenset[str], arguments_key: str) -> None:
        self._arguments_key = arguments_key
        self._fields: dict[str, str] = {}
        super().__init__(names)

    def _read(self) -> Parser:
        character = yield from skip_space((yield))
        expect(character == "{")
        while character != "}":
            character = yield from skip_space((yield))
            if character == "}" and not self._fields:
                break
            expect(character == '"')
            key = parse((yield from self._string()))
            expect(isinstance(key, str) and key not in self._fields)
            expect((yield from skip_space((yield))) == ":")
            character = yield from self._field(str(key), (yield from skip_space((yield))))
            expect(character in {",", "}"})

    def _field(self, key: str, first: str) -> Value:
        """Read one value, and answer the character after it."""
        self._fields[key] = ""
        self._passes_on = key == self._arguments_key and first == "{"
        if self._passes_on:
            self._find_name()
        following = ""
        if first == '"':
            value = yield from self._string()
        elif first in "{[":
            value = yield from self._nested(first)
        else:
            value, following = yield from scalar(first)
        self._passes_on = False
        self._fields[key] = value
        if key == "name" and self._arguments_key in self._fields:
            self._find_name()
        return (yield from skip_space(following or (yield)))

    def _find_name(self) -> None:
        if "name" in self._fields:
            self._recognise(parse(self._fields["name"]))

    def _settle(self) -> bool:
        written = self._fields.get(self._arguments_key, "{}")
        arguments = parse(written)
        if isinstance(arguments, str):
            written = arguments  # Some models write the object as a string.
            arguments = parse(written)
        if arguments is None and written == "null":
            written, arguments = "{}", {}
        if not isinstance(arguments, dict):
            return False
        try:
            self._find_name()
        except NotACallError:
            return False
        if not written.startswith("{") or written != self._fields.get(self._arguments_key):
            self._arguments = [written]
        return bool(self.name)
