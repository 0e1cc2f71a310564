"""Where a step's keys and values are put into the cache, and what 8 bits make of them."""

from typing import Final

import torch
from torch import Tensor

from engines.pytorch.kv_cache import LayerCache

# The largest number that float8_e4m3fn holds.
FP8_MAX: Final = 448.0
# A row of zeros has a scale, too: one that float32 can be divided by.
_LEAST_SCALE: Final = 1e-30


def store_kv(cache: LayerCache, keys: Tensor, values: Tensor, slots: Tensor) -> None:
    """Put keys and values [T, G, D] at `slots` [T]; nowhere where that is -1."""
    is_kept = slots >= 0
    if not is_kept.all():
        keys, values, slots = keys[is_kept], values[is_kept], slots[is_kept]
    _put(cache.keys, cache.key_scales, keys, slots)
    _put(cache.values, cache.value_scales, values, slots)


def _put(store: Tensor, scales: Tensor | None, heads: Tensor, slots: Tensor) -> None:
    blocks, offsets = slots // store.shape[2], slots % store.shape[2]
    if scales is not None:
        heads, scale = quantise(heads)
        scales[blocks, :, offsets] = scale
        store.view(torch.uint8)[blocks, :, offsets] = heads.view(torch.uint8)
    else:
        store[blocks, :, offsets] = heads.to(store.dtype)


def quantise(heads: Tensor) -> tuple[Tensor, Tensor]:
    """Heads [..., D] as float8_e4m3fn, and what each [...] is to be multiplied by, float32."""
    wide = heads.float()
    scale = wide.abs().amax(-1).clamp_min(_LEAST_SCALE) / FP8_MAX
    return (wide / scale.unsqueeze(-1)).to(torch.float8_e4m3fn), scale
