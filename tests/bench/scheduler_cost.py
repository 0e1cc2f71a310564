"""What a step costs before and after the model: microseconds with 256 running sequences.

    python -m tests.bench.scheduler_cost

Planning and committing with the echo engine's KV memory and with blocks, and filling the tensors
of a step that decodes. The aim is at most 300 us together, so that a step of 10 ms loses 3 % to it.
"""

import gc
import statistics
import time
from collections.abc import Callable
from typing import Final

import torch

from appliance.generation import SamplingParams
from engines.echo.kv_blocks import EchoKv
from engines.pytorch.kv_blocks import KvBlocks
from engines.pytorch.step_batch import StepBatch, only_decodes
from engines.runner import KvManager, Sampled, StepPlan
from engines.scheduler import Scheduler
from engines.sequence import Sequence

NUM_SEQUENCES: Final = 256
NUM_PROMPT_TOKENS: Final = 512
NUM_STEPS: Final = 2_000
STEP_TOKENS: Final = 8192
NUM_TOKENS: Final = NUM_PROMPT_TOKENS + NUM_STEPS + 16
AIM_US: Final = 300


def running_scheduler(kv: KvManager) -> Scheduler:
    """A scheduler in which every sequence has its prompt computed and decodes."""
    scheduler = Scheduler(kv, step_tokens=STEP_TOKENS, max_running=NUM_SEQUENCES)
    for index in range(NUM_SEQUENCES):
        scheduler.add(
            Sequence(
                request_id=str(index),
                index=0,
                num_prompt_tokens=NUM_PROMPT_TOKENS,
                token_ids=[index, *range(NUM_PROMPT_TOKENS - 1)],
                max_tokens=NUM_STEPS,
                sampling=SamplingParams(),
                seed=0,
                arrived_at=float(index),
            )
        )
    while scheduler.stats().num_waiting or any(s.is_prefilling for s in scheduler.running):
        step(scheduler)
    return scheduler


def step(scheduler: Scheduler, fill: Callable[[StepPlan], object] | None = None) -> float:
    """One plan, fill and commit; their time in seconds, without the pretended execution."""
    started = time.perf_counter()
    plan = scheduler.plan(started)
    assert plan is not None
    if fill is not None:
        fill(plan)
    planned = time.perf_counter()
    results = [Sampled(token_id=7) if chunk.samples else None for chunk in plan.chunks]
    executed = time.perf_counter()
    list(scheduler.commit(plan, results))
    return planned - started + time.perf_counter() - executed


def show(what: str, costs: list[float]) -> None:
    """A line of the table."""
    costs_us = sorted(1e6 * cost for cost in costs)
    p99_us = costs_us[len(costs_us) * 99 // 100]
    print(f"  {what:34} median {statistics.median(costs_us):7.1f} us   p99 {p99_us:7.1f} us")


def main() -> None:
    """Print the table."""
    print(f"a step at {NUM_SEQUENCES} running sequences, {NUM_STEPS - 1} steps; aim {AIM_US} us")
    echo = running_scheduler(EchoKv(NUM_SEQUENCES * NUM_TOKENS))
    gc.freeze()
    show("plan + commit, echo's memory", [step(echo) for _ in range(NUM_STEPS - 1)])
    kv = KvBlocks(
        NUM_SEQUENCES * NUM_TOKENS // 16, num_slots=NUM_SEQUENCES, context_tokens=NUM_TOKENS
    )
    blocks = running_scheduler(kv)
    gc.freeze()
    num_steps = (NUM_STEPS - 1) // 2
    show("plan + commit, blocks", [step(blocks) for _ in range(num_steps)])
    batch = StepBatch(kv, step_tokens=STEP_TOKENS, device=torch.device("cpu"))

    def fill(plan: StepPlan) -> None:
        assert only_decodes(plan.chunks)
        batch.fill_decodes(plan.chunks, len(plan.chunks))

    show("plan + fill + commit, blocks", [step(blocks, fill) for _ in range(num_steps)])


if __name__ == "__main__":
    main()
