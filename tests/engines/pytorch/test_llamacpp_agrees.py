"""SmolLM2 from its GGUF file gives the tokens that llama.cpp gives on the same unpacked weights."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from engines.pytorch.kernels.torch_ops import torch_ops
from engines.pytorch.models import load_model
from engines.pytorch.tokenizer import load_tokenizer
from tests.engines.pytorch.llamacpp_steps import open_context, repack, step
from tests.engines.pytorch.paged_steps import PagedSteps
from tests.small_model import PATH

pytestmark = pytest.mark.model

NUM_ANSWER_TOKENS = 6
# Both compute in float32 and add up in their own order: logits were seen to differ by 8e-5.
TIED_LOGITS = 5e-4
_SUBJECTS = ("The sea", "A bank", "Istanbul", "My doctor", "Water", "The old library", "2 + 2",
    "A recipe", "Python", "The moon")  # fmt: skip
_VERBS = (" is", " was never", " can help", ":\n1.", " and the other")
PROMPTS = [subject + verb for subject in _SUBJECTS for verb in _VERBS]


@pytest.fixture(scope="module")
def answers() -> dict[str, list[int]]:
    """Every prompt and our greedy answer to it, as token ids."""
    model = load_model(
        PATH, dtype=torch.float32, device=torch.device("cpu"), ops=torch_ops(), context_tokens=64
    )
    tokenizer = load_tokenizer(PATH)
    texts = {prompt: tokenizer.encode(prompt, markers=False) for prompt in PROMPTS}
    steps = PagedSteps(model, num_blocks=512)
    new = texts
    for _ in range(NUM_ANSWER_TOKENS):
        logits = steps.step(new)
        new = {prompt: [int(rows[-1].argmax())] for prompt, rows in logits.items()}
        texts = {prompt: texts[prompt] + new[prompt] for prompt in texts}
    return texts


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    path = repack(PATH, tmp_path_factory.mktemp("unpacked") / "model.gguf")
    with open_context(path, num_tokens=2048, num_sequences=len(PROMPTS)) as context:
        yield context


def logits_of(context: Any, texts: list[list[int]]) -> list[NDArray[np.float32]]:
    """llama.cpp's logits after the tokens from which each token of an answer was chosen."""
    rows = step(context, dict(enumerate(texts)), num_rows=NUM_ANSWER_TOKENS + 1)
    return np.split(rows, len(texts))


def test_the_same_tokens_as_llamacpp(context: Any, answers: dict[str, list[int]]) -> None:
    """Token by token until the first that differs, which must be as good as the other one."""
    num_equal = 0
    for token_ids, rows in zip(
        answers.values(), logits_of(context, list(answers.values())), strict=True
    ):
        for token_id, row in zip(token_ids[-NUM_ANSWER_TOKENS:], rows, strict=False):
            if row.argmax() != token_id:
                assert row.max() - row[token_id] < TIED_LOGITS
                break
            num_equal += 1
    assert num_equal > 0.95 * len(PROMPTS) * NUM_ANSWER_TOKENS
