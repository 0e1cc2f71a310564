"""Finds denied words, all at once and in time that grows with the text alone.

Aho and Corasick, "Efficient string matching", 1975: one automaton for all words. Its state is the
longest end of the text so far that a denied word begins with, which is also exactly what must be
held back of an answer that is still being written.

A word counts only as a whole word. A star at its end (or start) also takes longer ones: `hisar*`
finds "Hisarlar". A phrase is found across any white space.
"""

from collections import deque
from collections.abc import Iterable
from typing import Final

from appliance.errors import ConfigError
from guardrails.normalise import EDGE, base_of, clusters_of, symbols_after, symbols_of

_ROOT: Final = 0


class DenyList:
    """The automaton over all denied words. Raises ConfigError for a word without a character."""

    def __init__(self, words: Iterable[str]) -> None:
        self._next: list[dict[str, int]] = [{}]
        self._fallback: list[int] = [_ROOT]
        self._bases: list[set[str]] = [set()]
        # How many symbols of the text a state remembers, and the length of the longest denied word
        # that ends there (0: none does).
        self.depth: list[int] = [0]
        self.match_length: list[int] = [0]
        for number, word in enumerate(words):
            self._add(_pattern(word, number))
        self._link()

    @property
    def is_empty(self) -> bool:
        """Nothing is denied."""
        return not self._next[_ROOT]

    def step(self, state: int, symbol: str) -> int:
        """The state after one more symbol."""
        following = self._next[state].get(symbol)
        while following is None and state != _ROOT:
            state = self._fallback[state]
            following = self._next[state].get(symbol)
        return following or _ROOT

    def expects_form_of(self, state: int, symbol: str) -> bool:
        """Whether this symbol, or one that marks can make of it, leads on towards a word."""
        base = base_of(symbol)
        while state != _ROOT and base not in self._bases[state]:
            state = self._fallback[state]
        return base in self._bases[state]

    def _add(self, pattern: str) -> None:
        state = _ROOT
        for symbol in pattern:
            following = self._next[state].get(symbol)
            if following is None:
                following = len(self._next)
                self._next[state][symbol] = following
                self._bases[state].add(base_of(symbol))
                self._next.append({})
                self._bases.append(set())
                self._fallback.append(_ROOT)
                self.depth.append(self.depth[state] + 1)
                self.match_length.append(0)
            state = following
        self.match_length[state] = len(pattern)

    def _link(self) -> None:
        """Breadth first, so that a fallback, which is shorter, is always linked already."""
        queue = deque(self._next[_ROOT].values())
        while queue:
            state = queue.popleft()
            fallback = self._fallback[state]
            self.match_length[state] = self.match_length[state] or self.match_length[fallback]
            for symbol, following in self._next[state].items():
                self._fallback[following] = self.step(fallback, symbol)
                queue.append(following)


class Search:
    """One text searched while it comes: gives back what no denied word can be part of any more.

    After a hit `start` and `end` tell where the word stands in the whole text; nothing from
    `start` on has been or will be given back.
    """

    def __init__(self, words: DenyList) -> None:
        self._words = words
        self._state = _ROOT
        self._previous = ""
        # The last cluster stays open while a mark that changes it may still follow.
        self._open = ""
        self._held = ""
        self._num_released = 0
        self._num_free = 0
        # For each symbol that the state remembers, how many characters of the text it ends.
        self._lengths: deque[int] = deque()
        self.is_hit = False
        self.start = 0
        self.end = 0

    def feed(self, piece: str) -> str:
        """Take the next piece; the text that is now free to go."""
        self._held += piece
        clusters = clusters_of(self._open + piece)
        self._open = clusters.pop() if clusters else ""
        self._take(clusters)
        if self._open and not self._must_wait():
            self._take([self._open])
            self._open = ""
        return self._release()

    def finish(self) -> str:
        """The text ends here; what is left of it, unless a denied word was."""
        self._take([self._open, ""] if self._open else [""])
        if not self.is_hit:
            self._num_free += sum(self._lengths)
        return self._release()

    def _must_wait(self) -> bool:
        symbols = symbols_after(self._previous, self._open)
        if not symbols:
            return False
        state = self._state
        for symbol in symbols[:-1]:
            state = self._words.step(state, symbol)
        return self._words.expects_form_of(state, symbols[-1])

    def _take(self, clusters: Iterable[str]) -> None:
        # The inner loop of the whole detector: names are local for speed.
        step, depth, match_length = self._words.step, self._words.depth, self._words.match_length
        lengths, state, previous = self._lengths, self._state, self._previous
        for cluster in clusters:
            if self.is_hit:
                return
            symbols = symbols_after(previous, cluster)
            if not symbols:
                self._take_nothing(len(cluster))
                continue
            previous = symbols[-1]
            last = len(symbols) - 1
            for number, symbol in enumerate(symbols):
                state = step(state, symbol)
                # The last symbol carries the length: who holds it holds the whole cluster.
                lengths.append(len(cluster) if number == last else 0)
                if match_length[state]:
                    self._hit(match_length[state])
                    break
                while len(lengths) > depth[state]:
                    self._num_free += lengths.popleft()
        self._state, self._previous = state, previous

    def _take_nothing(self, num_chars: int) -> None:
        if self._lengths:
            self._lengths[-1] += num_chars
        else:
            self._num_free += num_chars

    def _hit(self, num_symbols: int) -> None:
        while len(self._lengths) > num_symbols:
            self._num_free += self._lengths.popleft()
        self.is_hit = True
        self.start = self._num_released + self._num_free
        self.end = self.start + sum(self._lengths)

    def _release(self) -> str:
        free, self._held = self._held[: self._num_free], self._held[self._num_free :]
        self._num_released += self._num_free
        self._num_free = 0
        return free


def _pattern(word: str, number: int) -> str:
    """The symbols to look for; a star at either side takes the edge away there."""
    symbols = symbols_of(word.strip().strip("*").strip())
    if not symbols.strip(EDGE):
        raise ConfigError(
            "config.out_of_range",
            f"guardrails.denied_words (item {number}): a denied word needs a character to look for",
        )
    if word.strip().startswith("*"):
        symbols = symbols.removeprefix(EDGE)
    if word.strip().endswith("*"):
        symbols = symbols.removesuffix(EDGE)
    return symbols
