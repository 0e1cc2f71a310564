"""A whole model's logits against those of `transformers` in float32, next to its own in 16 bits."""

from collections.abc import Iterator
from random import Random
from typing import Final

import torch
from msgspec import structs
from torch import Tensor

from engines.pytorch.kv_blocks import BLOCK_TOKENS
from engines.pytorch.kv_cache import allocate
from engines.pytorch.memory_profile import step_of
from engines.pytorch.memory_sizes import num_blocks_for
from engines.pytorch.models import load_model
from tests.gpu.answering import random_ids
from tests.gpu.exactness import error_of, error_row
from tests.gpu.machine import Machine
from tests.gpu.random_models import small_model_folder, small_vocabulary
from tests.gpu.rows import Row

# How much further from float32 than transformers is in the same type, and at least how far.
_TIMES: Final = 1.5
_LEAST: Final = 1e-4


@torch.inference_mode()
def measure(machine: Machine) -> Iterator[Row]:
    """Of a prompt at once, and of its last token after all others."""
    length = machine.size(700, 30)
    numbers = Random(6)  # noqa: S311
    drawn = random_ids(numbers, length, small_vocabulary(machine))
    token_ids = torch.tensor(drawn, device=machine.device)
    right = _of_transformers(machine, token_ids, torch.float32)
    theirs = error_of(_of_transformers(machine, token_ids, machine.dtype), right)
    prompt, last = _ours(machine, token_ids)
    tolerance = max(_LEAST, _TIMES * theirs)
    yield error_row(f"0.6B, logits of {length} tokens", error_of(prompt, right), tolerance)
    yield error_row("0.6B, logits of the last again", error_of(last, right[-1:]), tolerance)


def _of_transformers(machine: Machine, token_ids: Tensor, dtype: torch.dtype) -> Tensor:
    import transformers

    folder = small_model_folder(machine)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)
    logits: Tensor = model.to(device=machine.device)(token_ids[None]).logits[0]
    return logits.cpu()


def _ours(machine: Machine, token_ids: Tensor) -> tuple[Tensor, Tensor]:
    """The logits of all tokens, computed at once, and of the last one by itself."""
    folder = small_model_folder(machine)
    model = load_model(folder, dtype=machine.dtype, device=machine.device, ops=machine.ops)
    length = len(token_ids)
    cache = allocate(
        model.kv_shape(machine.dtype),
        num_blocks=num_blocks_for(length),
        block_size=BLOCK_TOKENS,
        device=machine.device,
    )
    whole = step_of(1, length, device=machine.device)
    whole = structs.replace(whole, token_ids=token_ids, output_rows=whole.positions)
    last = structs.replace(
        whole,
        token_ids=token_ids[-1:],
        positions=whole.positions[-1:],
        slots=whole.slots[-1:],
        query_starts=whole.query_starts.clamp_max(1),
        output_rows=whole.output_rows[:1],
        max_query_length=1,
    )
    of_all = model.forward(whole, cache).cpu()
    return of_all, model.forward(last, cache).cpu()
