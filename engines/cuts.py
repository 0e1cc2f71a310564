"""Where a text may be cut so that its parts have the tokens that the whole would have.

libllama looks for control and user-defined tokens before it tokenises what lies between them, and
its time for that grows with the square of how many it finds: 68 s for a conversation of 40,000
turns. In parts of a few dozen it is linear.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from engines.any_of import any_of

_TOKENS_A_PART: Final = 64


class Cuts:
    """The safe places of one vocabulary, whose special tokens have these texts.

    Longer tokens are found first, wherever they are, so a place is safe only before a token that
    can overlap no other: nothing begins inside of it, and nothing reaches into it.
    """

    def __init__(self, specials: Iterable[str]) -> None:
        texts = {text for text in specials if text}
        heads = {text[0] for text in texts}
        inner = {character for text in texts for character in text[1:]}
        self._safe = any_of(
            text for text in texts if text[0] not in inner and heads.isdisjoint(text[1:])
        )

    def parts(self, text: str) -> Iterator[str]:
        """The text in parts, each but the first beginning with a special token."""
        start = 0
        for number, found in enumerate(self._safe.finditer(text), start=1):
            if number % _TOKENS_A_PART == 0:
                yield text[start : found.start()]
                start = found.start()
        yield text[start:]
