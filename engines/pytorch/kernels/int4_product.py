"""Products with weights of 4 bits, as AWQ and GPTQ files hold them, in one layout for both.

A weight is scale * (number - zero), scale and zero a group of inputs and an output. The numbers of
an output lie in chunks of 128 inputs, 16 words each: word j has those of the inputs j, 16 + j,
32 + j and so on, lowest bits first, so that one shift of a chunk's words gives 16 neighbours.
"""

from typing import Final

import torch
from msgspec import Struct
from torch import Tensor

CHUNK: Final = 128
WORDS: Final = 16
_PER_WORD: Final = 8
# Where AWQ's words keep the outputs 0 to 7, in nibbles from the lowest.
_AWQ_NIBBLES: Final = (0, 4, 1, 5, 2, 6, 3, 7)


class Int4Weight(Struct, frozen=True, kw_only=True):
    """N outputs of K inputs, in groups of `group_size` inputs.

    - `words`: int32 [N, ceil(K / 128) * 16]
    - `scales`, `zeros`: [N, ceil(K / group_size)], 16 or 32 bits
    - `order`: int64 [K], the input that each place is for; None: its own
    """

    words: Tensor
    scales: Tensor
    zeros: Tensor
    num_inputs: int
    group_size: int
    order: Tensor | None = None

    def multiply(self, x: Tensor) -> Tensor:
        """x [..., K] times the weights: [..., N] in the dtype of x."""
        if self.order is not None:
            x = x[..., self.order]
        if x.is_cuda:
            from engines.pytorch.kernels import int4_product_kernel

            return int4_product_kernel.multiply(x, self)
        return multiply(x, self)


def multiply(x: Tensor, weight: Int4Weight) -> Tensor:
    """The product of inputs [..., K] in the weight's order."""
    return x @ _dense(weight).to(x.dtype).T


def dense(weight: Int4Weight) -> Tensor:
    """The weights as float32 [N, K], inputs in their own order."""
    ordered = _dense(weight)
    if weight.order is None:
        return ordered
    return torch.empty_like(ordered).index_copy_(1, weight.order, ordered)


def _dense(weight: Int4Weight) -> Tensor:
    chunks = _nibbles(weight.words.view(len(weight.words), -1, 1, WORDS), dim=2)
    numbers = chunks.flatten(1)[:, : weight.num_inputs]
    groups = torch.arange(weight.num_inputs, device=numbers.device) // weight.group_size
    scales, zeros = weight.scales.float(), weight.zeros.float()
    return (numbers - zeros[:, groups]) * scales[:, groups]


def from_gptq(
    qweight: Tensor,
    qzeros: Tensor,
    scales: Tensor,
    g_idx: Tensor | None = None,
    *,
    is_zero_less_one: bool = True,
) -> Int4Weight:
    """Of a GPTQ file: qweight int32 [K / 8, N], qzeros int32 [groups, N / 8], scales [groups, N].

    `g_idx` [K] tells each input's group. The first format keeps zeros less one; `gptq_v2` does not.
    """
    numbers = _nibbles(qweight[:, None], dim=1).flatten(0, 1)
    zeros = _nibbles(qzeros[..., None], dim=2).flatten(1) + int(is_zero_less_one)
    return _pack(numbers, scales, zeros, g_idx)


def from_awq(qweight: Tensor, qzeros: Tensor, scales: Tensor) -> Int4Weight:
    """Of an AWQ file: qweight int32 [K, N / 8], qzeros int32 [groups, N / 8], scales as GPTQ's."""
    numbers, zeros = (
        _nibbles(words[..., None], dim=2)[..., _AWQ_NIBBLES].flatten(1)
        for words in (qweight, qzeros)
    )
    return _pack(numbers, scales, zeros, None)


def _nibbles(words: Tensor, dim: int) -> Tensor:
    """The eight numbers of each word along `dim`, which has size 1."""
    shape = [1] * words.dim()
    shape[dim] = _PER_WORD
    shifts = torch.arange(0, 32, 4, dtype=torch.int32, device=words.device).view(shape)
    return words >> shifts & 15


def _pack(numbers: Tensor, scales: Tensor, zeros: Tensor, g_idx: Tensor | None) -> Int4Weight:
    """Numbers [K, N] in the layout of the kernel, inputs of a group side by side."""
    num_inputs, num_outputs = numbers.shape
    group_size = -(-num_inputs // len(scales))
    order = None
    if g_idx is not None:
        by_group = g_idx.long().argsort(stable=True)
        if not torch.equal(by_group, torch.arange(num_inputs, device=by_group.device)):
            order, numbers = by_group, numbers[by_group]
    padded = torch.nn.functional.pad(numbers, (0, 0, 0, -num_inputs % CHUNK))
    chunks = padded.T.reshape(num_outputs, -1, _PER_WORD, WORDS)
    words = torch.zeros_like(chunks[:, :, 0])
    for place in range(_PER_WORD):
        words |= chunks[:, :, place] << 4 * place
    return Int4Weight(
        words=words.flatten(1).contiguous(),
        scales=scales.T.contiguous(),
        zeros=zeros.T.to(scales.dtype).contiguous(),
        num_inputs=num_inputs,
        group_size=group_size,
        order=order,
    )
