"""Norms, activations, turning and storing, held against float64."""

from typing import Final

import pytest
import torch

from engines.pytorch.kernels import kv_store
from engines.pytorch.kernels.torch_ops import torch_ops
from engines.pytorch.kv_cache import KvShape, allocate
from engines.pytorch.ops import Ops, Rotation
from tests.engines.pytorch.kernels import exact

# What overflows, and what is no number and made an integer, is defined on a GPU.
pytestmark = pytest.mark.filterwarnings("ignore:(overflow|invalid value) encountered")

TOLERANCES: Final = {torch.float32: 2e-6, torch.bfloat16: 1e-2, torch.float16: 1e-3}
# No rows, one number, odd lengths, a power of two.
SIZES: Final = [(0, 64), (1, 1), (3, 100), (2, 576), (1, 1024)]


@pytest.fixture(params=["torch", "triton"])
def ops(request: pytest.FixtureRequest) -> Ops:
    """Each of the two sets; kernels run in Triton's interpreter."""
    if request.param == "torch":
        return torch_ops()
    from engines.pytorch.kernels.triton_ops import triton_ops

    return triton_ops()


def _random(*size: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    return torch.randn(*size, generator=torch.Generator().manual_seed(seed)).to(dtype)


def _assert_close(answers: torch.Tensor, expected: torch.Tensor, dtype: torch.dtype) -> None:
    assert answers.dtype == dtype
    tolerance = TOLERANCES[dtype]
    torch.testing.assert_close(answers.double(), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.usefixtures("poisoned_memory")
@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("size", SIZES)
def test_rows_are_normed(ops: Ops, size: tuple[int, int], dtype: torch.dtype) -> None:
    x, weight = _random(*size, dtype=dtype), _random(size[1], dtype=dtype, seed=1)
    _assert_close(ops.rms_norm(x, weight, 1e-5), exact.rms_norm(x, weight, 1e-5), dtype)


@pytest.mark.usefixtures("poisoned_memory")
@pytest.mark.parametrize("dtype", TOLERANCES)
def test_rows_are_added_rounded_and_then_normed(ops: Ops, dtype: torch.dtype) -> None:
    x, residual = _random(5, 96, dtype=dtype), _random(5, 96, dtype=dtype, seed=1)
    weight = _random(96, dtype=torch.float32, seed=2)
    normed, total = ops.add_rms_norm(x, residual, weight, 1e-5)
    assert torch.equal(total, x + residual)
    _assert_close(normed, exact.rms_norm(total, weight, 1e-5), dtype)


def test_a_row_of_zeros_stays_zero_and_one_that_is_cut_from_a_wider_one_is_itself(ops: Ops) -> None:
    weight = _random(64)
    assert not ops.rms_norm(torch.zeros(1, 64), weight, 1e-5).any()
    wide = _random(3, 128)
    expected = exact.rms_norm(wide[:, 64:], weight, 1e-5)
    _assert_close(ops.rms_norm(wide[:, 64:], weight, 1e-5), expected, torch.float32)


@pytest.mark.usefixtures("poisoned_memory")
@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("size", [(0, 8), (1, 2), (3, 70), (1, 2600)])
def test_activations(ops: Ops, size: tuple[int, int], dtype: torch.dtype) -> None:
    gate_up = _random(*size, dtype=dtype) * 4
    _assert_close(ops.silu_mul(gate_up), exact.silu_mul(gate_up), dtype)
    _assert_close(ops.gelu_mul(gate_up), exact.gelu_mul(gate_up), dtype)


def _rotation(head_dim: int, *, has_norms: bool, dtype: torch.dtype) -> Rotation:
    angles = _random(40, head_dim // 2, seed=5)
    weights = (_random(head_dim, dtype=dtype, seed=6), _random(head_dim, dtype=dtype, seed=7))
    return Rotation(
        cosines=angles.cos(),
        sines=angles.sin(),
        query_norm=weights[0] if has_norms else None,
        key_norm=weights[1] if has_norms else None,
        eps=1e-6,
    )


@pytest.mark.usefixtures("poisoned_memory")
@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize(("head_dim", "rotated_dim"), [(64, 64), (80, 80), (96, 24)])
@pytest.mark.parametrize("has_norms", [False, True])
def test_heads_are_normed_and_turned(
    ops: Ops, dtype: torch.dtype, head_dim: int, rotated_dim: int, has_norms: bool
) -> None:
    full = _rotation(head_dim, has_norms=has_norms, dtype=dtype)
    half = rotated_dim // 2
    rotation = Rotation(
        cosines=full.cosines[:, :half].contiguous(),
        sines=full.sines[:, :half].contiguous(),
        query_norm=full.query_norm,
        key_norm=full.key_norm,
        eps=full.eps,
    )
    # As they come: cut from the rows of one product.
    rows = _random(3, 6 * head_dim, dtype=dtype)
    queries = rows[:, : 4 * head_dim].view(3, 4, head_dim)
    keys = rows[:, 4 * head_dim :].view(3, 2, head_dim)
    positions = torch.tensor([0, 39, 7])
    for answers, heads, weight in zip(
        ops.rotate(queries, keys, positions, rotation),
        (queries, keys),
        (rotation.query_norm, rotation.key_norm),
        strict=True,
    ):
        normed = heads if weight is None else exact.rms_norm(heads, weight, 1e-6).to(dtype)
        expected = exact.rotate(normed, rotation.cosines, rotation.sines, positions)
        tolerance = 4 * TOLERANCES[dtype]
        torch.testing.assert_close(answers.double(), expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    ("dtype", "head_dim"),
    [(torch.float32, 64), (torch.bfloat16, 80), (torch.float16, 96), (torch.float8_e4m3fn, 80)],
)
def test_keys_and_values_are_stored_at_their_slots_and_nowhere_else(
    ops: Ops, dtype: torch.dtype, head_dim: int
) -> None:
    shape = KvShape(num_layers=2, num_kv_heads=2, head_dim=head_dim, dtype=dtype)
    kept, expected = allocate(shape, num_blocks=3, block_size=4, device=torch.device("cpu"))
    given = torch.float32 if dtype == torch.float32 else torch.bfloat16
    rows = _random(5, 4 * head_dim, dtype=given)
    keys = rows[:, : 2 * head_dim].view(5, 2, head_dim)
    values = rows[:, 2 * head_dim :].view(5, 2, head_dim)
    keys[4] = 0.0
    slots = torch.tensor([11, -1, 0, -1, 6])
    ops.store_kv(kept, keys, values, slots)
    for row, slot in enumerate(slots.tolist()):
        if slot >= 0:
            where = (slot // 4, slice(None), slot % 4)
            _put(expected.keys, expected.key_scales, where, keys[row])
            _put(expected.values, expected.value_scales, where, values[row])
    _assert_equal(kept.keys, expected.keys)
    _assert_equal(kept.values, expected.values)
    if kept.key_scales is not None and kept.value_scales is not None:
        _assert_equal(kept.key_scales, expected.key_scales)
        _assert_equal(kept.value_scales, expected.value_scales)


def _put(
    store: torch.Tensor,
    scales: torch.Tensor | None,
    where: tuple[int, slice, int],
    heads: torch.Tensor,
) -> None:
    if scales is None:
        store[where] = heads.to(store.dtype)
    else:
        numbers, scales[where] = kv_store.quantise(heads)
        store.view(torch.uint8)[where] = numbers.view(torch.uint8)


def _assert_equal(answers: torch.Tensor, expected: torch.Tensor | None) -> None:
    assert expected is not None
    assert torch.equal(answers.view(torch.uint8), expected.view(torch.uint8))


def test_every_number_is_stored_as_the_nearest_of_8_bits(ops: Ops) -> None:
    """Beside 448, which keeps the scale 1: all numbers that there are, and all halfway between."""
    there = torch.arange(0x7F, dtype=torch.uint8).view(torch.float8_e4m3fn).float()
    between = (there[1:] + there[:-1]) / 2
    above, below = (torch.nextafter(between, other) for other in (there[1:], there[:-1]))
    numbers = torch.cat((there, between, above, below))
    rows = torch.zeros(8, 1, 128)
    rows[:, 0, 1:] = torch.nn.functional.pad(torch.cat((numbers, -numbers)), (0, 6)).view(8, 127)
    rows[:, 0, 0] = 448.0
    shape = KvShape(num_layers=1, num_kv_heads=1, head_dim=128, dtype=torch.float8_e4m3fn)
    (cache,) = allocate(shape, num_blocks=1, block_size=8, device=torch.device("cpu"))
    ops.store_kv(cache, rows, rows, torch.arange(8))
    stored, expected = cache.keys[0, 0].float(), rows[:, 0].to(torch.float8_e4m3fn).float()
    assert torch.equal(stored, expected)


def test_what_is_not_a_number_stays_none_in_8_bits(ops: Ops) -> None:
    shape = KvShape(num_layers=1, num_kv_heads=1, head_dim=64, dtype=torch.float8_e4m3fn)
    (cache,) = allocate(shape, num_blocks=1, block_size=4, device=torch.device("cpu"))
    rows = _random(1, 1, 64)
    rows[0, 0, 5] = torch.nan
    ops.store_kv(cache, rows, rows, torch.tensor([2]))
    assert cache.key_scales is not None
    assert (cache.keys[0, 0, 2].float() * cache.key_scales[0, 0, 2]).isnan().any()
