"""How a text that copies from itself may go on: drafts from a sequence's own tokens.

Prompt lookup (Saxena 2023): what follows now is likely what followed the last time. Summaries,
edits of code, JSON and quotations copy long runs of their prompt. A draft costs nothing to make
and is never trusted: the model computes it, and only what it would have chosen anyway is taken.

Each guess is checked against what came, whether it was computed ahead or not, so that how often
guesses come true is known at no cost, for short and for long matches apart.
"""

from typing import Final

# Shorter matches come about by chance.
MIN_MATCH: Final = 3
# Earlier places of the same three tokens that are looked at, and how much of each.
_MAX_PLACES: Final = 16
_MAX_COMPARED: Final = 64

# How often a guess comes true before anything is known, by the length of what matches before it,
# in powers of two: 0, 1, 2 to 3, 4 to 7, and so on. Below MIN_MATCH: just after a token that
# differed, which the copy may have replaced.
_FIRST_RATES: Final = (0.2, 0.5, 0.6, 0.75, 0.88, 0.95, 0.98)
# A rate is the average of about this many guesses.
_MEMORY: Final = 16


class Passages:
    """Where in a growing list of tokens the same tokens stood before."""

    def __init__(self) -> None:
        self._last: dict[tuple[int, int, int], int] = {}
        self._earlier: list[int] = [0] * MIN_MATCH

    def update(self, token_ids: list[int]) -> None:
        """Take in what is new, up to the last token but one: nothing follows the last one yet."""
        last, earlier = self._last, self._earlier
        for end in range(len(earlier), len(token_ids)):
            gram = (token_ids[end - 3], token_ids[end - 2], token_ids[end - 1])
            earlier.append(last.get(gram, 0))
            last[gram] = end

    def longest(self, token_ids: list[int]) -> tuple[int, int]:
        """What matches most of the end of `token_ids`: the index after it and its length.

        Of equals the latest; (0, 0) where nothing does. Only the latest places are compared.
        """
        best, best_length = 0, 0
        place = self._last.get(tuple(token_ids[-MIN_MATCH:]), 0)  # type: ignore[arg-type]
        for _ in range(_MAX_PLACES):
            if not place:
                break
            length = _match_length(token_ids, place)
            if length > best_length:
                best, best_length = place, length
            place = self._earlier[place]
        return best, best_length


class Drafter:
    """Follows one sequence and guesses how it goes on.

    It stays with the passage that it found for as long as that comes true. After a token that
    differs it looks for another, or else takes it that one token of the passage was replaced.
    """

    def __init__(self, token_ids: list[int]) -> None:
        self._passages = Passages()
        self._rates = list(_FIRST_RATES)
        self._num_seen = len(token_ids)
        self._next = 0
        self._match = 0
        self._find(token_ids)

    def follow(self, token_ids: list[int]) -> None:
        """Take in the tokens that came since the last time; there is at least one."""
        for token_id in token_ids[self._num_seen :]:
            if self._next:
                self._check(token_ids[self._next] == token_id)
        self._num_seen = len(token_ids)
        self._find(token_ids)

    def guess(self, token_ids: list[int], num_tokens: int) -> tuple[int, ...]:
        """So many tokens; a passage that reaches the end goes on with the guess itself."""
        draft = token_ids[self._next : self._next + num_tokens]
        while len(draft) < num_tokens:
            draft += draft[: num_tokens - len(draft)]
        return tuple(draft)

    def chances(self, num_tokens: int) -> list[float]:
        """For each of the next tokens how likely it is that the guess is right up to there."""
        if not self._next:
            return []
        chance = 1.0
        chances = []
        for match in range(self._match, self._match + num_tokens):
            chance *= self._rates[_level(match)]
            chances.append(chance)
        return chances

    def _check(self, came_true: bool) -> None:
        level = _level(self._match)
        self._rates[level] += (came_true - self._rates[level]) / _MEMORY
        self._next += 1
        if came_true:
            self._match += 1
        elif self._match:
            self._match = 0
        else:
            self._next = 0

    def _find(self, token_ids: list[int]) -> None:
        self._passages.update(token_ids)
        if self._match < MIN_MATCH:
            place, length = self._passages.longest(token_ids)
            if place:
                self._next, self._match = place, length


def _match_length(token_ids: list[int], place: int) -> int:
    """How many tokens before `place` are those at the end."""
    end = len(token_ids)
    length = 0
    while length < min(place, _MAX_COMPARED) and (
        token_ids[place - 1 - length] == token_ids[end - 1 - length]
    ):
        length += 1
    return length


def _level(match: int) -> int:
    return min(match.bit_length(), len(_FIRST_RATES) - 1)
