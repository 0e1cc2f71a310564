"""Choosing tokens against float64."""

from collections.abc import Iterator

import torch
from msgspec import structs

from engines.pytorch.kernels import sampling
from engines.pytorch.kernels.sampling import SamplingInputs
from tests.gpu.exactness import error_row, kernels, moved
from tests.gpu.machine import Machine
from tests.gpu.rows import Row


def measure(machine: Machine) -> Iterator[Row]:
    """Rows for which another token is chosen than in float64: a weight's last bit may tip one."""
    from engines.pytorch.kernels import sampling_kernel

    kernels(machine)
    num_rows, num_tokens = machine.size(64, 3), machine.size(151_936, 700)
    logits = machine.normal(num_rows, num_tokens, dtype=torch.float32) * 3
    logits[0, 5] = torch.nan
    for name, inputs in _samplings(num_rows, num_tokens).items():
        (on_device,) = moved(machine, inputs)
        token_ids, are_finite = sampling_kernel.choose(logits, on_device)
        expected, expected_finite = sampling.choose(logits.cpu().double(), inputs)
        differs = (token_ids.cpu() != expected) | (are_finite.cpu() != expected_finite)
        yield error_row(f"sampler, {name}: rows that differ", float(differs.float().mean()), 0.04)


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
