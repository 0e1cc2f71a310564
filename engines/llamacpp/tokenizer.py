"""Text to tokens and back, as libllama's vocabulary of a model has it."""

import ctypes
from collections.abc import Iterator
from functools import cached_property
from itertools import chain
from typing import Any, Final, cast

import llama_cpp.llama_cpp as llama
import numpy as np

from engines.cuts import Cuts

_UNKNOWN_OR_CONTROL: Final = llama.LLAMA_TOKEN_ATTR_UNKNOWN | llama.LLAMA_TOKEN_ATTR_CONTROL
_USER_DEFINED: Final = llama.LLAMA_TOKEN_ATTR_USER_DEFINED
_LONGEST_PIECE_BYTES: Final = 4096
# Text becomes at most a token a byte, but for what a tokenizer puts before it.
_SPARE_TOKENS: Final = 16


class LlamaTokenizer:
    """The vocabulary of one loaded model, which must outlive this object."""

    def __init__(self, model: Any) -> None:  # noqa: ANN401
        self._model = model
        self._vocab = llama.llama_model_get_vocab(model)
        self.vocabulary_size: int = llama.llama_vocab_n_tokens(self._vocab)
        self._pieces: list[bytes | None] = [None] * self.vocabulary_size

    @cached_property
    def chat_template(self) -> str | None:
        """The template in the model's file; None where there is none."""
        template = llama.llama_model_chat_template(self._model, None)
        return template.decode(errors="replace") if template else None

    @cached_property
    def bos_text(self) -> str:
        """The text of the token a prompt starts with; empty where the model has none."""
        return self._text(llama.llama_vocab_bos(self._vocab))

    @cached_property
    def eos_text(self) -> str:
        """The text of the token that ends an answer; empty where the model has none."""
        return self._text(llama.llama_vocab_eos(self._vocab))

    @cached_property
    def adds_bos(self) -> bool:
        """Whether the model was trained with BOS before every prompt."""
        return bool(self.bos_text and llama.llama_vocab_get_add_bos(self._vocab))

    @cached_property
    def closing_ids(self) -> tuple[int, ...]:
        """What libllama puts after a whole text: the end token of models trained so, or SEP."""
        around = self._tokenize(b"", adds_special=True, markers=False)
        return tuple(around[1:] if self.adds_bos else around)

    @cached_property
    def control_markers(self) -> tuple[str, ...]:
        """The texts of control tokens, longest first."""
        texts = self._texts_with(_UNKNOWN_OR_CONTROL)
        return tuple(sorted(texts, key=lambda text: (-len(text), text)))

    def encode(self, text: str, *, markers: bool) -> list[int]:
        """Token ids of `text`; NUL characters are characters like others. Thread-safe."""
        return list(chain.from_iterable(self.encode_parts(text, markers=markers)))

    def encode_parts(self, text: str, *, markers: bool) -> Iterator[list[int]]:
        """The same a part at a time. Thread-safe."""
        cuts = self._cuts_at_markers if markers else self._cuts
        for part in cuts.parts(text):
            yield self._tokenize(part.encode(), adds_special=False, markers=markers)

    @cached_property
    def _cuts(self) -> Cuts:
        return Cuts(self._texts_with(_USER_DEFINED, without=_UNKNOWN_OR_CONTROL))

    @cached_property
    def _cuts_at_markers(self) -> Cuts:
        # A token that takes away the space before it (only masks do) must not lose sight of it.
        may_cut = not self._texts_with(llama.LLAMA_TOKEN_ATTR_LSTRIP)
        return Cuts(self._texts_with(_USER_DEFINED | _UNKNOWN_OR_CONTROL) if may_cut else ())

    def _texts_with(self, attributes: int, *, without: int = 0) -> set[str]:
        """The texts of the tokens that have any of these attributes, and none of the others."""
        texts = set()
        for token_id in range(self.vocabulary_size):
            found = llama.llama_vocab_get_attr(self._vocab, token_id)
            if found & attributes and not found & without:
                texts.add(self._text(token_id))
        return texts - {""}

    def _tokenize(self, data: bytes, *, adds_special: bool, markers: bool) -> list[int]:
        room = len(data) + _SPARE_TOKENS
        while True:
            token_ids = np.empty(room, np.int32)
            pointer = token_ids.ctypes.data_as(ctypes.POINTER(llama.llama_token))
            count = llama.llama_tokenize(
                self._vocab, data, len(data), pointer, room, adds_special, markers
            )
            if count >= 0:
                return cast("list[int]", token_ids[:count].tolist())
            room = -count

    def piece(self, token_id: int) -> bytes:
        """The bytes of one token; empty for a control token. Thread-safe."""
        piece = self._pieces[token_id]
        if piece is None:
            piece = self._pieces[token_id] = self._read_piece(token_id)
        return piece

    def ends_generation(self, token_id: int) -> bool:
        """Whether the model ends its answer with this token."""
        return bool(llama.llama_vocab_is_eog(self._vocab, token_id))

    def _read_piece(self, token_id: int) -> bytes:
        buffer = ctypes.create_string_buffer(_LONGEST_PIECE_BYTES)
        length = llama.llama_token_to_piece(
            self._vocab, token_id, buffer, _LONGEST_PIECE_BYTES, 0, False
        )
        return buffer.raw[: max(0, length)]

    def _text(self, token_id: int) -> str:
        if token_id < 0:
            return ""
        text = llama.llama_vocab_get_text(self._vocab, token_id)
        return text.decode(errors="replace") if text else ""
