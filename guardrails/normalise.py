"""Which texts count as the same: a text is cut into clusters, and each cluster becomes symbols.

A cluster is a character with the marks that follow it. Compatibility forms (full width, ligatures,
circled letters) are unified by NFKC; upper and lower case are the same; so are the Turkish dotted
and dotless i, which case mapping in other languages confuses; characters that show nothing
(zero-width, soft hyphen, controls) do not count; any run of white space is one space. Between a
letter or digit and whatever is not joined to it stands the symbol EDGE, so that a whole word is an
ordinary run of symbols: EDGE c a t EDGE.
"""

import re
import unicodedata
from functools import lru_cache
from typing import Final

# No text yields it: NUL is a control character and does not count.
EDGE: Final = "\0"

# UAX #15 calls a text stream-safe when no more than 30 marks follow a character; composing longer
# runs would take time that grows with their square.
_MAX_MARKS: Final = 30
_DOTLESS_I: Final = "\u0131"
_DOT_ABOVE: Final = "\u0307"
_SHOWING_NOTHING: Final = frozenset("\u034f\u115f\u17b4\u17b5\u3164\uffa0")
# Beyond the basic plane only these are cut with the character before them: tags and variation
# selectors. Other marks there change no character of a living script.
_SELECTORS: Final = "\U000e0000-\U000e0fff"
# Vowels and finals of a Hangul syllable written in parts.
_JAMO: Final = "\u1160-\u11ff\ud7b0-\ud7fb"
# Scripts written without spaces between words: every character is a word of its own.
_UNSPACED: Final = (
    range(0x0E00, 0x0F00),  # Thai, Lao
    range(0x1000, 0x10A0),  # Myanmar
    range(0x1780, 0x1800),  # Khmer
    range(0x2E80, 0x3130),  # CJK radicals, kana, bopomofo
    range(0x3400, 0xA000),  # Han
    range(0xF900, 0xFB00),  # Han, compatibility
    range(0x20000, 0x40000),  # Han, supplementary planes
)
_OTHER, _WORD, _ALONE = 0, 1, 2


def clusters_of(text: str) -> list[str]:
    """The text cut into clusters; joined, they are the text again."""
    return list(text) if text.isascii() else _cluster_pattern().findall(text)


@lru_cache(maxsize=65536)
def symbols_after(previous: str, cluster: str) -> str:
    """The symbols that a cluster adds behind the symbol `previous` ("" at the start of a text).

    No symbols: the cluster does not count. The empty cluster stands for the end of the text.
    """
    values = _fold(cluster)
    if values == " " == previous or (cluster and not values):
        return ""
    return EDGE + values if _has_edge(previous, values[:1]) else values


def symbols_of(text: str) -> str:
    """All symbols of a whole text, in a row."""
    symbols = ""
    for cluster in (*clusters_of(text), ""):
        symbols += symbols_after(symbols[-1:], cluster)
    return symbols


@lru_cache(maxsize=65536)
def base_of(symbol: str) -> str:
    """The character that stays when all marks are taken off a symbol."""
    return unicodedata.normalize("NFD", symbol)[0]


@lru_cache(maxsize=1)
def _cluster_pattern() -> re.Pattern[str]:
    marks = "".join(
        re.escape(char)
        for char in map(chr, range(0x80, 0x10000))
        if _is_mark(char) or _shows_nothing(char)
    )
    return re.compile(rf"(?s:.)[{_JAMO}{_SELECTORS}{marks}]{{0,{_MAX_MARKS}}}")


def _fold(cluster: str) -> str:
    visible = "".join(char for char in cluster if not _shows_nothing(char))
    if visible.isspace():
        return " "
    folded = unicodedata.normalize("NFKC", visible).casefold().replace(_DOTLESS_I, "i")
    folded = unicodedata.normalize("NFKC", folded.replace("i" + _DOT_ABOVE, "i"))
    return "".join(" " if char.isspace() else char for char in folded)


def _has_edge(left: str, right: str) -> bool:
    left_kind, right_kind = _kind(left), _kind(right)
    return bool(left_kind or right_kind) and not left_kind == right_kind == _WORD


def _kind(symbol: str) -> int:
    if not symbol or symbol == EDGE:
        return _OTHER
    if any(ord(symbol) in block for block in _UNSPACED):
        return _ALONE
    return _WORD if symbol.isalnum() or _is_mark(symbol) else _OTHER


def _is_mark(char: str) -> bool:
    return unicodedata.category(char)[0] == "M"


def _shows_nothing(char: str) -> bool:
    if unicodedata.category(char) in {"Cc", "Cf", "Cs"}:
        return not char.isspace()
    is_selector = "\ufe00" <= char <= "\ufe0f" or "\U000e0000" <= char <= "\U000e0fff"
    return is_selector or char in _SHOWING_NOTHING
