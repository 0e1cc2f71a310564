"""Blocks that go to the host's memory come back as they were, in every type that they may have."""

import pytest
import torch

from engines.pytorch.block_saves import Load, Save
from engines.pytorch.kv_cache import KvShape, LayerCache, allocate
from engines.pytorch.offload import HostBlocks

BLOCKS = 6


def filled_cache(dtype: torch.dtype) -> tuple[LayerCache, ...]:
    shape = KvShape(num_layers=2, num_kv_heads=3, head_dim=8, dtype=dtype)
    cache = allocate(shape, num_blocks=BLOCKS, block_size=4, device=torch.device("cpu"))
    for layer in cache:
        for tensor in layer.tensors:
            tensor.copy_(torch.randn(tensor.shape))
    return cache


def block_of(cache: tuple[LayerCache, ...], block: int) -> list[torch.Tensor]:
    return [tensor[block].float().clone() for layer in cache for tensor in layer.tensors]


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn]
)
def test_a_block_comes_back_as_it_was(dtype: torch.dtype) -> None:
    cache = filled_cache(dtype)
    host = HostBlocks(cache, 3)
    one, two, other = (block_of(cache, number) for number in (1, 2, 3))
    host.carry_out(
        [
            Save(block=1, place=2),
            Save(block=2, place=0),
            Load(place=2, block=5),
            Load(place=0, block=1),
        ]
    )
    assert all(map(torch.equal, block_of(cache, 5), one))
    assert all(map(torch.equal, block_of(cache, 1), two))
    assert all(map(torch.equal, block_of(cache, 3), other))


def test_copies_are_made_in_their_order() -> None:
    """A place is used again at once, and a block that was loaded is given to another."""
    cache = filled_cache(torch.float32)
    host = HostBlocks(cache, 1)
    first, second = block_of(cache, 0), block_of(cache, 1)
    host.carry_out(
        [
            Save(block=0, place=0),
            Load(place=0, block=4),
            Save(block=1, place=0),
            Load(place=0, block=4),
            Load(place=0, block=5),
        ]
    )
    assert all(map(torch.equal, block_of(cache, 0), first))
    assert all(map(torch.equal, block_of(cache, 4), second))
    assert all(map(torch.equal, block_of(cache, 5), second))


def test_any_number_of_copies_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """An admission may move more than the device has room for at once."""
    monkeypatch.setattr("engines.pytorch.offload._COPIES_AT_ONCE", 2)
    cache = filled_cache(torch.float32)
    host = HostBlocks(cache, BLOCKS)
    before = [block_of(cache, number) for number in range(BLOCKS)]
    host.carry_out([Save(block=number, place=number) for number in range(BLOCKS)])
    host.carry_out([Load(place=BLOCKS - 1 - number, block=number) for number in range(BLOCKS)])
    for number in range(BLOCKS):
        assert all(map(torch.equal, block_of(cache, number), before[BLOCKS - 1 - number]))


def test_a_cache_takes_what_its_shape_says() -> None:
    for dtype in (torch.float16, torch.float8_e4m3fn):
        shape = KvShape(num_layers=2, num_kv_heads=3, head_dim=8, dtype=dtype)
        cache = allocate(shape, num_blocks=5, block_size=4, device=torch.device("cpu"))
        num_bytes = sum(tensor.nbytes for layer in cache for tensor in layer.tensors)
        assert num_bytes == 5 * 4 * shape.token_bytes
