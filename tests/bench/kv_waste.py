"""How much KV memory that is given out holds no token.

`python -m tests.bench.kv_waste`: the real scheduler and the real bookkeeping of llama.cpp's cells,
without a model. Requests of many lengths come in until every slot was used; from then on, the share
of all cells that hold neither a running nor a remembered token, after each step.
"""

from random import Random

from appliance.generation import FinishReason, SamplingParams
from engines.llamacpp.kv_cells import KvCells
from engines.runner import Sampled
from engines.scheduler import Scheduler
from engines.sequence import Sequence
from tests.bench.report import Result, at_most, run_alone

NUM_SLOTS = 32
CONTEXT_TOKENS = 512
NUM_REQUESTS = 512
PROMPT_TOKENS = (16, 400)
ANSWER_TOKENS = (16, 100)
AIM = 0.04


def measure(num_rounds: int) -> list[Result]:
    """The worst moment of each round."""
    return [
        Result(
            what="KV cells without a token, at worst",
            unit="share",
            ours=[max(wastes(Random(turn))) for turn in range(num_rounds)],  # noqa: S311
            goal=at_most(AIM),
        )
    ]


def wastes(draw: Random) -> list[float]:
    """The waste after each step in which every slot has been used and there is more to do."""
    kv = KvCells(NUM_SLOTS, CONTEXT_TOKENS, shares_prefixes=True)
    scheduler = Scheduler(kv, step_tokens=512, max_running=NUM_SLOTS)
    for number in range(NUM_REQUESTS):
        scheduler.add(_sequence(number, draw))
    found: list[float] = []
    num_ended = 0
    while (plan := scheduler.plan(0.0)) is not None:
        results = [Sampled(token_id=7) if chunk.samples else None for chunk in plan.chunks]
        for sequence, _ in scheduler.commit(plan, results):
            if sequence.num_output_tokens == sequence.max_tokens:
                scheduler.finish(sequence, FinishReason.LENGTH)
                num_ended += 1
        if NUM_SLOTS <= num_ended <= NUM_REQUESTS - NUM_SLOTS:
            found.append(1 - (kv.used_tokens + kv.cached_tokens) / kv.total_tokens)
    return found


def _sequence(number: int, draw: Random) -> Sequence:
    num_prompt_tokens = draw.randint(*PROMPT_TOKENS)
    return Sequence(
        request_id=str(number),
        index=0,
        num_prompt_tokens=num_prompt_tokens,
        token_ids=[number, *range(1000, 999 + num_prompt_tokens)],
        max_tokens=draw.randint(*ANSWER_TOKENS),
        sampling=SamplingParams(),
        seed=0,
        arrived_at=float(number),
    )


if __name__ == "__main__":
    run_alone(measure)
