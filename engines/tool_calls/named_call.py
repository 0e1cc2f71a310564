"""One tool call as a name and its arguments, `f[ARGS]{...}`, with an id of the model's own between
them or not.
"""

from typing import Final

from engines.tool_calls.call_text import CallText, Parser, Value, expect, parse, skip_space

# A name of 64 characters, markers, an id, and room.
_LONGEST_HEAD: Final = 256


class NamedCall(CallText):
    """A call in which `arguments_marker` stands before the arguments, `id_marker` before an id.

    The id is left out: calls are given ids of ours.
    """

    def __init__(self, names: frozenset[str], arguments_marker: str, id_marker: str) -> None:
        self._arguments_marker = arguments_marker
        self._id_marker = id_marker
        self._object = ""
        super().__init__(names)

    def _read(self) -> Parser:
        name, _, _ = (yield from self._up_to_arguments()).partition(self._id_marker)
        first = yield from skip_space((yield))
        expect(first == "{")
        self._recognise(name.strip())
        self._passes_on = True
        self._object = yield from self._nested(first)

    def _up_to_arguments(self) -> Value:
        head = ""
        while not head.endswith(self._arguments_marker):
            head += yield
            expect(len(head) <= _LONGEST_HEAD and head[-1] != "{")
        return head.removesuffix(self._arguments_marker)

    def _settle(self) -> bool:
        return isinstance(parse(self._object), dict)
