"""What the scheduler costs: microseconds per plan and commit with 256 running sequences.

    python -m tests.bench.scheduler_cost

The aim is at most 300 us, so that a step of 10 ms loses 3 % to it.
"""

import statistics
import time
from typing import Final

from appliance.generation import SamplingParams
from engines.echo.kv_blocks import EchoKv
from engines.runner import Sampled
from engines.scheduler import Scheduler
from engines.sequence import Sequence

NUM_SEQUENCES: Final = 256
NUM_PROMPT_TOKENS: Final = 512
NUM_STEPS: Final = 2_000
AIM_US: Final = 300


def running_scheduler() -> Scheduler:
    """A scheduler in which every sequence has its prompt computed and decodes."""
    kv = EchoKv(NUM_SEQUENCES * (NUM_PROMPT_TOKENS + NUM_STEPS + 16))
    scheduler = Scheduler(kv, step_tokens=8192, max_running=NUM_SEQUENCES)
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


def step(scheduler: Scheduler) -> float:
    """One plan and commit; answers their time in seconds, without the pretended execution."""
    started = time.perf_counter()
    plan = scheduler.plan(started)
    planned = time.perf_counter()
    assert plan is not None
    results = [Sampled(token_id=7) if chunk.samples else None for chunk in plan.chunks]
    executed = time.perf_counter()
    list(scheduler.commit(plan, results))
    return planned - started + time.perf_counter() - executed


def main() -> None:
    """Print the table."""
    scheduler = running_scheduler()
    costs_us = sorted(1e6 * step(scheduler) for _ in range(NUM_STEPS - 1))
    print(f"plan + commit at {NUM_SEQUENCES} running sequences, {len(costs_us)} steps")
    print(f"  median {statistics.median(costs_us):7.1f} us   (aim: at most {AIM_US} us)")
    print(f"  p99    {costs_us[len(costs_us) * 99 // 100]:7.1f} us")


if __name__ == "__main__":
    main()
