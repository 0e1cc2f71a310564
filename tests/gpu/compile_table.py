"""`python -m tests.gpu.compile_table`: every kernel compiled for chips that are not at hand.

Prints, for each kernel and chip, registers a thread, bytes spilled and shared memory a program, and
then how many kernels a mixed workload needs. Takes a chip's name to do only that.
"""

import json
import random
import sys
from collections.abc import Callable
from typing import Final

import msgspec
import torch
from torch import Tensor

from engines.pytorch.kernels.byte_product import ByteWeight
from engines.pytorch.kernels.byte_product_kernel import multiply as multiply_bytes
from engines.pytorch.kernels.chip import A100, B200, H200, Chip
from engines.pytorch.kernels.int4_product import Int4Weight
from engines.pytorch.kernels.int4_product_kernel import multiply as multiply_int4
from engines.pytorch.kernels.sampling import SamplingInputs
from engines.pytorch.kernels.sampling_kernel import choose
from engines.pytorch.kernels.triton_ops import triton_ops
from engines.pytorch.kv_cache import KvShape, LayerCache, allocate
from engines.pytorch.ops import AttentionShape, Rotation
from engines.pytorch.step_inputs import StepInputs
from tests.gpu.ahead import Compiled, compiling_for, read

CHIPS: Final = {"A100": A100, "H200": H200, "B200": B200}
_META: Final = torch.device("meta")
_OPS: Final = triton_ops()
_PLAIN: Final = AttentionShape(scale=0.1)


def _numbers(*size: int, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    return torch.empty(size, dtype=dtype, device=_META)


def _inputs(num_sequences: int, num_tokens: int, longest: int, width: int) -> StepInputs:
    def ids(*size: int) -> Tensor:
        return _numbers(*size, dtype=torch.int32)

    return StepInputs(
        token_ids=_numbers(num_tokens, dtype=torch.int64),
        positions=_numbers(num_tokens, dtype=torch.int64),
        slots=_numbers(num_tokens, dtype=torch.int64),
        query_starts=ids(num_sequences + 1),
        context_lengths=ids(num_sequences),
        block_tables=ids(num_sequences, width),
        output_rows=_numbers(num_sequences, dtype=torch.int64),
        max_query_length=longest,
    )


def _cache(num_kv_heads: int, head_dim: int, dtype: torch.dtype) -> LayerCache:
    shape = KvShape(num_layers=1, num_kv_heads=num_kv_heads, head_dim=head_dim, dtype=dtype)
    (cache,) = allocate(shape, num_blocks=64, block_size=16, device=_META)
    return cache


def _attend(
    num_heads: int,
    num_kv_heads: int,
    head_dim: int,
    dtype: torch.dtype = torch.bfloat16,
    shape: AttentionShape = _PLAIN,
    longest: int = 100,
) -> None:
    num_tokens = longest + 3
    queries = _numbers(num_tokens, num_heads, head_dim)
    inputs = _inputs(4, num_tokens, longest, 100)
    _OPS.attend(queries, _cache(num_kv_heads, head_dim, dtype), inputs, shape)


def _attention() -> None:
    """Heads as in Llama 3 and Qwen 3, SmolLM2, Gemma 3, Phi 3 mini (of size 96)."""
    local = AttentionShape(scale=0.1, window=1024, soft_cap=50.0)
    for dtype in (torch.bfloat16, torch.float8_e4m3fn):
        _attend(32, 8, 128, dtype)
    _attend(8, 4, 256, torch.float8_e4m3fn, local)
    _attend(9, 3, 64, longest=1)
    _attend(32, 32, 96, shape=local, longest=1)


def _between() -> None:
    x = _numbers(5, 4096)
    _OPS.rms_norm(x, x[0], 1e-6)
    _OPS.add_rms_norm(x, x, x[0], 1e-6)
    _OPS.silu_mul(_numbers(5, 2 * 14336))
    _OPS.gelu_mul(_numbers(5, 2 * 14336))
    for head_dim, norm in ((128, _numbers(128)), (64, None)):
        angles = _numbers(4096, head_dim // 2, dtype=torch.float32)
        rotation = Rotation(cosines=angles, sines=angles, query_norm=norm, key_norm=norm)
        rows = _numbers(5, 12, head_dim)
        _OPS.rotate(rows[:, :8], rows[:, 8:10], _numbers(5, dtype=torch.int64), rotation)
    for dtype in (torch.bfloat16, torch.float8_e4m3fn):
        heads = _numbers(5, 8, 128)
        _OPS.store_kv(_cache(8, 128, dtype), heads, heads, _numbers(5, dtype=torch.int64))


def _sampling() -> None:
    def row(dtype: torch.dtype) -> Tensor:
        return _numbers(4, dtype=dtype)

    for is_greedy, is_truncated, has_mask in (
        (True, False, False),
        (True, False, True),
        (False, False, False),
        (False, True, True),
    ):
        inputs = SamplingInputs(
            temperatures=row(torch.float32),
            top_ks=row(torch.int32),
            top_ps=row(torch.float32),
            min_ps=row(torch.float32),
            seeds=row(torch.int64),
            positions=row(torch.int64),
            is_greedy=is_greedy,
            is_truncated=is_truncated,
            allowed=_numbers(4, 4009, dtype=torch.int32) if has_mask else None,
        )
        choose(_numbers(4, 128256, dtype=torch.float32), inputs)


def _products() -> None:
    int4 = Int4Weight(
        words=_numbers(4096, 512, dtype=torch.int32),
        scales=_numbers(4096, 32, dtype=torch.float16),
        zeros=_numbers(4096, 32, dtype=torch.float16),
        num_inputs=4096,
        group_size=128,
    )
    for num_rows in (1, 33, 200):
        x = _numbers(num_rows, 4096)
        multiply_int4(x, int4)
        for dtype, block in ((torch.int8, (1, 4096)), (torch.float8_e4m3fn, (128, 128))):
            weight = ByteWeight(
                numbers=_numbers(4096, 4096, dtype=dtype),
                scales=_numbers(4096 // block[0], 4096 // block[1], dtype=torch.float32),
                block_outputs=block[0],
                block_inputs=block[1],
            )
            multiply_bytes(x, weight)


_GROUPS: Final[tuple[Callable[[], None], ...]] = (_attention, _between, _sampling, _products)


def compile_all(chip: Chip) -> list[Compiled]:
    """Every kernel, as it would be on the chip."""
    with compiling_for(chip) as kernels:
        for group in _GROUPS:
            group()
    return sorted(map(read, kernels.values()), key=lambda compiled: compiled.name)


def count_of_mixed_workload(chip: Chip, num_steps: int) -> int:
    """Kernels that steps of one model need whose sequences and lengths are drawn at random."""
    numbers = random.Random(0)  # noqa: S311
    cache = _cache(8, 128, torch.bfloat16)
    angles = _numbers(4096, 64, dtype=torch.float32)
    with compiling_for(chip) as kernels:
        for _ in range(num_steps):
            num_sequences = numbers.randint(1, 300)
            longest = numbers.choice((1, 1, 4, numbers.randint(5, 2000)))
            num_tokens = num_sequences + longest - 1
            inputs = _inputs(num_sequences, num_tokens, longest, numbers.randint(1, 2048))
            x = _numbers(num_tokens, 4096)
            heads = _numbers(num_tokens, 48, 128)
            rotation = Rotation(cosines=angles, sines=angles)
            _OPS.add_rms_norm(x, x, x[0], 1e-6)
            queries, keys = _OPS.rotate(heads[:, :32], heads[:, 32:40], inputs.positions, rotation)
            _OPS.store_kv(cache, keys, heads[:, 40:], inputs.slots)
            _OPS.attend(queries, cache, inputs, AttentionShape(scale=0.1))
            _OPS.silu_mul(_numbers(num_tokens, 2048))
    return len(kernels)


def _print(name: str, compiled: list[Compiled]) -> None:
    for one in compiled:
        sys.stdout.write(
            f"{name:6}{one.name:14}{one.num_warps:3} warps {one.num_registers:4} registers"
            f" {one.spilled_bytes:6} spilled {one.shared_bytes:8} shared\n"
        )


def main(names: list[str]) -> None:
    """The tables of the chips named, all by default; with `--json`, as one line of JSON a chip."""
    is_json = "--json" in names
    for name in [name for name in names if name in CHIPS] or list(CHIPS):
        compiled = compile_all(CHIPS[name])
        num_mixed = count_of_mixed_workload(CHIPS[name], num_steps=100)
        if is_json:
            rows = msgspec.to_builtins(compiled)
            sys.stdout.write(json.dumps({"chip": name, "mixed": num_mixed, "kernels": rows}) + "\n")
        else:
            _print(name, compiled)
            sys.stdout.write(f"{name:6}a mixed workload needs {num_mixed} kernels\n")


if __name__ == "__main__":
    main(sys.argv[1:])
