"""The operations once more, in float64 and the plainest way: what kernels are held against."""

import math

import torch
from torch import Tensor

from engines.pytorch.kv_cache import LayerCache
from engines.pytorch.ops import AttentionShape
from engines.pytorch.step_inputs import StepInputs


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    wide = x.double()
    return wide / (wide.square().mean(-1, keepdim=True) + eps).sqrt() * weight.double()


def attend(queries: Tensor, cache: LayerCache, inputs: StepInputs, shape: AttentionShape) -> Tensor:
    """Token by token, head by head."""
    answers = torch.zeros(queries.shape, dtype=torch.float64)
    group = queries.shape[1] // cache.keys.shape[1]
    for sequence, length in enumerate(inputs.context_lengths.tolist()):
        start, end = inputs.query_starts[sequence : sequence + 2].tolist()
        if not length:
            continue
        positions = torch.arange(length)
        blocks = inputs.block_tables[sequence][positions // cache.block_size].long()
        offsets = positions % cache.block_size
        keys = _numbers(cache.keys, cache.key_scales, blocks, offsets)
        values = _numbers(cache.values, cache.value_scales, blocks, offsets)
        for row in range(start, end):
            last = length - (end - row)
            first = max(0, last - shape.window + 1) if shape.window else 0
            for head in range(queries.shape[1]):
                seen = keys[first : last + 1, head // group]
                scores = seen @ queries[row, head].double() * shape.scale
                if shape.soft_cap:
                    scores = shape.soft_cap * (scores / shape.soft_cap).tanh()
                answers[row, head] = scores.softmax(0) @ values[first : last + 1, head // group]
    return answers


def _numbers(store: Tensor, scales: Tensor | None, blocks: Tensor, offsets: Tensor) -> Tensor:
    numbers = store.float()[blocks, :, offsets].double()
    return numbers if scales is None else numbers * scales[blocks, :, offsets].double()[..., None]


def rotate(heads: Tensor, cosines: Tensor, sines: Tensor, positions: Tensor) -> Tensor:
    """Dimension pairs as complex numbers, turned."""
    half = cosines.shape[-1]
    wide = heads.double()
    pairs = torch.complex(wide[..., :half], wide[..., half : 2 * half])
    turned = pairs * torch.complex(cosines.double(), sines.double())[positions][:, None]
    return torch.cat((turned.real, turned.imag, wide[..., 2 * half :]), -1)


def silu_mul(gate_up: Tensor) -> Tensor:
    gate, up = gate_up.double().chunk(2, -1)
    return gate / (1 + (-gate).exp()) * up


def gelu_mul(gate_up: Tensor) -> Tensor:
    gate, up = gate_up.double().chunk(2, -1)
    inner = math.sqrt(2 / math.pi) * (gate + 0.044715 * gate**3)
    return 0.5 * gate * (1 + inner.tanh()) * up
