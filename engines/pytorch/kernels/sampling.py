"""The next token of every row of a step, chosen on the model's device.

The order of things, and the number that decides, are those of `engines.sampler`: logit_bias,
penalties, what is allowed at all, temperature, top_k, top_p, min_p; logprobs are of the raw row.
The token is the one at which the running sum of the weights, in the order of ids, passes
random(seed, position) of their total. So a row is given the same token in any batch, and the same
on a GPU as on a CPU but for the last bit of a weight.
"""

from typing import Final

import torch
from msgspec import Struct
from torch import Tensor

# Below this temperature the likeliest token has all the weight that float32 can hold.
MIN_TEMPERATURE: Final = 1e-4
# Running sums are taken over blocks of tokens first, then within the one that matters.
_BLOCK: Final = 512
_MASK_BITS: Final = 32


class Biases(Struct, frozen=True, kw_only=True):
    """What is added to single logits: `rows`, `token_ids` int64 [N], `values` float32 [N]."""

    rows: Tensor
    token_ids: Tensor
    values: Tensor


class Penalties(Struct, frozen=True, kw_only=True):
    """What becomes of tokens that were there before, each once in a row.

    - `rows`, `token_ids`: int64 [N]
    - `counts`: float32 [N], how often it is in the output; 0 for one of the prompt alone, which
      is listed only where repetition is penalised
    - `presence`, `frequency`, `repetition`: float32 [R]; 0, 0 and 1 change nothing
    """

    rows: Tensor
    token_ids: Tensor
    counts: Tensor
    presence: Tensor
    frequency: Tensor
    repetition: Tensor


class SamplingInputs(Struct, frozen=True, kw_only=True):
    """How each of R rows is sampled, all on the device of the logits.

    - `temperatures`, `top_ps`, `min_ps`: float32 [R]; `top_ks`: int32 [R], 0 for no limit
    - `seeds`: int64 [R], the bits of 64-bit seeds; `positions`: int64 [R], tokens of output so far
    - `allowed`: int32 [R, ceil(V / 32)], bit i % 32 of word i / 32 says that token i may come;
      None: all may
    - `is_greedy`: every row wants its likeliest; `is_truncated`: some row has a top_k, top_p, min_p
    - `num_top`: logprobs wanted beside the chosen one's; None: not even that
    """

    temperatures: Tensor
    top_ks: Tensor
    top_ps: Tensor
    min_ps: Tensor
    seeds: Tensor
    positions: Tensor
    is_greedy: bool
    is_truncated: bool
    allowed: Tensor | None = None
    biases: Biases | None = None
    penalties: Penalties | None = None
    num_top: int | None = None


class Choices(Struct, frozen=True, kw_only=True):
    """What came of R rows.

    - `token_ids`: int64 [R]; `are_finite`: bool [R], False: the row failed and its token is 0
    - `logprobs`: float32 [R]; `top_ids`, `top_logprobs`: [R, num_top], likeliest first, then by id
    """

    token_ids: Tensor
    are_finite: Tensor
    logprobs: Tensor | None = None
    top_ids: Tensor | None = None
    top_logprobs: Tensor | None = None


def sample(logits: Tensor, inputs: SamplingInputs) -> Choices:
    """The next token of each row of float32 logits [R, V], which are left as they are."""
    adjusted = adjust(logits, inputs)
    if logits.is_cuda:
        from engines.pytorch.kernels import sampling_kernel

        token_ids, are_finite = sampling_kernel.choose(adjusted, inputs)
    else:
        token_ids, are_finite = choose(adjusted, inputs)
    if inputs.num_top is None:
        return Choices(token_ids=token_ids, are_finite=are_finite)
    return with_logprobs(logits, token_ids, are_finite, inputs.num_top)


def adjust(logits: Tensor, inputs: SamplingInputs) -> Tensor:
    """The logits with biases added and penalties taken off; the very tensor if there are none."""
    if inputs.biases is None and inputs.penalties is None:
        return logits
    adjusted = logits.clone()
    if inputs.biases is not None:
        where = (inputs.biases.rows, inputs.biases.token_ids)
        adjusted.index_put_(where, inputs.biases.values, accumulate=True)
    if inputs.penalties is not None:
        _penalise(adjusted, inputs.penalties)
    return adjusted


def _penalise(adjusted: Tensor, penalties: Penalties) -> None:
    rows, token_ids, counts = penalties.rows, penalties.token_ids, penalties.counts
    values, repetition = adjusted[rows, token_ids], penalties.repetition[rows]
    values = torch.where(values > 0, values / repetition, values * repetition)
    presence = penalties.presence[rows] * (counts > 0)
    adjusted[rows, token_ids] = values - (presence + penalties.frequency[rows] * counts)


def choose(adjusted: Tensor, inputs: SamplingInputs) -> tuple[Tensor, Tensor]:
    """Chosen ids int64 [R], and whether each row had numbers to choose by."""
    if inputs.allowed is not None:
        is_ruled_out = ~unpack(inputs.allowed, adjusted.shape[1]) & ~adjusted.isnan()
        adjusted = adjusted.masked_fill(is_ruled_out, -torch.inf)
    best = adjusted.argmax(-1)  # the first NaN, where there is one
    top = adjusted.gather(1, best[:, None])
    are_finite = top[:, 0].isfinite()
    best = best.where(are_finite, 0)
    if inputs.is_greedy:
        return best, are_finite
    is_greedy = (inputs.temperatures < MIN_TEMPERATURE) | (inputs.top_ks == 1)
    draws = (are_finite & ~is_greedy).nonzero()[:, 0]
    if len(draws):
        weights = ((adjusted - top)[draws] / inputs.temperatures[draws, None]).exp_()
        if inputs.is_truncated:
            _truncate(weights, inputs, draws)
        random = random_numbers(inputs.seeds[draws], inputs.positions[draws])
        best[draws] = _draw(weights, random)
    return best, are_finite


def unpack(words: Tensor, num_tokens: int) -> Tensor:
    """The bits of int32 [R, W] as bool [R, num_tokens]."""
    bits = torch.arange(_MASK_BITS, dtype=torch.int32, device=words.device)
    return (words[..., None] >> bits & 1).bool().flatten(-2)[:, :num_tokens]


def _truncate(weights: Tensor, inputs: SamplingInputs, rows: Tensor) -> None:
    """Take its weight from what top_k, then top_p, then min_p leave out; in place."""
    settings = (inputs.top_ks, inputs.top_ps, inputs.min_ps)
    for row, *setting in zip(weights, *(some[rows].tolist() for some in settings), strict=True):
        row[row < _lowest_weight(row, *setting)] = 0.0


def _lowest_weight(weights: Tensor, top_k: int, top_p: float, min_p: float) -> float:
    """What a token must weigh to be left; the heaviest weigh 1."""
    floor = 0.0
    if 0 < top_k < len(weights):
        floor = float(weights.topk(top_k).values[-1])
    if top_p < 1.0:
        floor = max(floor, _nucleus_floor(weights[weights >= floor], top_p))
    return max(floor, min(min_p, 1.0))


def _nucleus_floor(weights: Tensor, top_p: float) -> float:
    """The weight of the last token that is needed to reach `top_p` of the total.

    With n tokens, all that weigh less than (1 - top_p) / n of the total together weigh less than
    1 - top_p, so none of them is needed, and the rest is quick to sort.
    """
    total = float(weights.sum(dtype=torch.float64))
    least = (1.0 - top_p) / len(weights) * total
    heaviest = weights[weights >= least].sort(descending=True).values
    before = heaviest.cumsum(0, dtype=torch.float64) - heaviest
    num_needed = max(1, int((before < top_p * total).count_nonzero()))
    return float(heaviest[num_needed - 1])


def random_numbers(seeds: Tensor, positions: Tensor) -> Tensor:
    """Numbers in [0, 1), float64, that depend on nothing else (SplitMix64, Steele et al. 2014)."""
    mixed = seeds * _signed(0x9E3779B97F4A7C15) + (positions + 1) * _signed(0xD1B54A32D192ED03)
    mixed = (mixed ^ _shifted(mixed, 30)) * _signed(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ _shifted(mixed, 27)) * _signed(0x94D049BB133111EB)
    return _shifted(mixed ^ _shifted(mixed, 31), 11).double() / (1 << 53)


def _signed(bits: int) -> int:
    return bits - (1 << 64)


def _shifted(numbers: Tensor, by: int) -> Tensor:
    """Shifted to the right as 64 bits without a sign."""
    return numbers >> by & ((1 << 64 - by) - 1)


def _draw(weights: Tensor, random: Tensor) -> Tensor:
    """An index for each row [n, V], with probability proportional to its weight, never 0."""
    num_rows, num_tokens = weights.shape
    blocks = torch.nn.functional.pad(weights, (0, -num_tokens % _BLOCK)).view(num_rows, -1, _BLOCK)
    ends = blocks.sum(-1, dtype=torch.float64).cumsum(-1)
    target = random[:, None] * ends[:, -1:]
    block = torch.searchsorted(ends, target, right=True).clamp_max_(ends.shape[1] - 1)
    before = ends.gather(1, (block - 1).clamp_min(0)).where(block > 0, 0.0)
    inside = blocks[torch.arange(num_rows, device=block.device), block[:, 0]]
    sums = inside.cumsum(-1, dtype=torch.float64)
    index = torch.searchsorted(sums, target - before, right=True)
    # Rounding: the block's two sums may differ in the last bit.
    index = index.where(index < _BLOCK, inside.argmax(-1, keepdim=True))
    return (block * _BLOCK + index)[:, 0]


def with_logprobs(logits: Tensor, token_ids: Tensor, are_finite: Tensor, num_top: int) -> Choices:
    """The tokens with their logprobs in rows [R, V], and the `num_top` likeliest of each row."""
    top = logits.topk(min(num_top, logits.shape[1]), dim=-1)
    by_id = top.indices.argsort(-1)
    ids, values = top.indices.gather(1, by_id), top.values.gather(1, by_id)
    by_value = values.argsort(stable=True, dim=-1, descending=True)
    total = logits.logsumexp(-1, keepdim=True)
    return Choices(
        token_ids=token_ids,
        are_finite=are_finite,
        logprobs=(logits.gather(1, token_ids[:, None]) - total)[:, 0],
        top_ids=ids.gather(1, by_value),
        top_logprobs=values.gather(1, by_value) - total,
    )
