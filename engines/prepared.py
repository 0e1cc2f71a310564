"""A prompt that is ready to be computed, and how the answers to it are to be held and read."""

from msgspec import Struct

from engines.grammar import Grammar
from engines.grammar_text import Calls
from engines.reasoning import Thinking
from engines.sequence import Withheld


class Prepared(Struct, frozen=True, kw_only=True):
    """Token ids, and what the defaults say: an answer is plain text, and any.

    `markup` are the control tokens whose text is to be read, where calls or thoughts are.
    """

    token_ids: list[int]
    thinking: Thinking = "never"
    calls: Calls | None = None
    markup: dict[int, str] = {}
    grammar: Grammar | None = None
    withheld: tuple[Withheld, ...] = ()

    @property
    def is_plain(self) -> bool:
        """An answer is content from its first character to its last."""
        return self.calls is None and self.thinking == "never"
