"""The whole engine against `transformers` with the same weights: 256 requests of all lengths."""

from collections.abc import Iterator
from random import Random
from time import perf_counter
from typing import Any, Final

import torch

from tests.gpu.answering import Ask, answer, random_ids
from tests.gpu.machine import Machine
from tests.gpu.random_models import small_model_folder, small_vocabulary, start_small
from tests.gpu.rows import Row, Spread, spread

# What transformers is given for its whole run; it is told by the tokens it has until then.
_OTHER_S: Final = 35.0
_PROBE_TOKENS: Final = 8


def measure(machine: Machine) -> Iterator[Row]:
    """Tokens a second of answers, all requests coming in at once."""
    asks = _asks(machine)
    batch, theirs = _transformers(machine, asks)
    runner = start_small(machine, num_slots=len(asks), context_tokens=max(map(_length, asks)))
    answer(runner, [Ask(token_ids=ask.token_ids[:-1], max_tokens=2) for ask in asks])  # warms up
    began_at = perf_counter()
    streams = answer(runner, asks)
    seconds = perf_counter() - began_at
    runner.close()
    ours = sum(stream.num_tokens for stream in streams) / seconds
    yield Row(
        goal="G9",
        what=f"0.6B, {len(asks)} requests of 100 to 1,024 tokens in and out",
        unit="tokens/s",
        floor=theirs,
        ours=spread([ours]),
        ratio=ours / theirs,
        aim=5.0,
        note=f"against transformers generate, {batch} at a time",
    )


def _asks(machine: Machine) -> list[Ask]:
    numbers = Random(0)  # noqa: S311
    least, most = machine.size(100, 4), machine.size(1024, 9)
    return [
        Ask(
            token_ids=random_ids(numbers, numbers.randint(least, most), small_vocabulary(machine)),
            max_tokens=numbers.randint(least, most),
        )
        for _ in range(machine.size(256, 4))
    ]


def _length(ask: Ask) -> int:
    return len(ask.token_ids) + ask.max_tokens


@torch.inference_mode()
def _transformers(machine: Machine, asks: list[Ask]) -> tuple[int, float]:
    """Its best static batch of those tried, and the tokens a second of all requests with it."""
    import transformers

    folder = small_model_folder(machine)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=machine.dtype)
    model = model.to(device=machine.device).eval()
    sizes = [size for size in (64, 128, 256) if size <= len(asks)] or [len(asks)]
    _generate(machine, model, asks[: sizes[0]], _PROBE_TOKENS, 60.0)  # warms up
    probes = {size: _probe(machine, model, asks[:size]) for size in sizes}
    best = max(probes, key=lambda size: size / probes[size].middle)
    num_tokens, seconds = 0, 0.0
    for start in range(0, len(asks), best):
        batch = asks[start : start + best]
        longest = max(ask.max_tokens for ask in batch)
        done, took = _generate(machine, model, batch, longest, _OTHER_S - seconds)
        num_tokens += sum(min(ask.max_tokens, done) for ask in batch)
        seconds += took
        if seconds >= _OTHER_S:
            break
    return best, num_tokens / seconds


def _probe(machine: Machine, model: Any, asks: list[Ask]) -> Spread:
    return spread([_generate(machine, model, asks, _PROBE_TOKENS, 60.0)[1]])


def _generate(
    machine: Machine, model: Any, asks: list[Ask], num_tokens: int, most_s: float
) -> tuple[int, float]:
    """The tokens that each of a batch has got, and the seconds until then."""
    width = max(len(ask.token_ids) for ask in asks)
    token_ids = torch.zeros((len(asks), width), dtype=torch.int64)
    mask = torch.zeros_like(token_ids)
    for row, ask in enumerate(asks):
        token_ids[row, width - len(ask.token_ids) :] = torch.tensor(ask.token_ids)
        mask[row, width - len(ask.token_ids) :] = 1
    machine.wait()
    began_at = perf_counter()
    answered = model.generate(
        token_ids.to(machine.device),
        attention_mask=mask.to(machine.device),
        max_new_tokens=num_tokens,
        max_time=most_s,
        do_sample=False,
        pad_token_id=0,
    )
    machine.wait()
    return answered.shape[1] - width, perf_counter() - began_at
