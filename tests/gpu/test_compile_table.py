"""Kernels fit the chips they are meant for, as far as that can be told without one."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any, Final

import pytest

# Shared memory that one program may have (CUDA C++ Programming Guide, technical specifications).
CHIPS: Final = {"A100": 166912, "H200": 232448, "B200": 232448}
# Attention in its four kernels, storing, turning, norm and activation.
MOST_KERNELS: Final = 9


@pytest.fixture(scope="module")
def tables() -> Iterator[dict[str, Any]]:
    """What `compile_table` tells of every chip, all compiled at the same time."""
    environment = {**os.environ, "TRITON_DEFAULT_FP_FUSION": "1"}
    environment.pop("TRITON_INTERPRET", None)
    command = [sys.executable, "-m", "tests.gpu.compile_table", "--json"]
    running = [
        subprocess.Popen([*command, chip], env=environment, stdout=subprocess.PIPE, text=True)
        for chip in CHIPS
    ]
    told = [process.communicate()[0] for process in running]
    assert not any(process.returncode for process in running)
    yield {table["chip"]: table for table in map(json.loads, told)}


@pytest.mark.parametrize("chip", CHIPS)
def test_no_kernel_spills_registers_or_wants_more_shared_memory_than_there_is(
    tables: dict[str, Any], chip: str
) -> None:
    for kernel in tables[chip]["kernels"]:
        assert kernel["spilled_bytes"] == 0, kernel
        assert kernel["shared_bytes"] <= CHIPS[chip], kernel


@pytest.mark.parametrize("chip", CHIPS)
def test_lengths_and_batch_sizes_compile_nothing_anew(tables: dict[str, Any], chip: str) -> None:
    assert tables[chip]["mixed"] <= MOST_KERNELS
