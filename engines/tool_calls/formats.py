"""How model families write tool calls, and which family a chat template belongs to.

A family is data: what opens a block of calls, what stands between and after them, and what the
key of the arguments is called. One reader (`engines.tool_calls.reader`) and one grammar
(`engines.tool_calls.grammar`) serve them all; adding a family is adding an entry to `FORMATS`.
"""

from typing import Final

from msgspec import Struct


class CallFormat(Struct, frozen=True, kw_only=True):
    """One family's way. A block is: opening, prefix, calls with separators between, closing.

    An empty `separator`: a block holds one call. `opens_bare`: the opening may be left out at the
    very start of an answer. `sign` is what its chat templates have and no other family's.
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

    @property
    def markers(self) -> tuple[str, ...]:
        """The markup that may be control tokens in the family's vocabularies."""
        return tuple(filter(None, (self.opening, self.closing)))


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

FORMATS: Final = (HERMES, LLAMA3, MISTRAL)


def choose_format(chat_template: str) -> CallFormat:
    """The family of a template; Hermes, the most widespread, where it shows no family's sign."""
    return next((known for known in FORMATS if known.sign in chat_template), HERMES)
