"""SmolLM2 from its GGUF file gives the tokens that llama.cpp gives on the same unpacked weights."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import llama_cpp.llama_cpp as llama
import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from engines.llamacpp.library import load_library
from engines.pytorch.kernels.torch_ops import torch_ops
from engines.pytorch.models import load_model
from engines.pytorch.tokenizer import load_tokenizer
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
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same model with every weight in 32 bits."""
    load_library()
    path = tmp_path_factory.mktemp("unpacked") / "model.gguf"
    params = llama.llama_model_quantize_default_params()
    params.ftype = llama.LLAMA_FTYPE_ALL_F32
    params.allow_requantize = True
    params.nthread = 2
    assert llama.llama_model_quantize(str(PATH).encode(), str(path).encode(), params) == 0
    return path


@pytest.fixture(scope="module")
def context(unpacked: Path) -> Iterator[Any]:
    model = llama.llama_model_load_from_file(
        str(unpacked).encode(), llama.llama_model_default_params()
    )
    params = llama.llama_context_default_params()
    params.n_ctx = params.n_batch = params.n_ubatch = 2048
    params.n_seq_max = len(PROMPTS)
    params.kv_unified = True
    params.n_threads = params.n_threads_batch = 2
    params.type_k = params.type_v = 0  # GGML_TYPE_F32
    params.flash_attn_type = llama.LLAMA_FLASH_ATTN_TYPE_DISABLED
    context = llama.llama_init_from_model(model, params)
    yield context
    llama.llama_free(context)
    llama.llama_model_free(model)


def logits_of(context: Any, texts: list[list[int]]) -> list[NDArray[np.float32]]:
    """llama.cpp's logits after the tokens from which each token of an answer was chosen."""
    batch = llama.llama_batch_init(sum(map(len, texts)), 0, 1)
    for sequence, token_ids in enumerate(texts):
        for position, token_id in enumerate(token_ids):
            at = batch.n_tokens
            batch.token[at], batch.pos[at] = token_id, position
            batch.n_seq_id[at], batch.seq_id[at][0] = 1, sequence
            batch.logits[at] = position >= len(token_ids) - NUM_ANSWER_TOKENS - 1
            batch.n_tokens += 1
    assert llama.llama_decode(context, batch) == 0
    llama.llama_batch_free(batch)
    num_tokens = llama.llama_vocab_n_tokens(
        llama.llama_model_get_vocab(llama.llama_get_model(context))
    )
    count = len(texts) * (NUM_ANSWER_TOKENS + 1)
    rows = np.ctypeslib.as_array(llama.llama_get_logits(context), (count, num_tokens))
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
