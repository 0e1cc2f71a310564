"""What has to be known of a whole vocabulary: read once per model, when first needed.

Reading every piece of 50,000 tokens takes about a tenth of a second, so it is done in whichever
intake thread needs it first, and never by the step loop.
"""

import threading
from functools import cached_property
from typing import TYPE_CHECKING, Final

from engines.runner import Tokenizer

if TYPE_CHECKING:
    from llguidance import LLTokenizer

# llguidance's sign for a token that no text can spell.
_CONTROL_PREFIX: Final = b"\xff"
_LONGEST_PIECE_BYTES: Final = 64


class Vocabulary:
    """The tokens of one model. Safe to use from several threads."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self._lock = threading.Lock()

    @cached_property
    def control_ids(self) -> dict[str, int]:
        """The control tokens by their texts."""
        encoded = {
            marker: self.tokenizer.encode(marker, markers=True)
            for marker in self.tokenizer.control_markers
        }
        return {marker: ids[0] for marker, ids in encoded.items() if len(ids) == 1}

    @cached_property
    def ending_ids(self) -> tuple[int, ...]:
        """The tokens that say: the answer is complete."""
        every_id = range(self.tokenizer.vocabulary_size)
        return tuple(filter(self.tokenizer.ends_generation, every_id))

    def for_grammars(self) -> "LLTokenizer":
        """The vocabulary as llguidance wants it."""
        with self._lock:
            return self._for_grammars

    @cached_property
    def _for_grammars(self) -> "LLTokenizer":
        import llguidance

        pieces = _Pieces(self)
        endings = list(self.ending_ids) or [pieces.eos_token_id]
        return llguidance.LLTokenizer(llguidance.TokenizerWrapper(pieces), eos_token=endings)


class _Pieces:
    """A vocabulary with the names by which llguidance.TokenizerWrapper reads it."""

    bos_token_id = None

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._tokenizer = vocabulary.tokenizer
        control = {token_id: text for text, token_id in vocabulary.control_ids.items()}
        self.eos_token_id = next(iter(vocabulary.ending_ids), 0)
        self.tokens = [
            self._tokenizer.piece(token_id) or _CONTROL_PREFIX + _name(token_id, control)
            for token_id in range(self._tokenizer.vocabulary_size)
        ]
        self.special_token_ids = [
            token_id for token_id, piece in enumerate(self.tokens) if piece[:1] == _CONTROL_PREFIX
        ]
        self._ids = {piece: token_id for token_id, piece in enumerate(self.tokens)}

    def __call__(self, text: bytes) -> list[int]:
        """How the model would write `text`: what a grammar forces shall look natural to it.

        Some tokenizers put a space before any text; then the longest pieces are taken.
        """
        token_ids = self._tokenizer.encode(text.decode(errors="replace"), markers=False)
        if b"".join(map(self._tokenizer.piece, token_ids)) == text:
            return token_ids
        return self._longest_pieces(text)

    def _longest_pieces(self, text: bytes) -> list[int]:
        token_ids = []
        start = 0
        while start < len(text):
            for end in range(min(len(text), start + _LONGEST_PIECE_BYTES), start, -1):
                token_id = self._ids.get(text[start:end])
                if token_id is not None:
                    token_ids.append(token_id)
                    start = end
                    break
            else:
                return token_ids
        return token_ids


def _name(token_id: int, control: dict[int, str]) -> bytes:
    return control.get(token_id, f"<token {token_id}>").encode()
