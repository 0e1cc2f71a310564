"""Every kernel on the device against float64."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import torch
from msgspec import Struct, structs
from torch import Tensor

from engines.pytorch.kernels import (
    byte_product,
    fp8_product,
    int4_product,
    int8_product,
    kv_store,
    sampling,
)
from engines.pytorch.kernels.byte_product import ByteWeight
from engines.pytorch.kernels.int4_product import CHUNK, WORDS, Int4Weight
from engines.pytorch.kernels.sampling import SamplingInputs
from engines.pytorch.kv_cache import KvShape, LayerCache, allocate
from engines.pytorch.ops import AttentionShape, Ops, Rotation
from tests.engines.pytorch.kernels import exact
from tests.engines.pytorch.kernels.steps import Heads, make_step
from tests.gpu.machine import Machine
from tests.gpu.rows import Row, Spread

# The norm of what differs over the norm of what is right.
_TOLERANCES: Final = {torch.float32: 1e-5, torch.bfloat16: 1e-2, torch.float16: 2e-3}
_FP8: Final = torch.float8_e4m3fn
# New tokens of a sequence, and its tokens after the step: decoding, a first token, a prompt,
# padding, a later part, nothing new, drafts.
_MIXED: Final = [(1, 37), (1, 1), (21, 21), (1, 0), (19, 40), (0, 9), (4, 30)]
_LONG: Final = [(1, 5000), (300, 300), (1, 700), (130, 1500), (1, 4096), (8, 900)]
_T = TypeVar("_T", bound=Struct)


def measure(machine: Machine) -> Iterator[Row]:
    """A row a kernel and type."""
    _mend_interpreter(machine)
    from engines.pytorch.kernels.triton_ops import triton_ops

    torch.manual_seed(0)
    ops = triton_ops()
    dtypes = [torch.bfloat16] if machine.is_small else list(_TOLERANCES)
    for dtype in dtypes:
        yield from _small_operations(machine, ops, dtype)
    yield from _stores(machine, ops)
    yield from _attention(machine, ops)
    yield _needle(machine, ops)
    yield from _products(machine, dtypes)
    yield from _samplers(machine)


def _mend_interpreter(machine: Machine) -> None:
    if not machine.has_gpu:
        from tests.engines.pytorch.interpreter import mend_bfloat16

        mend_bfloat16()


def _small_operations(machine: Machine, ops: Ops, dtype: torch.dtype) -> Iterator[Row]:
    rows, size = machine.size(37, 3), machine.size(4096, 96)
    x, residual = machine.normal(rows, size, dtype=dtype), machine.normal(rows, size, dtype=dtype)
    weight = machine.normal(size, dtype=torch.float32)
    with _poisoned_memory():
        normed = ops.rms_norm(x, weight, 1e-5)
        added, total = ops.add_rms_norm(x, residual, weight, 1e-5)
        activated = {"silu": ops.silu_mul(x), "gelu": ops.gelu_mul(x)}
    yield _row(f"norm, {_name(dtype)}", normed, exact.rms_norm(x.cpu(), weight.cpu(), 1e-5))
    expected = exact.rms_norm((x + residual).cpu(), weight.cpu(), 1e-5)
    yield _row(f"sum and norm, {_name(dtype)}", added, expected)
    yield _equal_row(f"sum, {_name(dtype)}", total, x + residual)
    yield _row(f"silu, {_name(dtype)}", activated["silu"], exact.silu_mul(x.cpu()))
    yield _row(f"gelu, {_name(dtype)}", activated["gelu"], exact.gelu_mul(x.cpu()))
    yield _rotation(machine, ops, dtype)


def _rotation(machine: Machine, ops: Ops, dtype: torch.dtype) -> Row:
    head_dim, rows = machine.size(128, 16), machine.size(37, 3)
    angles = machine.normal(64, head_dim // 2, dtype=torch.float32)
    weight = machine.normal(head_dim, dtype=torch.float32)
    rotation = Rotation(
        cosines=angles.cos(), sines=angles.sin(), query_norm=weight, key_norm=weight
    )
    heads = machine.normal(rows, 10, head_dim, dtype=dtype)
    positions = torch.randint(0, 64, (rows,), device=machine.device)
    with _poisoned_memory():
        turned = torch.cat(ops.rotate(heads[:, :8], heads[:, 8:], positions, rotation), dim=1)
    normed = exact.rms_norm(heads.cpu(), weight.cpu(), rotation.eps).to(dtype)
    expected = exact.rotate(normed, angles.cos().cpu(), angles.sin().cpu(), positions.cpu())
    return _row(f"norm and rotation of heads, {_name(dtype)}", turned, expected)


def _stores(machine: Machine, ops: Ops) -> Iterator[Row]:
    """What is stored in 16 bits is what was given; in 8, the nearest but for a scale's last bit."""
    num_tokens, head_dim = machine.size(100, 5), machine.size(128, 16)
    keys, values = (machine.normal(num_tokens, 4, head_dim, dtype=torch.bfloat16) for _ in "kv")
    slots = torch.randperm(num_tokens + 28, device=machine.device)[:num_tokens]
    slots[::5] = -1
    for dtype in (torch.bfloat16, _FP8):
        shape = KvShape(num_layers=1, num_kv_heads=4, head_dim=head_dim, dtype=dtype)
        num_blocks = (num_tokens + 28) // 16 + 1
        stored, expected = (
            allocate(shape, num_blocks=num_blocks, block_size=16, device=torch.device(device))[0]
            for device in (machine.device, "cpu")
        )
        ops.store_kv(stored, keys, values, slots)
        kv_store.store_kv(expected, keys.cpu(), values.cpu(), slots.cpu())
        answers, wanted = (torch.stack(_numbers(cache)) for cache in (stored, expected))
        what = f"keys and values stored, {_name(dtype)}"
        tolerance = 5e-3 if dtype == _FP8 else 0.0
        yield _error_row(what, _error(answers, wanted), tolerance)


def _numbers(cache: LayerCache) -> list[Tensor]:
    """What is in it, scaled back, on the processor."""
    pairs = ((cache.keys, cache.key_scales), (cache.values, cache.value_scales))
    return [
        store.cpu().double() * (1.0 if scales is None else scales.cpu().double()[..., None])
        for store, scales in pairs
    ]


class _Attention(Struct, frozen=True, kw_only=True):
    """Attention of one kind of model."""

    heads: Heads
    window: int = 0
    soft_cap: float = 0.0


def _heads(
    num_heads: int,
    num_kv_heads: int,
    head_dim: int,
    dtype: torch.dtype = torch.bfloat16,
    cache_dtype: torch.dtype | None = None,
) -> Heads:
    return Heads(
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_dim=head_dim,
        dtype=dtype,
        cache_dtype=cache_dtype,
    )


_SMALL_ATTENTION: Final = (
    _Attention(heads=_heads(4, 2, 16)),
    _Attention(heads=_heads(4, 2, 16, torch.float16, _FP8), window=9, soft_cap=30.0),
)
_FULL_ATTENTION: Final = (
    _Attention(heads=_heads(16, 2, 128)),
    _Attention(heads=_heads(16, 2, 128, torch.float16)),
    _Attention(heads=_heads(16, 2, 128, cache_dtype=_FP8)),
    _Attention(heads=_heads(16, 2, 128, torch.float16, _FP8)),
    _Attention(heads=_heads(16, 2, 128), window=600),
    _Attention(heads=_heads(8, 4, 256), window=100, soft_cap=50.0),
    _Attention(heads=_heads(9, 3, 64)),
    _Attention(heads=_heads(4, 4, 80)),
    _Attention(heads=_heads(4, 4, 96, torch.float32)),
)


def _attention(machine: Machine, ops: Ops) -> Iterator[Row]:
    for kind in _SMALL_ATTENTION if machine.is_small else _FULL_ATTENTION:
        shape = AttentionShape(
            scale=kind.heads.head_dim**-0.5, window=kind.window, soft_cap=kind.soft_cap
        )
        batches = {"short": _MIXED} if machine.is_small else {"short": _MIXED, "long": _LONG}
        for name, lengths in batches.items():
            step = make_step(kind.heads, lengths)
            queries, cache, inputs = step[0].to(machine.device), *_moved(machine, *step[1:])
            with _poisoned_memory():
                answers = ops.attend(queries, cache, inputs, shape)
            yield _row(
                f"attention, {name} sequences, {_described(kind)}",
                answers,
                exact.attend(*step, shape),
            )


def _described(kind: _Attention) -> str:
    heads = kind.heads
    parts = [
        f"{heads.num_heads}/{heads.num_kv_heads} heads of {heads.head_dim}",
        _name(heads.dtype),
    ]
    parts += [f"cache {_name(heads.cache_dtype)}"] if heads.cache_dtype else []
    parts += [f"window {kind.window}"] if kind.window else []
    parts += ["soft cap"] if kind.soft_cap else []
    return ", ".join(parts)


def _needle(machine: Machine, ops: Ops) -> Row:
    """One key that the query is after, beside values a million times those that lie at it."""
    length = machine.size(32_768, 600)
    queries, cache, inputs = make_step(_heads(1, 1, 64, torch.float32, _FP8), [(1, length)])
    block, offset = int(inputs.block_tables[0, length // 32]), 7
    assert cache.key_scales is not None
    assert cache.value_scales is not None
    cache.value_scales.mul_(1e3)
    cache.value_scales[block, 0, offset] = 1e-3
    cache.key_scales[block, 0, offset] *= 50
    queries[0, 0] = cache.keys[block, 0, offset].float()
    shape = AttentionShape(scale=1.0)
    moved_cache, moved_inputs = _moved(machine, cache, inputs)
    answers = ops.attend(queries.to(machine.device), moved_cache, moved_inputs, shape)
    error = _error(answers, exact.attend(queries, cache, inputs, shape))
    return _error_row(f"a needle among {length} tokens in 8 bits", error, 1e-2, goal="G4")


def _products(machine: Machine, dtypes: list[torch.dtype]) -> Iterator[Row]:
    num_outputs, num_inputs = machine.size(1024, 64), machine.size(4096, 128)
    for name, weight, dense in _weights(machine, num_outputs, num_inputs):
        for dtype in dtypes:
            for num_rows in (1,) if machine.is_small else (1, 33, 129):
                x = machine.normal(num_rows, num_inputs, dtype=dtype)
                with _poisoned_memory():
                    answers = _multiply(x, weight)
                expected = x.cpu().double() @ dense.cpu().double().T
                yield _row(f"{name} product, {num_rows} rows, {_name(dtype)}", answers, expected)


def _multiply(x: Tensor, weight: Int4Weight | ByteWeight) -> Tensor:
    from engines.pytorch.kernels import byte_product_kernel, int4_product_kernel

    if isinstance(weight, Int4Weight):
        return int4_product_kernel.multiply(x, weight)
    return byte_product_kernel.multiply(x, weight)


def _weights(
    machine: Machine, num_outputs: int, num_inputs: int
) -> Iterator[tuple[str, Int4Weight | ByteWeight, Tensor]]:
    device = machine.device
    for group_size in (128, 64):
        groups = (num_outputs, num_inputs // group_size)
        size = (num_outputs, num_inputs // CHUNK * WORDS)
        int4 = Int4Weight(
            words=torch.randint(-(2**31), 2**31, size, device=device).to(torch.int32),
            scales=torch.rand(groups, device=device).half() / 8,
            zeros=torch.randint(1, 16, groups, device=device).half(),
            num_inputs=num_inputs,
            group_size=group_size,
        )
        yield f"int4 by {group_size}", int4, int4_product.dense(int4)
    numbers = torch.randint(-127, 128, (num_outputs, num_inputs), device=device).to(torch.int8)
    int8 = int8_product.from_channels(numbers, torch.rand(num_outputs, device=device))
    yield "int8", int8, byte_product.dense(int8)
    small = machine.normal(num_outputs, num_inputs, dtype=torch.float32).to(_FP8)
    block = (num_outputs // 2, 64)
    scales = torch.rand((2, num_inputs // 64), device=device)
    for name, fp8 in (
        ("fp8 by blocks", fp8_product.from_blocks(small, scales, block)),
        ("fp8", fp8_product.from_tensor(small, scales[0, 0])),
    ):
        yield name, fp8, byte_product.dense(fp8)


def _samplers(machine: Machine) -> Iterator[Row]:
    """Rows for which another token is chosen than in float64: a weight's last bit may tip one."""
    from engines.pytorch.kernels import sampling_kernel

    num_rows, num_tokens = machine.size(64, 3), machine.size(151_936, 700)
    logits = machine.normal(num_rows, num_tokens, dtype=torch.float32) * 3
    logits[0, 5] = torch.nan
    for name, inputs in _samplings(num_rows, num_tokens).items():
        (moved,) = _moved(machine, inputs)
        token_ids, are_finite = sampling_kernel.choose(logits, moved)
        expected, expected_finite = sampling.choose(logits.cpu().double(), inputs)
        differs = (token_ids.cpu() != expected) | (are_finite.cpu() != expected_finite)
        yield _error_row(f"sampler, {name}: rows that differ", float(differs.float().mean()), 0.04)


def _samplings(num_rows: int, num_tokens: int) -> dict[str, SamplingInputs]:
    plain = SamplingInputs(
        temperatures=torch.full((num_rows,), 0.8),
        top_ks=torch.zeros(num_rows, dtype=torch.int32),
        top_ps=torch.ones(num_rows),
        min_ps=torch.zeros(num_rows),
        seeds=torch.arange(num_rows) * 7919,
        positions=torch.arange(num_rows),
        is_greedy=False,
        is_truncated=False,
    )
    words = torch.randint(-(2**31), 2**31, (num_rows, -(-num_tokens // 32))).to(torch.int32)
    cut = {"is_truncated": True, "top_ps": torch.full((num_rows,), 0.9)}
    return {
        "greedy": structs.replace(plain, is_greedy=True),
        "drawn": plain,
        "top_k": structs.replace(
            plain, is_truncated=True, top_ks=torch.full((num_rows,), 40, dtype=torch.int32)
        ),
        "top_p under a grammar": structs.replace(plain, allowed=words, **cut),
        "min_p": structs.replace(plain, is_truncated=True, min_ps=torch.full((num_rows,), 0.05)),
    }


def _moved(machine: Machine, *values: _T) -> list[Any]:
    """The same with their tensors on the device."""
    return [
        structs.replace(
            value,
            **{
                name: tensor.to(machine.device)
                for name, tensor in structs.asdict(value).items()
                if isinstance(tensor, Tensor)
            },
        )
        for value in values
    ]


@contextmanager
def _poisoned_memory() -> Iterator[None]:
    """Memory that torch hands out unwritten is full of NaN, so what a kernel leaves out shows."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = True
    yield
    torch.use_deterministic_algorithms(False)


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _row(what: str, answers: Tensor, expected: Tensor) -> Row:
    return _error_row(what, _error(answers, expected), _TOLERANCES[answers.dtype])


def _equal_row(what: str, answers: Tensor, expected: Tensor) -> Row:
    return _error_row(what, _error(answers, expected), 0.0)


def _error(answers: Tensor, expected: Tensor) -> float:
    """The norm of the difference over that of what is right; infinite where any is no number."""
    found, wanted = answers.cpu().double(), expected.cpu().double()
    if not found.isfinite().all():
        return torch.inf
    return float((found - wanted).norm() / wanted.norm().clamp_min(1e-30))


def _error_row(what: str, error: float, tolerance: float, goal: str = "") -> Row:
    return Row(
        goal=goal,
        what=what,
        floor=tolerance,
        ours=Spread(error, error, error),
        ratio=error / tolerance if tolerance else error,
        aim=1.0 if tolerance else 0.0,
        is_most=True,
        needs_gpu=False,
    )
