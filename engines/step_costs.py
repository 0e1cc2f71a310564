"""What a drafted token costs on this machine: learnt from the steps that were taken.

A cost is a share of the step without drafts that was taken shortly before, so that a machine that
changes its speed (another process, a hot processor) does not look like drafts that became dear.
"""

from collections import deque
from statistics import median
from typing import Final

# Of a sequence's share of a step: what a drafted token is thought to cost before it is known.
_FIRST_GUESS: Final = 0.5
# After so many steps with drafts there is one without, to compare with (half a percent of the
# gain), and after so many without any the cost is to be found anew.
_PLAIN_EVERY: Final = 16
_FORGET_AFTER: Final = 256
# The middle one of the latest counts: any one may have been disturbed.
_NUM_LATEST: Final = 5


class StepCosts:
    """The costs of steps that only decode, by how many sequences are in them."""

    def __init__(self) -> None:
        self._costs: dict[int, _Costs] = {}

    def observe(self, num_sequences: int, num_drafts: int, seconds: float) -> None:
        """Take in how long a step took."""
        costs = self._costs.get(num_sequences)
        if costs is None:
            costs = self._costs[num_sequences] = _Costs(_FIRST_GUESS / num_sequences)
        if num_drafts:
            costs.observe_drafts(num_drafts, seconds)
        else:
            costs.observe_plain(seconds)

    def of_draft(self, num_sequences: int) -> float | None:
        """By which share one drafted token makes a step of so many sequences longer.

        None where a step without drafts has to be taken first.
        """
        costs = self._costs.get(num_sequences)
        return None if costs is None or costs.wants_plain else median(costs.shares)


class _Costs:
    """What is known of steps with one number of sequences."""

    def __init__(self, first_guess: float) -> None:
        self._first_guess = first_guess
        self._plain_s: deque[float] = deque(maxlen=_NUM_LATEST)
        self._num_plain = 0
        self._num_drafting = 0
        self.shares: deque[float] = deque([first_guess], maxlen=_NUM_LATEST)

    @property
    def wants_plain(self) -> bool:
        """Whether there is no step without drafts to compare with, or none that is recent."""
        return not self._plain_s or self._num_drafting >= _PLAIN_EVERY

    def observe_plain(self, seconds: float) -> None:
        self._plain_s.append(seconds)
        self._num_drafting = 0
        self._num_plain += 1
        if self._num_plain == _FORGET_AFTER:
            self.shares = deque([self._first_guess], maxlen=_NUM_LATEST)

    def observe_drafts(self, num_drafts: int, seconds: float) -> None:
        self._num_drafting += 1
        self._num_plain = 0
        if not self._plain_s:
            return
        share = (seconds / median(self._plain_s) - 1.0) / num_drafts
        if share > 1.0:  # a step for each would take less: it is the machine that became slower
            self._plain_s.clear()
        else:
            self.shares.append(max(share, 0.0))
