"""What a chat template shows of its model: whether it renders tools, how the model writes calls,
and whether it thinks in the open. No setting: the template is what the model was trained with.
"""

import re
from typing import Final

from msgspec import Struct

from engines.reasoning import THINK_END, THINK_START
from engines.tool_calls.formats import HERMES, CallFormat, choose_format

_TOOLS: Final = re.compile(r"\btools\b")


class Dialect(Struct, frozen=True, kw_only=True):
    """How one model is offered tools and writes calls; `thinks`: it may write a think block.

    `renders_tools` and `renders_calls`: the template does it, for tools and for past calls.
    """

    renders_tools: bool = False
    renders_calls: bool = False
    call_format: CallFormat = HERMES
    thinks: bool = False

    @property
    def markers(self) -> tuple[str, ...]:
        """The markup that means something, also where it is a control token."""
        think = (THINK_START, THINK_END) if self.thinks else ()
        return (*self.call_format.markers, *think)


def read_dialect(chat_template: str | None) -> Dialect:
    """The dialect of a template. One that knows no tools is offered them in the Hermes way."""
    source = chat_template or ""
    renders_tools = _TOOLS.search(source) is not None
    return Dialect(
        renders_tools=renders_tools,
        renders_calls="tool_calls" in source,
        call_format=choose_format(source) if renders_tools else HERMES,
        thinks=THINK_START in source or THINK_END in source,
    )
