"""Which word was meant: the nearest right one for a mistyped name."""

from collections.abc import Iterable
from difflib import SequenceMatcher
from typing import Final

# Below this likeness a guess confuses more than it helps ("port" and "host" are 0.5 alike).
MIN_LIKENESS: Final = 0.6


def likeness(one: str, other: str) -> float:
    """How alike two names are, 0 to 1; upper and lower case are the same.

    An abbreviation by initials ("tpm" for "tokens_per_minute") counts as nearly the same.
    """
    one, other = one.casefold(), other.casefold()
    if len(one) > 1 and one in {_initials(other), _initials(other.rpartition(".")[2])}:
        return 0.95
    return SequenceMatcher(None, one, other).ratio()


def nearest(word: str, candidates: Iterable[str]) -> str | None:
    """The candidate most like `word`, or None when none is like it."""
    best = max(candidates, key=lambda candidate: likeness(word, candidate), default=None)
    return best if best is not None and likeness(word, best) >= MIN_LIKENESS else None


def _initials(name: str) -> str:
    parts = name.split("_")
    return "".join(part[:1] for part in parts) if len(parts) > 1 else ""
