"""What the GPU at hand has, as far as kernels are cut to fit it."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Final

import torch
from msgspec import Struct

# Ada and Hopper are the first with instructions for float8.
_FLOAT8_CAPABILITY: Final = 89


class Chip(Struct, frozen=True, kw_only=True):
    """A GPU.

    - `capability`: 90 for sm_90
    - `num_processors`: streaming multiprocessors
    - `shared_bytes`: shared memory of one of them; `program_bytes`: how much one program may have
    """

    capability: int
    num_processors: int
    shared_bytes: int
    program_bytes: int

    @property
    def has_float8(self) -> bool:
        """Whether it converts float8_e4m3fn itself."""
        return self.capability >= _FLOAT8_CAPABILITY


# Those that kernels are compiled for without one at hand (CUDA C++ Programming Guide, table of
# technical specifications), and where they are interpreted.
A100: Final = Chip(capability=80, num_processors=108, shared_bytes=167936, program_bytes=166912)
H200: Final = Chip(capability=90, num_processors=132, shared_bytes=233472, program_bytes=232448)
B200: Final = Chip(capability=100, num_processors=148, shared_bytes=233472, program_bytes=232448)
_INTERPRETED: Final = Chip(capability=0, num_processors=1, shared_bytes=1, program_bytes=1)

_assumed: ContextVar[Chip | None] = ContextVar("_assumed", default=None)


def chip_of(device: torch.device) -> Chip:
    """The chip that a device is, unless another one is assumed."""
    return _assumed.get() or _ask(device)


@contextmanager
def assume(chip: Chip) -> Iterator[None]:
    """Let kernels be cut for `chip`, whatever is at hand."""
    token = _assumed.set(chip)
    yield
    _assumed.reset(token)


@cache
def _ask(device: torch.device) -> Chip:
    if device.type != "cuda":
        return _INTERPRETED
    facts = torch.cuda.get_device_properties(device)
    return Chip(
        capability=facts.major * 10 + facts.minor,
        num_processors=facts.multi_processor_count,
        shared_bytes=facts.shared_memory_per_multiprocessor,
        program_bytes=facts.shared_memory_per_block_optin,
    )
