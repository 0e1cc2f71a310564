"""How the bytes of tokens become text, token by token, without ever showing half a character."""

import codecs
from typing import Final

_Utf8Decoder: Final = codecs.getincrementaldecoder("utf-8")


class Detokenizer:
    """Incremental UTF-8: what all pushes return, joined, is the decoding of all pieces, joined.

    Bytes that can never become UTF-8 turn into U+FFFD (maximal subparts, Unicode 3.9); bytes that
    may still be completed are kept back.
    """

    def __init__(self) -> None:
        self._decoder = _Utf8Decoder(errors="replace")

    def push(self, piece: bytes) -> str:
        """The characters that `piece` completes."""
        return self._decoder.decode(piece)

    def finish(self) -> str:
        """What is left when no piece follows: nothing, since half a character is dropped."""
        self._decoder.reset()
        return ""
