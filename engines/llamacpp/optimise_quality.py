"""What a format loses: perplexity on a text, and greedy tokens that differ from the original's.

The text and the prompts, half Turkish and half English, were written for this and lie beside.
"""

from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Final

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from engines.llamacpp.optimise_decoder import SEQUENCE_TOKENS, Decoder, a_sequence, decoding

_TEXTS: Final = ("english.txt", "turkish.txt")
_PROMPTS: Final = "prompts.txt"


class Answer(Struct, frozen=True, kw_only=True):
    """A prompt, and what the original writes after it when it always takes the likeliest token."""

    prompt_ids: tuple[int, ...]
    answer_ids: tuple[int, ...]


class Quality(Struct, frozen=True, kw_only=True):
    """See `appliance.optimise_records.FormatResult`."""

    perplexity: float
    equal_tokens: float


def write_answers(
    path: Path, *, num_threads: int, num_tokens: int, num_samples: int
) -> tuple[Answer, ...]:
    """The original's answers to `num_samples` prompts; 0: to all."""
    with decoding(path, num_sequences=1, num_threads=num_threads) as decoder:
        longest = SEQUENCE_TOKENS - num_tokens
        lines = _read(_PROMPTS).splitlines()[: num_samples or None]
        prompts = [_tokens(decoder, line)[:longest] for line in lines]
        return tuple(_answer(decoder, prompt, num_tokens) for prompt in prompts)


def measure_quality(
    path: Path, answers: Sequence[Answer], *, num_samples: int, num_threads: int
) -> Quality:
    """How a format reads the texts, and how often it agrees with the answers.

    `num_samples` pieces of each text are read, 256 tokens each; 0: all.
    """
    with decoding(path, num_sequences=1, num_threads=num_threads) as decoder:
        equal = np.concatenate([_agreement(decoder, answer) for answer in answers])
        surprise = np.concatenate(
            [
                _surprise(decoder, window)
                for name in _TEXTS
                for window in _windows(decoder, name)[: num_samples or None]
            ]
        )
        return Quality(perplexity=float(np.exp(surprise.mean())), equal_tokens=float(equal.mean()))


def _answer(decoder: Decoder, prompt_ids: list[int], num_tokens: int) -> Answer:
    decoder.forget()
    token_ids = list(prompt_ids)
    row = decoder.compute(a_sequence(token_ids, num_logits=1))
    for _ in range(num_tokens):
        token_ids.append(int(row.argmax()))
        if decoder.tokenizer.ends_generation(token_ids[-1]):
            break
        row = decoder.compute(a_sequence(token_ids, num_logits=1)[-1:])
    answer_ids = token_ids[len(prompt_ids) :]
    return Answer(prompt_ids=tuple(prompt_ids), answer_ids=tuple(answer_ids))


def _agreement(decoder: Decoder, answer: Answer) -> NDArray[np.bool_]:
    """For each token of the answer, whether this format chooses it after the same text."""
    decoder.forget()
    token_ids = (*answer.prompt_ids, *answer.answer_ids[:-1])
    rows = decoder.compute(a_sequence(token_ids, num_logits=len(answer.answer_ids)))
    return np.asarray(rows.argmax(axis=1) == np.array(answer.answer_ids), np.bool_)


def _surprise(decoder: Decoder, window: Sequence[int]) -> NDArray[np.float64]:
    """The negative logarithm of the probability of each token of the window but the first."""
    decoder.forget()
    rows = decoder.compute(a_sequence(window, num_logits=len(window)))[:-1]
    highest = rows.max(axis=1)
    totals = np.exp(rows - highest[:, None]).sum(axis=1, dtype=np.float64)
    chosen = rows[np.arange(len(rows)), window[1:]]
    return np.asarray(np.log(totals) + highest - chosen, np.float64)


def _windows(decoder: Decoder, name: str) -> list[list[int]]:
    """A text cut into pieces of one sequence each, every one beginning as a prompt does."""
    bos = _tokens(decoder, "")
    text = decoder.tokenizer.encode(_read(name), markers=False)
    length = SEQUENCE_TOKENS - len(bos)
    pieces = [text[at : at + length] for at in range(0, len(text), length)]
    return [[*bos, *piece] for piece in pieces if len(bos) + len(piece) > 1]


def _tokens(decoder: Decoder, text: str) -> list[int]:
    tokenizer = decoder.tokenizer
    bos = tokenizer.encode(tokenizer.bos_text, markers=True) if tokenizer.adds_bos else []
    return bos + tokenizer.encode(text, markers=False)


def _read(name: str) -> str:
    return (files("engines.llamacpp") / "optimise_texts" / name).read_text(encoding="utf-8")
