"""What kernels answer against what is right: rows of an error and what of it is tolerated."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import torch
from msgspec import Struct, structs
from torch import Tensor

from engines.pytorch.ops import Ops
from tests.gpu.machine import Machine
from tests.gpu.rows import Row, Spread

# The norm of what differs over the norm of what is right.
TOLERANCES: Final = {torch.float32: 1e-5, torch.bfloat16: 1e-2, torch.float16: 2e-3}
_T = TypeVar("_T", bound=Struct)


def kernels(machine: Machine) -> Ops:
    """Triton's operations; on a processor they are interpreted."""
    if not machine.has_gpu:
        from tests.engines.pytorch.interpreter import mend_bfloat16

        mend_bfloat16()
    from engines.pytorch.kernels.triton_ops import triton_ops

    torch.manual_seed(0)
    return triton_ops()


def moved(machine: Machine, *values: _T) -> list[Any]:
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
def poisoned_memory() -> Iterator[None]:
    """Memory that torch hands out unwritten is full of NaN, so what a kernel leaves out shows."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = True
    yield
    torch.use_deterministic_algorithms(False)


def type_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def answers_row(what: str, answers: Tensor, expected: Tensor) -> Row:
    return error_row(what, error_of(answers, expected), TOLERANCES[answers.dtype])


def equal_row(what: str, answers: Tensor, expected: Tensor) -> Row:
    return error_row(what, error_of(answers, expected), 0.0)


def error_of(answers: Tensor, expected: Tensor) -> float:
    """The norm of the difference over that of what is right; infinite where any is no number."""
    found, wanted = answers.cpu().double(), expected.cpu().double()
    if not found.isfinite().all():
        return torch.inf
    return float((found - wanted).norm() / wanted.norm().clamp_min(1e-30))


def error_row(what: str, error: float, tolerance: float, goal: str = "") -> Row:
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
