"""What a drafted token costs on this machine: learnt from the steps that were taken.

A cost is a share of the steps without drafts that were taken shortly before, so that a machine that
changes its speed (another process, a hot processor) does not look like drafts that became dear.
"""

import math
from typing import Final

# What a drafted token is thought to cost before it is known, of a sequence's share of a step, alone
# and beside others; and how many tokens have to speak against that to count as much.
_FIRST_GUESS: Final = 0.5
_FIRST_GUESS_BESIDE: Final = 0.8
_GUESS_TOKENS: Final = 4
# However it seems, nothing is for free.
_LEAST: Final = 0.05
# After so many steps with drafts there is one without, to compare with (half a percent of the
# gain), and after so many without any the cost is to be found anew.
_PLAIN_EVERY: Final = 16
_FORGET_AFTER: Final = 256
# The averages are of about this many steps, and one that took longer than so many times the
# average counts as no longer than that: something else took the processor.
_MEMORY: Final = 8
_MOST: Final = 2.0


class StepCosts:
    """The costs of steps that only decode, by how many sequences are in them."""

    def __init__(self) -> None:
        self._costs: dict[int, _Costs] = {}

    def observe(self, num_sequences: int, num_drafts: int, seconds: float) -> None:
        """Take in how long a step took."""
        costs = self._costs.get(num_sequences)
        if costs is None:
            costs = self._costs[num_sequences] = _Costs(num_sequences)
        if num_drafts:
            costs.observe_drafts(num_drafts, seconds)
        else:
            costs.observe_plain(seconds)

    def of_draft(self, num_sequences: int) -> float | None:
        """By which share one drafted token makes a step of so many sequences longer.

        None where a step without drafts has to be taken first.
        """
        costs = self._costs.get(num_sequences)
        return None if costs is None or costs.wants_plain else costs.of_draft


class _Costs:
    """What is known of steps with one number of sequences."""

    def __init__(self, num_sequences: int) -> None:
        guess = _FIRST_GUESS if num_sequences == 1 else _FIRST_GUESS_BESIDE
        self._guess = guess / num_sequences
        self._least = _LEAST / num_sequences
        self._plain_s = 0.0
        self._num_seen = 0
        self._num_plain = 0
        self._num_drafting = 0
        self._excess = 0.0
        self._num_drafts = 0.0
        self._num_steps = 0.0
        self._spread = 0.0

    @property
    def wants_plain(self) -> bool:
        """Whether steps without drafts to compare with are too few, or too long ago."""
        return self._num_seen < _MEMORY or self._num_drafting >= _PLAIN_EVERY

    @property
    def of_draft(self) -> float:
        """The first guess, and what was seen since, weighed against each other."""
        num_tokens = _GUESS_TOKENS + self._num_drafts
        seen = (_GUESS_TOKENS * self._guess + self._excess) / num_tokens
        return max(seen, self._least) + self._spread * math.sqrt(self._num_steps) / num_tokens

    def observe_plain(self, seconds: float) -> None:
        self._num_seen += 1
        weight = 1.0 / min(self._num_seen, _MEMORY)
        if self._num_seen > 1:
            seconds = min(seconds, _MOST * self._plain_s)
            self._spread += (abs(seconds / self._plain_s - 1.0) - self._spread) * weight
        self._plain_s += (seconds - self._plain_s) * weight
        self._num_drafting = 0
        self._num_plain += 1
        if self._num_plain == _FORGET_AFTER:
            self._excess = self._num_drafts = self._num_steps = 0.0

    def observe_drafts(self, num_drafts: int, seconds: float) -> None:
        self._num_drafting += 1
        self._num_plain = 0
        if not self._num_seen:
            return
        excess = seconds / self._plain_s - 1.0
        if excess > num_drafts:  # a step for each would take less: the machine became slower
            self._num_drafting = _PLAIN_EVERY
            return
        kept = 1.0 - 1.0 / _MEMORY
        self._excess = kept * self._excess + excess
        self._num_drafts = kept * self._num_drafts + num_drafts
        self._num_steps = kept * self._num_steps + 1.0
