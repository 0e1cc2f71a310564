"""The vocabulary in a GGUF file, with the ids that llama.cpp gives a text."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from tokenizers import AddedToken, Regex, Tokenizer, normalizers, pre_tokenizers
from tokenizers.models import BPE

from appliance.errors import CatalogueError
from engines.pytorch.gguf_header import GgufHeader
from engines.pytorch.pre_tokenizers import PRE_TOKENIZERS, PreTokenizer
from engines.pytorch.vocabulary import (
    Vocabulary,
    byte_level_piece,
    make_plain,
    sentencepiece_piece,
)

_NORMAL: Final = 1
_UNKNOWN: Final = 2
_CONTROL: Final = 3
_USER_DEFINED: Final = 4
_SPACE: Final = "▁"

# Files seldom say which tokens end an answer; llama.cpp goes by these texts, and so do we.
_ENDINGS: Final = frozenset(
    {
        "<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>",
        "<end_of_turn>", "<|endoftext|>", "</s>", "<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]",
        "[EOS]", "<|end_of_text|>", "<end_of_utterance>", "<eos>", "<turn|>", "<|tool_response>",
        "<\uff5cend▁of▁sentence\uff5c>", "[e~[",
    }
)  # fmt: skip
# What separates files and fills gaps ends an answer, too.
_FILE_ENDINGS: Final = frozenset(
    {
        "<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]", "<|fim_repo|>", "<|repo_name|>",
        "<fim-repo>", "<REPO>", "<reponame>", "<|file_sep|>",
    }
)  # fmt: skip
_ENDING_KEYS: Final = ("eos", "eot", "eom", "fim_pad", "fim_rep", "fim_sep")


class _Tokens:
    """The tokens by id, and what kind each is of."""

    def __init__(self, header: GgufHeader) -> None:
        self._values = header.values
        self.texts: list[str] = self.value("tokens", [])
        self.scores: list[float] = self.value("scores", [])
        kinds = self.value("token_type", []) or [_NORMAL] * len(self.texts)
        if not self.texts or len(kinds) != len(self.texts):
            message = f"{header.file}: tokenizer.ggml.tokens is missing or as long as no other"
            raise CatalogueError("model.tokenizer_broken", message)
        self.kinds = [
            _CONTROL if text in _ENDINGS or kind == _UNKNOWN else kind
            for text, kind in zip(self.texts, kinds, strict=True)
        ]

    @property
    def chat_template(self) -> str | None:
        """The template in the file; None where it has none."""
        template = self._values.get("tokenizer.chat_template")
        return template if isinstance(template, str) else None

    def value(self, key: str, default: Any) -> Any:  # noqa: ANN401
        """Something that the header says of the tokenizer."""
        return self._values.get(f"tokenizer.ggml.{key}", default)

    def of_kind(self, kind: int) -> list[str]:
        """The texts of all tokens of a kind."""
        return [t for t, found in zip(self.texts, self.kinds, strict=True) if found == kind]

    def special(self, key: str, default: int = -1) -> int:
        """The id of a token by its role; -1 where there is none."""
        found: int = self.value(f"{key}_token_id", default)
        return found if 0 <= found < len(self.texts) else -1

    def text(self, token_id: int) -> str:
        """A token's text; empty for none."""
        return self.texts[token_id] if token_id >= 0 else ""


def read_gguf_vocabulary(header: GgufHeader) -> Vocabulary:
    """The vocabulary of a file.

    Raises CatalogueError `model.tokenizer_broken` or `model.tokenizer_unknown`.
    """
    tokens = _Tokens(header)
    kind = tokens.value("model", "")
    if kind == "gpt2":
        return _byte_level(header, tokens)
    if kind == "llama":
        return _sentencepiece(header, tokens)
    raise CatalogueError(
        "model.tokenizer_unknown",
        f"{header.file}: this engine does not know tokenizers of {kind!r}",
    )


def _byte_level(header: GgufHeader, tokens: _Tokens) -> Vocabulary:
    """Words split by expressions, then pairs of their bytes merged (GPT-2)."""
    name = tokens.value("pre", "")
    split = PRE_TOKENIZERS.get(name)
    if split is None:
        raise CatalogueError(
            "model.tokenizer_unknown",
            f"{header.file}: this engine does not know the pre-tokenizer {name!r}",
            hint=f"it knows {', '.join(filter(None, PRE_TOKENIZERS))}",
        )
    ids = {text: number for number, text in enumerate(tokens.texts)}
    merges = (_pair(merge) for merge in tokens.value("merges", []))
    known = [(a, b) for a, b in merges if a in ids and b in ids and a + b in ids]
    splitter = Tokenizer(BPE(vocab=ids, merges=known, ignore_merges=split.ignores_merges))
    splitter.pre_tokenizer = _pre_tokenizer(split)
    pieces = (_piece(tokens, number, byte_level_piece) for number in range(len(tokens.texts)))
    return _vocabulary(tokens, splitter, pieces, adds_bos=split.adds_bos, specials=(11, 11))


def _pair(merge: str) -> tuple[str, str]:
    """The two halves of a merge; the first may itself begin with the space between them."""
    at = merge.find(" ", 1)
    return merge[:at], merge[at + 1 :]


def _pre_tokenizer(split: PreTokenizer) -> pre_tokenizers.PreTokenizer:
    parts = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in split.patterns]
    to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return pre_tokenizers.Sequence([*parts, to_bytes])


def _sentencepiece(header: GgufHeader, tokens: _Tokens) -> Vocabulary:
    """Characters of a whole text merged, best scores first; what is no token becomes bytes."""
    if len(tokens.scores) != len(tokens.texts):
        message = f"{header.file}: tokenizer.ggml.scores is not as long as the vocabulary"
        raise CatalogueError("model.tokenizer_broken", message)
    ids = {text: number for number, text in enumerate(tokens.texts)}
    unknown = tokens.text(tokens.special("unknown", 0))
    model = BPE(
        vocab=ids,
        merges=list(_merges(tokens, ids)),
        unk_token=unknown,
        fuse_unk=True,
        byte_fallback=True,
    )
    splitter = Tokenizer(model)
    begins = [normalizers.Prepend(_SPACE)] if tokens.value("add_space_prefix", True) else []
    splitter.normalizer = normalizers.Sequence([*begins, normalizers.Replace(" ", _SPACE)])
    pieces = (_piece(tokens, number, sentencepiece_piece) for number in range(len(tokens.texts)))
    return _vocabulary(tokens, splitter, pieces, adds_bos=True, specials=(1, 2))


def _merges(tokens: _Tokens, ids: dict[str, int]) -> Iterator[tuple[str, str]]:
    """Every two tokens that make a third, the best first. None makes a control token."""
    made = [number for number, kind in enumerate(tokens.kinds) if kind in (_NORMAL, _USER_DEFINED)]
    for number in sorted(made, key=lambda number: -tokens.scores[number]):
        text = tokens.texts[number]
        halves = ((text[:at], text[at:]) for at in range(1, len(text)))
        yield from sorted(
            (pair for pair in halves if pair[0] in ids and pair[1] in ids),
            key=lambda pair: (ids[pair[0]], ids[pair[1]]),
        )


def _piece(tokens: _Tokens, number: int, to_bytes: Callable[[str], bytes]) -> bytes:
    text, kind = tokens.texts[number], tokens.kinds[number]
    if kind == _CONTROL:
        return b""
    return text.encode() if kind == _USER_DEFINED else to_bytes(text)


def _vocabulary(
    tokens: _Tokens,
    splitter: Tokenizer,
    pieces: Iterable[bytes],
    *,
    adds_bos: bool,
    specials: tuple[int, int],
) -> Vocabulary:
    """`specials` are the ids of BOS and EOS where the file names none."""
    control, defined = tokens.of_kind(_CONTROL), tokens.of_kind(_USER_DEFINED)
    splitter.add_special_tokens([AddedToken(t, special=True, normalized=False) for t in control])
    splitter.add_tokens([AddedToken(t, normalized=False) for t in defined])
    bos, eos = (
        tokens.special(key, default) for key, default in zip(("bos", "eos"), specials, strict=True)
    )
    bos_text = tokens.text(bos)
    endings = {eos, *(tokens.special(key) for key in _ENDING_KEYS)} - {-1}
    named = _ENDINGS | _FILE_ENDINGS
    return Vocabulary(
        splitter=splitter,
        plain=make_plain(splitter),
        pieces=tuple(pieces),
        control=frozenset(control),
        defined=frozenset(defined),
        ending_ids=frozenset(endings | {n for n, text in enumerate(tokens.texts) if text in named}),
        adds_bos=bool(bos_text) and bool(tokens.value("add_bos_token", adds_bos)),
        closing_ids=(eos,) if eos >= 0 and tokens.value("add_eos_token", False) else (),
        bos_text=bos_text,
        eos_text=tokens.text(eos),
        chat_template=tokens.chat_template,
    )
