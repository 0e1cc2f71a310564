"""Kernels compiled for a GPU that is not there, by the launchers that run them.

A launcher is called with tensors that have a shape and no memory; the kernel is specialised and
compiled as it would be on the chip, and not run.
"""

import re
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import triton
from msgspec import Struct
from triton.backends.compiler import GPUTarget
from triton.runtime.driver import driver
from triton.runtime.jit import JITFunction

from engines.pytorch.kernels.chip import Chip, assume

_CUOBJDUMP: Final = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"


class Compiled(Struct, frozen=True, kw_only=True):
    """One kernel as it would run: what it takes of the chip."""

    name: str
    key: str
    num_registers: int
    spilled_bytes: int
    shared_bytes: int
    num_warps: int


class _Absent:
    """A driver of a chip that compiles for it; each chip counts as a device of its own."""

    def __init__(self, chip: Chip) -> None:
        self._capability = chip.capability

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", self._capability, 32)

    def get_current_device(self) -> int:
        return self._capability

    def get_current_stream(self, _device: int) -> int:
        return 0


@contextmanager
def compiling_for(chip: Chip) -> Iterator[dict[str, Any]]:
    """Inside, launches compile only; the kernels they have asked for, by their hash."""
    kernels: dict[str, Any] = {}
    run = JITFunction.run

    def compile_only(self: Any, *args: Any, grid: Any, warmup: bool, **options: Any) -> Any:
        del warmup
        kernel = run(self, *args, grid=grid, warmup=True, **options)
        kernels[kernel.hash] = kernel
        return kernel

    JITFunction.run = compile_only
    driver.set_active(_Absent(chip))
    try:
        with assume(chip):
            yield kernels
    finally:
        JITFunction.run = run


def read(kernel: Any) -> Compiled:
    """What the binary of a kernel takes."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(kernel.asm["cubin"])
        file.flush()
        command = [str(_CUOBJDUMP), "--dump-resource-usage", file.name]
        told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    usage = dict(re.findall(r"([A-Z]+):(\d+)", told))
    return Compiled(
        name=kernel.metadata.name,
        key=kernel.hash,
        num_registers=int(usage["REG"]),
        spilled_bytes=int(usage["STACK"]) + int(usage["LOCAL"]),
        shared_bytes=kernel.metadata.shared,
        num_warps=kernel.metadata.num_warps,
    )
