"""How model families write tool calls, and which family a chat template belongs to.

A family is data: what opens a block of calls, what stands between and after them, and how a call
names its arguments. One reader (`engines.tool_calls.reader`) and one grammar
(`engines.grammar_text`) serve them all; adding a family is adding an entry to `FORMATS`.
"""

from typing import Final

from msgspec import Struct


class CallFormat(Struct, frozen=True, kw_only=True):
    """One family's way. A block is: opening, prefix, calls with separators between, closing.

    An empty `separator`: a block holds one call. A call is a JSON object with the arguments under
    `arguments_key`; or, where there is an `arguments_marker`, the function's name, the marker, and
    the arguments, with an id behind `id_marker` before them if the model likes.
    `opens_bare`: the opening may be left out at the very start of an answer.
    `sign` is what its chat templates have and no family's after it in `FORMATS`.
    `template_id_length`: how long the ids are that the templates insist on; 0: any id will do.
    """

    name: str
    opening: str
    sign: str
    prefix: str = ""
    separator: str = ""
    closing: str = ""
    arguments_key: str = "arguments"
    opens_bare: bool = False
    template_id_length: int = 0
    arguments_marker: str = ""
    id_marker: str = ""

    @property
    def markers(self) -> tuple[str, ...]:
        """The markup that may be control tokens in the family's vocabularies."""
        every = (self.opening, self.closing, self.arguments_marker, self.id_marker)
        return tuple(filter(None, every))


# <tool_call>{"name": "f", "arguments": {}}</tool_call>, a block for each call.
HERMES: Final = CallFormat(
    name="hermes", opening="<tool_call>", closing="</tool_call>", sign="<tool_call>"
)
# {"name": "f", "parameters": {}}; {"name": "g", "parameters": {}}
LLAMA3: Final = CallFormat(
    name="llama3",
    opening="<|python_tag|>",
    separator=";",
    arguments_key="parameters",
    opens_bare=True,
    sign="<|python_tag|>",
)
# [TOOL_CALLS] [{"name": "f", "arguments": {}}, {"name": "g", "arguments": {}}]
MISTRAL: Final = CallFormat(
    name="mistral",
    opening="[TOOL_CALLS]",
    prefix="[",
    separator=",",
    closing="]",
    sign="[TOOL_CALLS]",
    template_id_length=9,
)
# [TOOL_CALLS]f[ARGS]{}[TOOL_CALLS]g[CALL_ID]123456789[ARGS]{}, a block for each call.
MISTRAL_NAMED: Final = CallFormat(
    name="mistral_named",
    opening="[TOOL_CALLS]",
    arguments_marker="[ARGS]",
    id_marker="[CALL_ID]",
    sign="[ARGS]",
    template_id_length=9,
)

FORMATS: Final = (HERMES, LLAMA3, MISTRAL_NAMED, MISTRAL)


def choose_format(chat_template: str) -> CallFormat:
    """The family of a template; Hermes, the most widespread, where it shows no family's sign."""
    return next((known for known in FORMATS if known.sign in chat_template), HERMES)
