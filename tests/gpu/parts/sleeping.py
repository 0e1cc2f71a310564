"""A model that gives its memory back and takes it again, against one that is loaded anew."""

from collections.abc import Iterator
from time import perf_counter

import torch

from engines.runner import Runner
from tests.gpu.answering import Ask, answer
from tests.gpu.machine import Machine
from tests.gpu.random_models import small_model_folder, start_small
from tests.gpu.rows import Row, spread


def measure(machine: Machine) -> Iterator[Row]:
    """The start from files that the system has at hand, sleeping, waking, and what is answered."""
    small_model_folder(machine)
    context_tokens = machine.size(4096, 64)
    start_small(machine, num_slots=4, context_tokens=context_tokens).close()  # compiles
    began_at = perf_counter()
    runner = start_small(machine, num_slots=machine.size(256, 4), context_tokens=context_tokens)
    machine.wait()
    cold_s = perf_counter() - began_at
    before = _answer(runner)
    awake_bytes = _used_bytes(machine)
    sleeps, wakes, left_bytes = [], [], 0
    for _ in range(machine.size(3, 1)):
        began_at = perf_counter()
        runner.sleep()
        slept_at = perf_counter()
        left_bytes = _used_bytes(machine)
        woken_at = perf_counter()
        runner.wake()
        machine.wait()
        wakes.append(perf_counter() - woken_at)
        sleeps.append(slept_at - began_at)
    after = _answer(runner)
    runner.close()
    woken = spread(wakes)
    yield Row(
        goal="G17",
        what="0.6B, waking against starting",
        unit="s",
        floor=cold_s,
        ours=woken,
        ratio=woken.middle / cold_s,
        aim=1 / 15,
        is_most=True,
    )
    yield Row(goal="G17", what="0.6B, falling asleep", unit="s", ours=spread(sleeps))
    yield Row(
        goal="G17",
        what="0.6B, memory of the device that is kept asleep, of what was used awake",
        unit="GB",
        floor=awake_bytes / 1e9,
        ours=spread([left_bytes / 1e9]),
        ratio=left_bytes / awake_bytes if awake_bytes else None,
    )
    yield Row(
        goal="G17",
        what="answers that differ after sleep",
        ours=spread([float(after != before)]),
        ratio=float(after != before),
        aim=0.0,
        is_most=True,
        needs_gpu=False,
    )


def _answer(runner: Runner) -> list[int]:
    (stream,) = answer(runner, [Ask(token_ids=list(range(1, 20)), max_tokens=16)])
    return [result.token_id for result in stream.results]


def _used_bytes(machine: Machine) -> int:
    if not machine.has_gpu:
        return 0
    free_bytes, total_bytes = torch.cuda.mem_get_info()
    return total_bytes - free_bytes
