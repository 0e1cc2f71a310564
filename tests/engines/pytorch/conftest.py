"""Kernels run in Triton's interpreter here, which has to be chosen before triton is imported."""

import os
import sys
from collections.abc import Iterator

import pytest
import torch

assert "triton" not in sys.modules, "triton was imported before its interpreter was chosen"
os.environ["TRITON_INTERPRET"] = "1"
os.environ["TRITON_DEFAULT_FP_FUSION"] = "0"

from tests.engines.pytorch.interpreter import mend_bfloat16  # noqa: E402

torch.set_num_threads(2)
mend_bfloat16()


@pytest.fixture
def poisoned_memory() -> Iterator[None]:
    """Memory that torch hands out unwritten is full of NaN, so what a kernel leaves out shows."""
    torch.use_deterministic_algorithms(True, warn_only=False)
    torch.utils.deterministic.fill_uninitialized_memory = True
    yield
    torch.use_deterministic_algorithms(False)
