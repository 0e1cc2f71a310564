"""GGUF files of every architecture give the logits that llama.cpp gives, in 32 bits and packed."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import llama_cpp.llama_cpp as llama
import numpy as np
import pytest
import torch
from torch import Tensor

from engines.pytorch.kernels.torch_ops import torch_ops
from engines.pytorch.models import load_model
from tests.engines.llamacpp.llama_file import NUM_TOKENS
from tests.engines.pytorch import gguf_models, llamacpp_steps
from tests.engines.pytorch.paged_steps import PagedSteps

TOKENS = np.random.default_rng(5).integers(NUM_TOKENS, size=30).tolist()
PROMPT_TOKENS = 24
# Both compute in float32; logits, a few units large, were seen to differ by 1e-5.
TOLERANCE = 1e-4
# llama.cpp looks GELU up in a table of 16-bit numbers: 2e-3, and 5e-3 after 46 layers.
TOLERANCE_OF_TABLE = 1e-2
FORMATS = {"F32": llama.LLAMA_FTYPE_ALL_F32, "Q4_K_M": llama.LLAMA_FTYPE_MOSTLY_Q4_K_M}


class Both:
    """A file on our engine, and its weights, as llama.cpp unpacks them, in llama.cpp."""

    def __init__(self, path: Path, context: Any) -> None:
        device = torch.device("cpu")
        model = load_model(path, dtype=torch.float32, device=device, ops=torch_ops())
        self._steps = PagedSteps(model)
        self._context = context
        self._start = 0

    def step(self, token_ids: list[int]) -> tuple[Tensor, Tensor]:
        """The logits after each of the next tokens: ours, and theirs."""
        ours = self._steps.step({"text": token_ids})["text"]
        theirs = llamacpp_steps.step(
            self._context, {0: token_ids}, start=self._start, num_rows=len(token_ids)
        )
        self._start += len(token_ids)
        return ours, torch.from_numpy(theirs)


@pytest.fixture(params=FORMATS)
def both(request: pytest.FixtureRequest, name: str, tmp_path: Path) -> Iterator[Both]:
    path = plain = gguf_models.write(name, tmp_path / "plain.gguf")
    if request.param != "F32":
        path = llamacpp_steps.repack(plain, tmp_path / "packed.gguf", FORMATS[request.param])
        plain = llamacpp_steps.repack(path, tmp_path / "unpacked.gguf")
    with llamacpp_steps.open_context(plain, num_tokens=64) as context:
        yield Both(path, context)


@pytest.mark.parametrize("name", gguf_models.MODELS)
def test_a_prompt_and_an_answer_token_by_token(name: str, both: Both) -> None:
    tolerance = TOLERANCE_OF_TABLE if name.startswith("gemma") else TOLERANCE
    steps = [TOKENS[:PROMPT_TOKENS], *([token_id] for token_id in TOKENS[PROMPT_TOKENS:])]
    for token_ids in steps:
        ours, theirs = both.step(token_ids)
        torch.testing.assert_close(ours, theirs, atol=tolerance, rtol=0)
