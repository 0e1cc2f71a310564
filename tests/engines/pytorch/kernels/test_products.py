"""Products with packed weights are those with the weights that the files stand for."""

from collections.abc import Callable, Iterator
from typing import Final

import pytest
import torch
import triton
from torch import Tensor
from triton import language as tl

from engines.pytorch.kernels import byte_product, fp8_product, int4_product, int8_product
from engines.pytorch.kernels.byte_product import ByteWeight
from engines.pytorch.kernels.float8_kernel import from_bytes
from engines.pytorch.kernels.int4_product import Int4Weight

TOLERANCES: Final = {torch.float32: 1e-5, torch.bfloat16: 1e-2, torch.float16: 2e-3}
# Few rows, some, and one more than a tile of many.
NUM_ROWS: Final = [1, 17, 129]


@pytest.fixture(params=["torch", "triton"])
def multiply(request: pytest.FixtureRequest) -> Callable[[Tensor, Int4Weight | ByteWeight], Tensor]:
    """The product in torch, and in Triton's interpreter."""
    from engines.pytorch.kernels import byte_product_kernel, int4_product_kernel

    is_torch = request.param == "torch"
    int4 = int4_product.multiply if is_torch else int4_product_kernel.multiply
    byte = byte_product.multiply if is_torch else byte_product_kernel.multiply

    def chosen(x: Tensor, weight: Int4Weight | ByteWeight) -> Tensor:
        return int4(x, weight) if isinstance(weight, Int4Weight) else byte(x, weight)

    return chosen


Multiply = Callable[[Tensor, Int4Weight | ByteWeight], Tensor]


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(3)


def _check(
    multiply: Multiply,
    weight: Int4Weight | ByteWeight,
    dense: Tensor,
    num_rows: int,
    dtype: torch.dtype,
) -> None:
    x = torch.randn(num_rows, dense.shape[1], generator=torch.Generator().manual_seed(4)).to(dtype)
    answers = multiply(x, weight)
    assert answers.dtype == dtype
    expected = x.double() @ dense.double().T
    tolerance = TOLERANCES[dtype]
    bound = tolerance * float(expected.abs().max())
    torch.testing.assert_close(answers.double(), expected, rtol=tolerance, atol=bound)


def _int4_parts(num_inputs: int, num_outputs: int, num_groups: int) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(5)
    numbers = torch.randint(0, 16, (num_inputs, num_outputs), generator=generator)
    zeros = torch.randint(1, 16, (num_groups, num_outputs), generator=generator)
    scales = torch.rand(num_groups, num_outputs, generator=generator).half() / 8
    return numbers, zeros, scales.float()


def _packed(numbers: Tensor, nibbles: tuple[int, ...], dim: int) -> Tensor:
    """Eight neighbours along `dim` in a word, at the nibbles named."""
    words = numbers.unfold(dim, 8, 8)
    shifted = sum(words[..., place] << 4 * nibble for place, nibble in enumerate(nibbles))
    assert isinstance(shifted, Tensor)
    return torch.where(shifted >= 2**31, shifted - 2**32, shifted).to(torch.int32)


IN_ORDER: Final = (0, 1, 2, 3, 4, 5, 6, 7)
AWQ_ORDER: Final = (0, 4, 1, 5, 2, 6, 3, 7)


@pytest.mark.usefixtures("poisoned_memory")
@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("num_rows", NUM_ROWS)
def test_gptq(multiply: Multiply, num_rows: int, dtype: torch.dtype) -> None:
    numbers, zeros, scales = _int4_parts(256, 40, 2)
    weight = int4_product.from_gptq(
        _packed(numbers, IN_ORDER, 0), _packed(zeros - 1, IN_ORDER, 1), scales
    )
    groups = torch.arange(256) // 128
    _check(multiply, weight, ((numbers - zeros[groups]) * scales[groups]).T, num_rows, dtype)


@pytest.mark.parametrize(("num_inputs", "group_size"), [(96, 32), (576, 64), (264, 264)])
def test_awq_with_groups_and_inputs_that_end_within_a_chunk(
    multiply: Multiply, num_inputs: int, group_size: int
) -> None:
    numbers, zeros, scales = _int4_parts(num_inputs, 24, num_inputs // group_size)
    weight = int4_product.from_awq(
        _packed(numbers, AWQ_ORDER, 1), _packed(zeros, AWQ_ORDER, 1), scales
    )
    groups = torch.arange(num_inputs) // group_size
    dense = ((numbers - zeros[groups]) * scales[groups]).T
    torch.testing.assert_close(int4_product.dense(weight), dense.float())
    _check(multiply, weight, dense, 3, torch.bfloat16)


def test_gptq_whose_inputs_were_ordered_by_their_weight_in_the_loss() -> None:
    numbers, zeros, scales = _int4_parts(128, 16, 4)
    g_idx = torch.randperm(128, generator=torch.Generator().manual_seed(6)) // 32
    weight = int4_product.from_gptq(
        _packed(numbers, IN_ORDER, 0),
        _packed(zeros, IN_ORDER, 1),
        scales,
        g_idx.to(torch.int32),
        is_zero_less_one=False,
    )
    dense = ((numbers - zeros[g_idx]) * scales[g_idx]).T
    torch.testing.assert_close(int4_product.dense(weight), dense.float())
    _check(lambda x, some: some.multiply(x), weight, dense, 2, torch.float32)


@triton.jit
def convert(numbers, answers, IS_NATIVE: tl.constexpr):  # noqa: ANN001, ANN201, N803
    places = tl.arange(0, 256)
    tl.store(answers + places, from_bytes(tl.load(numbers + places), IS_NATIVE))


def _byte_weights() -> Iterator[tuple[str, ByteWeight, Tensor]]:
    generator = torch.Generator().manual_seed(7)
    wide = torch.randn(40, 200, generator=generator)
    fp8 = (wide * 20).to(torch.float8_e4m3fn)
    int8 = (wide * 40).clamp(-127, 127).to(torch.int8)
    rows = torch.rand(40, generator=generator)
    groups = torch.rand(40, 4, generator=generator)
    blocks = torch.rand(3, 2, generator=generator)
    spread = groups.repeat_interleave(64, 1)[:, :200]
    tiles = blocks.repeat_interleave(16, 0)[:40].repeat_interleave(128, 1)[:, :200]
    yield "int8 by output", int8_product.from_channels(int8, rows), int8.float() * rows[:, None]
    padded = torch.nn.functional.pad(int8, (0, 56))
    yield (
        "int8 by group",
        int8_product.from_groups(padded, groups),
        padded.float() * torch.nn.functional.pad(spread, (0, 56)),
    )
    yield "fp8 by tensor", fp8_product.from_tensor(fp8, rows[:1]), fp8.float() * rows[0]
    yield "fp8 by output", fp8_product.from_channels(fp8, rows), fp8.float() * rows[:, None]
    yield "fp8 by block", fp8_product.from_blocks(fp8, blocks, (16, 128)), fp8.float() * tiles


@pytest.mark.usefixtures("poisoned_memory")
@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("num_rows", NUM_ROWS)
@pytest.mark.parametrize(
    ("weight", "dense"), [pytest.param(*rest, id=name) for name, *rest in _byte_weights()]
)
def test_bytes(
    multiply: Multiply, weight: ByteWeight, dense: Tensor, num_rows: int, dtype: torch.dtype
) -> None:
    _check(multiply, weight, dense, num_rows, dtype)


def test_inputs_may_be_cut_from_wider_rows(multiply: Multiply) -> None:
    wide = torch.randn(3, 400, generator=torch.Generator().manual_seed(8))
    numbers, zeros, scales = _int4_parts(200, 16, 2)
    int4 = int4_product.from_awq(
        _packed(numbers, AWQ_ORDER, 1), _packed(zeros, AWQ_ORDER, 1), scales
    )
    _, int8, _ = next(_byte_weights())
    for weight in (int4, int8):
        cut = wide[:, 200:]
        assert torch.equal(multiply(cut, weight), multiply(cut.contiguous(), weight))


def test_every_float8_becomes_the_same_float16_with_and_without_the_instruction() -> None:
    numbers = torch.arange(256, dtype=torch.uint8)
    expected = numbers.view(torch.float8_e4m3fn).half()
    is_number = ~expected.isnan()
    for is_native in (True, False):
        answers = torch.empty(256, dtype=torch.float16)
        convert[(1,)](numbers, answers, IS_NATIVE=is_native)
        assert torch.equal(answers[is_number], expected[is_number])
