"""Text to tokens and back, with the tokenizers library."""

from collections.abc import Iterator
from functools import cached_property
from itertools import chain
from pathlib import Path

from engines.cuts import Cuts
from engines.pytorch.hf_config import read_hf_config
from engines.pytorch.hf_vocabulary import read_hf_vocabulary
from engines.pytorch.vocabulary import Vocabulary


class HfTokenizer:
    """One vocabulary. Safe to use from several threads."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self.vocabulary_size = len(vocabulary.pieces)
        self.chat_template = vocabulary.chat_template
        self.bos_text = vocabulary.bos_text
        self.eos_text = vocabulary.eos_text
        self.adds_bos = vocabulary.adds_bos
        self.closing_ids = vocabulary.closing_ids
        self._cuts = Cuts(vocabulary.defined)
        at_markers = vocabulary.defined | vocabulary.control
        self._cuts_at_markers = Cuts(at_markers if vocabulary.cuts_at_control else ())

    @cached_property
    def control_markers(self) -> tuple[str, ...]:
        """The texts of control tokens, longest first."""
        return tuple(sorted(self._vocabulary.control, key=lambda text: (-len(text), text)))

    def encode(self, text: str, *, markers: bool) -> list[int]:
        """Token ids of `text`, no BOS added; `markers`: texts of control tokens become them."""
        return list(chain.from_iterable(self.encode_parts(text, markers=markers)))

    def encode_parts(self, text: str, *, markers: bool) -> Iterator[list[int]]:
        """The same a part at a time."""
        cuts, tokenizer = self._cuts, self._vocabulary.plain
        if markers:
            cuts, tokenizer = self._cuts_at_markers, self._vocabulary.splitter
        for part in cuts.parts(text):
            yield tokenizer.encode(part, add_special_tokens=False).ids

    def piece(self, token_id: int) -> bytes:
        """The bytes of one token; empty for a control token."""
        return self._vocabulary.pieces[token_id]

    def ends_generation(self, token_id: int) -> bool:
        """Whether the model ends its answer with this token."""
        return token_id in self._vocabulary.ending_ids


def load_tokenizer(path: Path) -> HfTokenizer:
    """The tokenizer of a Hugging Face folder or a GGUF file, with as many tokens as it has logits.

    Raises CatalogueError: `model.tokenizer_broken`, `model.tokenizer_unknown`,
    `model.vocabulary_mismatch`, `model.config_invalid`, `model.file_broken`.
    """
    if path.is_dir():
        return HfTokenizer(read_hf_vocabulary(path, read_hf_config(path).vocabulary_size))
    from engines.pytorch.gguf_header import GgufHeader
    from engines.pytorch.gguf_vocabulary import read_gguf_vocabulary

    return HfTokenizer(read_gguf_vocabulary(GgufHeader(path)))
