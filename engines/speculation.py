"""Which sequences are drafted for in a step, and how far: as far as it makes the step pay.

A draft of k tokens makes the step longer (`engines.step_costs`) and brings as many tokens as the
model then agrees with (`engines.drafting` knows how likely that is). Where no draft pays, none is
made: at many sequences a step has no idle arithmetic left for guesses.
"""

from typing import Final

from msgspec.structs import replace

from engines.drafting import Drafter
from engines.runner import Chunk, KvManager, StepPlan
from engines.sequence import Sequence
from engines.step_costs import StepCosts

# With the token that is known these make 2, 4, 8 and 16 rows: shapes that kernels are made for, and
# that sequences side by side are likely to share.
_LENGTHS: Final = (1, 3, 7, 15)
# Drafts are to bring this much more than they cost: what they cost outside the step is not seen.
_MARGIN: Final = 1.05
_NUM_ROUNDS: Final = 3


class Speculation:
    """Drafts for the sequences of one runner, and what they cost.

    Where it `may_round` a drafted token in another way than one that comes alone, none is drafted
    for a request with a seed: whether drafts pay depends on who else is asking, and its answer must
    not.
    """

    def __init__(self, kv: KvManager, *, may_round: bool = False) -> None:
        self._kv = kv
        self._may_round = may_round
        self._costs = StepCosts()

    def add_drafts(self, decodes: list[Chunk], num_tokens: int) -> list[Chunk]:
        """The same chunks, with drafts of at most `num_tokens` in all where they should pay."""
        cost = self._costs.of_draft(len(decodes))
        if cost is None or cost * len(decodes) >= 1.0:
            return decodes
        drafters = [_follow(chunk.sequence) for chunk in decodes]
        chances = [
            drafter.chances(self._most_tokens(chunk.sequence))
            for drafter, chunk in zip(drafters, decodes, strict=True)
        ]
        drafted = []
        lengths = choose_lengths(chances, cost)
        for chunk, drafter, wanted in zip(decodes, drafters, lengths, strict=True):
            length = self._room_for(chunk.sequence, min(wanted, num_tokens))
            num_tokens -= length
            drafts = drafter.guess(chunk.sequence.token_ids, length) if length else ()
            drafted.append(replace(chunk, drafts=drafts) if drafts else chunk)
        return drafted

    def observe(self, plan: StepPlan, seconds: float) -> None:
        """Learn from a step that took so long; what also computed prompts tells nothing."""
        if all(chunk.length == 1 for chunk in plan.chunks):
            num_drafts = sum(len(chunk.drafts) for chunk in plan.chunks)
            self._costs.observe(len(plan.chunks), num_drafts, seconds)

    def _most_tokens(self, sequence: Sequence) -> int:
        """One token comes anyway."""
        if self._may_round and sequence.sampling.seed is not None:
            return 0
        return min(sequence.max_tokens - sequence.num_output_tokens - 1, _LENGTHS[-1])

    def _room_for(self, sequence: Sequence, length: int) -> int:
        """All of `length`, or nothing: a guess takes no place from anybody."""
        fits = length and self._kv.grow(sequence, len(sequence.token_ids) + length)
        return length if fits else 0


def choose_lengths(chances: list[list[float]], cost: float) -> list[int]:
    """How many tokens to draft for each sequence, so that the step brings most tokens per time.

    `chances` are those of each sequence's guesses to be right up to there; a drafted token makes
    the step longer by the share `cost`. The best ratio of two sums by Dinkelbach's method (1967):
    take what is worth more than its price, and set the price by the speed that this gives.
    """
    price = cost * len(chances) * _MARGIN
    lengths: list[int] = []
    for _ in range(_NUM_ROUNDS):
        lengths = [_best_length(each, price) for each in chances]
        gain = sum(sum(each[:length]) for each, length in zip(chances, lengths, strict=True))
        speed = (len(chances) + gain) / (1.0 + cost * sum(lengths))
        price = max(price, cost * speed)
    return lengths


def _best_length(chances: list[float], price: float) -> int:
    best, best_worth = 0, 0.0
    for length in _LENGTHS:
        if length > len(chances):
            break
        worth = sum(chances[:length]) - price * length
        if worth > best_worth:
            best, best_worth = length, worth
    return best


def _follow(sequence: Sequence) -> Drafter:
    """The sequence's drafter, at its latest token."""
    if sequence.drafter is None:
        sequence.drafter = Drafter(sequence.token_ids)
    else:
        sequence.drafter.follow(sequence.token_ids)
    return sequence.drafter
