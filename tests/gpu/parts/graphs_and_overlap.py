"""What launching kernels costs at a model so small that it shows, and what captured graphs save."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Final

import torch

from engines.pytorch.models import Model, load_model
from tests.gpu.answering import Answering, Ask
from tests.gpu.machine import Machine
from tests.gpu.paged import decode_inputs, filled_cache
from tests.gpu.random_models import small_model_folder, start_small
from tests.gpu.rows import Row, Spread, not_measured, spread

_PROMPT: Final = 32


@torch.inference_mode()
def measure(machine: Machine) -> Iterator[Row]:
    """Graphs on and off; overlap; how much of a step the GPU waits for the processor."""
    folder = small_model_folder(machine)
    model = load_model(folder, dtype=machine.dtype, device=machine.device, ops=machine.ops)
    many = machine.size(64, 2)
    lone, captured = (_graph_row(machine, model, number) for number in (1, many))
    del model
    yield lone[0]
    yield captured[0]
    yield not_measured("0.6B, 64 sequences: overlap on against off", "not built", "G7")
    yield _idle_row(machine, many, captured[1])


def _graph_row(machine: Machine, model: Model, num_sequences: int) -> tuple[Row, Spread]:
    lengths = [machine.size(256, 10)] * num_sequences
    cache = filled_cache(machine, model.kv_shape(machine.dtype), lengths)
    inputs = decode_inputs(machine, lengths)
    captured = machine.time(lambda: model.forward(inputs, cache))
    launched = machine.time_launched(lambda: model.forward(inputs, cache))
    row = Row(
        goal="G6",
        what=f"0.6B step, {num_sequences} sequences: graph against launching each kernel",
        unit="ms",
        floor=launched.middle * 1e3,
        ours=captured.times(1e3),
        ratio=launched.middle / captured.middle,
        aim=3.0 if num_sequences == 1 else None,
    )
    return row, captured


def _idle_row(machine: Machine, num_sequences: int, busy: Spread) -> Row:
    length = machine.size(256, 10)
    runner = start_small(machine, num_slots=num_sequences, context_tokens=2 * length)
    answering = Answering(runner)
    prompt = list(range(_PROMPT if machine.has_gpu else 4))
    streams = [
        answering.add(Ask(token_ids=prompt, max_tokens=length)) for _ in range(num_sequences)
    ]
    answering.run()
    runner.close()
    came_at = streams[-1].came_at
    steps = [later - earlier for earlier, later in pairwise(came_at)]
    took = spread(steps[len(steps) // 2 :])
    return Row(
        goal="G7",
        what=f"0.6B, {num_sequences} sequences: share of a step in which the GPU is idle",
        unit="ms",
        floor=busy.middle * 1e3,
        ours=took.times(1e3),
        ratio=max(0.0, 1 - busy.middle / took.middle),
        aim=0.03,
        is_most=True,
        note="scheduler, step, sampling and copies, against the forward pass alone",
    )
