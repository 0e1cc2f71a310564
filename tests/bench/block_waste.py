"""How much KV memory that is given out holds no token: blocks, beside one reservation a sequence.

`python -m tests.bench.block_waste`: the real scheduler and the real block manager, without a model.
Requests as long as those of ShareGPT (mean prompt 161 tokens, mean answer 338, as the paper on
PagedAttention has them: Kwon et al. 2023) come in until memory is full; from then on, the share of
all tokens given out that are not computed, after each step. A contiguous reservation gives each
sequence the context at once, as its length is not known before.
"""

import math
from random import Random

from appliance.generation import FinishReason, SamplingParams
from engines.pytorch.kv_blocks import KvBlocks
from engines.runner import Sampled
from engines.scheduler import Scheduler
from engines.sequence import Sequence
from tests.bench.report import Result, at_most, run_alone

NUM_SLOTS = 128
CONTEXT_TOKENS = 2048
NUM_BLOCKS = 4096
NUM_REQUESTS = 512
MEAN_PROMPT_TOKENS = 161
MEAN_ANSWER_TOKENS = 338
# Of the logarithm: many are short, some are long.
SPREAD = 0.9
AIM = 0.04


def measure(num_rounds: int) -> list[Result]:
    """The mean over the steps of each round."""
    rounds = [wastes(Random(turn)) for turn in range(num_rounds)]  # noqa: S311
    return [
        Result(
            what="KV tokens given out that hold nothing",
            unit="share",
            ours=[blocks for blocks, _ in rounds],
            goal=at_most(AIM),
        ),
        Result(
            what="the same, of one contiguous reservation a sequence",
            unit="share",
            ours=[contiguous for _, contiguous in rounds],
        ),
    ]


def wastes(draw: Random) -> tuple[float, float]:
    """The mean waste of blocks, and of contiguous reservations for the same sequences."""
    kv = KvBlocks(NUM_BLOCKS, num_slots=NUM_SLOTS, context_tokens=CONTEXT_TOKENS)
    scheduler = Scheduler(kv, step_tokens=2048, max_running=NUM_SLOTS)
    for number in range(NUM_REQUESTS):
        scheduler.add(_sequence(number, draw))
    blocks: list[float] = []
    contiguous: list[float] = []
    while (plan := scheduler.plan(0.0)) is not None:
        answers = [Sampled(token_id=7) if chunk.samples else None for chunk in plan.chunks]
        for sequence, _ in scheduler.commit(plan, answers):
            if sequence.num_output_tokens == sequence.max_tokens:
                scheduler.finish(sequence, FinishReason.LENGTH)
        if scheduler.stats().num_waiting and scheduler.running:
            num_held = sum(sequence.num_computed for sequence in scheduler.running)
            blocks.append(1 - num_held / kv.used_tokens)
            contiguous.append(1 - num_held / (len(scheduler.running) * CONTEXT_TOKENS))
    return sum(blocks) / len(blocks), sum(contiguous) / len(contiguous)


def _sequence(number: int, draw: Random) -> Sequence:
    num_prompt_tokens = _length(draw, MEAN_PROMPT_TOKENS)
    return Sequence(
        request_id=str(number),
        index=0,
        num_prompt_tokens=num_prompt_tokens,
        token_ids=[number, *range(1000, 999 + num_prompt_tokens)],
        max_tokens=_length(draw, MEAN_ANSWER_TOKENS),
        sampling=SamplingParams(),
        seed=0,
        arrived_at=float(number),
    )


def _length(draw: Random, mean: int) -> int:
    """A log-normal length, at most half the context."""
    length = draw.lognormvariate(math.log(mean) - SPREAD**2 / 2, SPREAD)
    return min(max(4, round(length)), CONTEXT_TOKENS // 2)


if __name__ == "__main__":
    run_alone(measure)
