"""A step that decodes with a model of 8 billion numbers: the floor is to read its weights."""

from collections.abc import Iterator

import torch

from engines.pytorch.models import Model
from tests.gpu.machine import Machine
from tests.gpu.paged import decode_inputs, filled_cache
from tests.gpu.random_models import build_large
from tests.gpu.rows import Row


@torch.inference_mode()
def measure(machine: Machine) -> Iterator[Row]:
    """One sequence, and 64 of two thousand tokens."""
    model = build_large(machine)
    yield _step(machine, model, 1, machine.size(128, 8), aim=0.8)
    yield _step(machine, model, machine.size(64, 3), machine.size(2048, 20), aim=0.7)


def _step(machine: Machine, model: Model, num_sequences: int, length: int, *, aim: float) -> Row:
    shape = model.kv_shape(machine.dtype)
    lengths = [length] * num_sequences
    cache, inputs = filled_cache(machine, shape, lengths), decode_inputs(machine, lengths)
    took = machine.time(lambda: model.forward(inputs, cache), num_repeats=machine.size(15, 1))
    floor_s = machine.floor_s(_weights_read(model) + sum(lengths) * shape.token_bytes)
    return Row(
        goal="G5",
        what=f"8B step, {num_sequences} sequences of {length}: share of the copy's speed",
        unit="ms",
        floor=floor_s * 1e3,
        ours=took.times(1e3),
        ratio=floor_s / took.middle,
        aim=aim,
    )


def _weights_read(model: Model) -> int:
    """Bytes of all weights but the embedding's, of which a step reads a few rows."""
    facts = model.facts
    item_bytes = max(model.tensors, key=lambda tensor: tensor.nbytes).itemsize
    return model.weights_bytes - facts.vocabulary_size * facts.hidden_size * item_bytes
