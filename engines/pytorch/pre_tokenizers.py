"""How a text is split before pairs are merged, by the name that a GGUF file gives.

A GGUF file holds a vocabulary's merges, but of the splitting only a name. The expressions are those
that the models were trained with, in the form in which llama.cpp applies them (`llama-vocab.cpp`):
one after the other, each splitting what the one before has left.
"""

from typing import Final

from msgspec import Struct


class PreTokenizer(Struct, frozen=True, kw_only=True):
    """`patterns` each split a text at their matches, which stay parts of their own.

    `ignores_merges`: a part that is a token as a whole is that token, however its pairs merge.
    """

    patterns: tuple[str, ...]
    ignores_merges: bool = False
    adds_bos: bool = False


_CONTRACTIONS: Final = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
_GPT2: Final = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"
_WORDS: Final = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_REST: Final = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_LOWER: Final = r"((?=[\p{L}])([^a-z]))"
_UPPER: Final = r"((?=[\p{L}])([^A-Z]))"
_BEFORE_WORD: Final = r"[^\r\n\p{L}\p{N}]?"
_TEKKEN: Final = (
    rf"{_BEFORE_WORD}{_LOWER}*{_UPPER}+|{_BEFORE_WORD}{_LOWER}+{_UPPER}*|\p{{N}}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_DEEPSEEK: Final = (
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

_default: Final = PreTokenizer(
    patterns=(r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]")
)
_gpt2: Final = PreTokenizer(patterns=(_GPT2,))
_digit_by_digit: Final = PreTokenizer(patterns=(r"\p{N}", _GPT2))
_llama3: Final = PreTokenizer(
    patterns=(rf"{_CONTRACTIONS}|{_WORDS}|\p{{N}}{{1,3}}|{_REST}",),
    ignores_merges=True,
    adds_bos=True,
)
_qwen2: Final = PreTokenizer(patterns=(rf"{_CONTRACTIONS}|{_WORDS}|\p{{N}}|{_REST}",))
_tekken: Final = PreTokenizer(patterns=(_TEKKEN,), ignores_merges=True, adds_bos=True)
_deepseek_coder: Final = PreTokenizer(
    patterns=(
        r"[\r\n]",
        r"\s?\p{L}+",
        r"\s?\p{P}+",
        "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+",
        r"\p{N}",
    )
)
_deepseek3: Final = PreTokenizer(
    patterns=(r"\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+", _DEEPSEEK)
)

# An old file without a name was split as `default` says.
PRE_TOKENIZERS: Final[dict[str, PreTokenizer]] = {
    "": _default,
    "default": _default,
    **dict.fromkeys(("gpt-2", "phi-2", "olmo", "mpt", "jais", "exaone4", "mellum"), _gpt2),
    **dict.fromkeys(
        ("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"),
        _digit_by_digit,
    ),
    **dict.fromkeys(
        ("llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "lfm2"), _llama3
    ),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen", "stablelm2"), _qwen2),
    "tekken": _tekken,
    "deepseek-coder": _deepseek_coder,
    "deepseek-v3": _deepseek3,
}
