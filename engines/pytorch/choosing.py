"""What a step answers: its rows of logits are sampled and scored on their device, all at once.

Drafts are verified by `engines.verifying` as in every engine, in two passes: the first finds what
each row is to be sampled with if the drafts before it are right; once all rows are sampled, the
second takes the drafts that are.
"""

from collections.abc import Iterator
from collections.abc import Sequence as Seq
from itertools import islice, repeat
from typing import Any, Final

import numpy as np
import torch
from msgspec import Struct
from numpy.typing import NDArray
from torch import Tensor

from engines.prompt_scores import put_prompt_scores
from engines.pytorch.kernels.sampling import (
    MIN_TEMPERATURE,
    Biases,
    Choices,
    Penalties,
    SamplingInputs,
    sample,
    with_logprobs,
)
from engines.restrictions import allowed_tokens
from engines.row_answers import num_rows
from engines.runner import Answer, Chunk, Logprob, RowError, Sampled
from engines.sampler import NOT_FINITE, OutputCounts, has_penalties
from engines.sequence import Sequence
from engines.verifying import verify

_MASK_64: Final = (1 << 64) - 1
_WORD_BYTES: Final = 4
_UNKNOWN: Final = Sampled(token_id=-1)


class _Row(Struct, frozen=True):
    """One row to be sampled: which, for whom, after which drafts, and what may come."""

    number: int
    sequence: Sequence
    drafts: tuple[int, ...] = ()
    allowed: Any = None


class _Draw(Struct, frozen=True):
    """Parameters of the same sequences, for as long as they are sampled together."""

    sequences: list[Sequence]
    temperatures: Tensor
    top_ks: Tensor
    top_ps: Tensor
    min_ps: Tensor
    seeds: Tensor
    is_greedy: bool
    is_truncated: bool
    num_top: int | None


class _Written(Struct):
    """The tokens of one sequence as its penalties see them."""

    counts: OutputCounts
    prompt_ids: NDArray[np.int64]


class Chooser:
    """Reads the logits of one model."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._draw: _Draw | None = None

    def read(self, chunks: Seq[Chunk], logits: Tensor) -> list[Answer]:
        """Chunk by chunk, what their rows of float32 [R, V] say, in the order of `num_rows`."""
        answers: list[Answer] = [None] * len(chunks)
        rows: list[_Row] = []
        sampled: list[tuple[int, int]] = []  # a chunk's number, and how many rows it has in `rows`
        end = 0
        for number, chunk in enumerate(chunks):
            begin, end = end, end + num_rows(chunk)
            if chunk.sequence.prompt_scores is not None:
                self._score(chunk, logits[begin:end])
            if chunk.samples:
                wanted = _wanted(chunk, end - 1 - len(chunk.drafts), logits.shape[1])
                if isinstance(wanted, RowError):
                    answers[number] = wanted
                else:
                    rows += wanted
                    sampled.append((number, len(wanted)))
        if rows:
            results = iter(self._sample(rows, logits))
            for number, count in sampled:
                answers[number] = _answer(chunks[number], list(islice(results, count)))
        return answers

    def _score(self, chunk: Chunk, logits: Tensor) -> None:
        """The logprobs of the prompt's tokens that these rows speak of."""
        sequence = chunk.sequence
        end = min(chunk.start + chunk.length, sequence.num_prompt_tokens - 1)
        wanted = sequence.token_ids[chunk.start + 1 : end + 1]
        if not wanted:
            return
        token_ids = torch.tensor(wanted, device=self._device)
        are_finite = torch.ones_like(token_ids, dtype=torch.bool)
        num_top = sequence.sampling.num_top_logprobs
        choices = with_logprobs(logits[: len(wanted)], token_ids, are_finite, num_top)
        scores = _results(choices, [sequence] * len(wanted))
        put_prompt_scores(chunk, lambda _, token_id: _certain(next(scores), token_id))

    def _sample(self, rows: list[_Row], logits: Tensor) -> Iterator[Sampled | RowError]:
        """What was chosen in each of the rows."""
        if len(rows) != len(logits):
            logits = logits[[row.number for row in rows]]
        sequences = [row.sequence for row in rows]
        draw = self._parameters(sequences)
        positions = [row.sequence.num_output_tokens + len(row.drafts) for row in rows]
        inputs = SamplingInputs(
            temperatures=draw.temperatures,
            top_ks=draw.top_ks,
            top_ps=draw.top_ps,
            min_ps=draw.min_ps,
            seeds=draw.seeds,
            positions=self._put(np.array(positions, np.int64)),
            is_greedy=draw.is_greedy,
            is_truncated=draw.is_truncated,
            allowed=self._allowed(rows, logits.shape[1]),
            biases=self._biases(sequences),
            penalties=self._penalties(rows),
            num_top=draw.num_top,
        )
        return _results(sample(logits, inputs), sequences)

    def _parameters(self, sequences: list[Sequence]) -> _Draw:
        if self._draw is None or self._draw.sequences != sequences:
            self._draw = self._new_draw(sequences)
        return self._draw

    def _new_draw(self, sequences: list[Sequence]) -> _Draw:
        params = [sequence.sampling for sequence in sequences]
        numbers = np.array([(p.temperature, p.top_p, p.min_p) for p in params], np.float32)
        top_ks = [p.top_k for p in params]
        seeds = np.array([s.seed & _MASK_64 for s in sequences], np.uint64)
        return _Draw(
            sequences=sequences,
            temperatures=self._put(numbers[:, 0]),
            top_ps=self._put(numbers[:, 1]),
            min_ps=self._put(numbers[:, 2]),
            top_ks=self._put(np.array(top_ks, np.int32)),
            seeds=self._put(seeds.view(np.int64)),
            is_greedy=all(p.temperature < MIN_TEMPERATURE or p.top_k == 1 for p in params),
            is_truncated=any(p.top_k > 0 or p.top_p < 1.0 or p.min_p > 0.0 for p in params),
            num_top=max((p.num_top_logprobs for p in params if p.logprobs), default=None),
        )

    def _allowed(self, rows: list[_Row], vocabulary_size: int) -> Tensor | None:
        """A bit a token, set where it may come."""
        if all(row.allowed is None for row in rows):
            return None
        num_words = -(-vocabulary_size // (8 * _WORD_BYTES))
        words = np.full((len(rows), num_words), -1, np.int32)
        for number, row in enumerate(rows):
            if row.allowed is not None:
                packed = np.packbits(row.allowed, bitorder="little")
                words[number] = 0
                words[number].view(np.uint8)[: len(packed)] = packed
        return self._put(words)

    def _biases(self, sequences: list[Sequence]) -> Biases | None:
        found = [
            (number, token_id, value)
            for number, sequence in enumerate(sequences)
            for token_id, value in sequence.sampling.logit_bias
        ]
        if not found:
            return None
        numbers, token_ids, values = zip(*found, strict=True)
        return Biases(
            rows=self._put(np.array(numbers, np.int64)),
            token_ids=self._put(np.array(token_ids, np.int64)),
            values=self._put(np.array(values, np.float32)),
        )

    def _penalties(self, rows: list[_Row]) -> Penalties | None:
        params = [row.sequence.sampling for row in rows]
        penalised = [number for number, p in enumerate(params) if has_penalties(p)]
        if not penalised:
            return None
        written = [_written(rows[number]) for number in penalised]
        strengths = [
            (p.presence_penalty, p.frequency_penalty, p.repetition_penalty) for p in params
        ]
        strength = np.array(strengths, np.float32)
        return Penalties(
            rows=self._put(np.repeat(penalised, [len(ids) for ids, _ in written])),
            token_ids=self._put(np.concatenate([ids for ids, _ in written])),
            counts=self._put(np.concatenate([counts for _, counts in written])),
            presence=self._put(strength[:, 0]),
            frequency=self._put(strength[:, 1]),
            repetition=self._put(strength[:, 2]),
        )

    def _put(self, array: NDArray[Any]) -> Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(self._device, non_blocking=True)


def _wanted(chunk: Chunk, first: int, vocabulary_size: int) -> list[_Row] | RowError:
    """The rows of a chunk to be sampled: one, and one more for each draft that its grammar takes.

    `first` is the row of its last known token.
    """
    if not chunk.drafts:
        allowed = allowed_tokens(chunk.sequence, vocabulary_size)
        if isinstance(allowed, RowError):
            return allowed
        return [_Row(first, chunk.sequence, (), allowed)]
    rows: list[_Row] = []

    def collect(sequence: Sequence, number: int) -> Sampled | RowError:
        allowed = allowed_tokens(sequence, vocabulary_size)
        if isinstance(allowed, RowError):
            return allowed
        rows.append(_Row(first + number, sequence, chunk.drafts[:number], allowed))
        draft = chunk.drafts[number] if number < len(chunk.drafts) else None
        if draft is None or (allowed is not None and not allowed[draft]):
            return _UNKNOWN  # a grammar that was given a token it forbids goes no further
        return Sampled(token_id=draft)

    failed = verify(chunk, range(1 + len(chunk.drafts)), collect)
    return failed if isinstance(failed, RowError) else rows


def _answer(chunk: Chunk, results: list[Sampled | RowError]) -> Answer:
    """What a chunk's rows came to: of drafts those that are right, and one token more."""
    if not chunk.drafts:
        return results[0]
    taken: list[Sampled] = []
    for result, draft in zip(results, (*chunk.drafts, None), strict=False):
        if isinstance(result, RowError):
            return tuple(taken) or result
        taken.append(result)
        if result.token_id != draft:
            break
    return tuple(taken)


def _results(choices: Choices, sequences: list[Sequence]) -> Iterator[Sampled | RowError]:
    """What was chosen, with the logprobs that each sequence asks for."""
    token_ids = choices.token_ids.where(choices.are_finite, -1).tolist()
    told = _logprobs(choices, sequences)
    for token_id in token_ids:
        logprob, top = next(told)
        if token_id < 0:
            yield NOT_FINITE
        elif logprob is None:
            yield Sampled(token_id=token_id)
        else:
            yield Sampled(
                token_id=token_id, logprob=Logprob(token_id=token_id, logprob=logprob), top=top
            )


def _logprobs(
    choices: Choices, sequences: list[Sequence]
) -> Iterator[tuple[float | None, tuple[Logprob, ...]]]:
    """Of each row, as far as its sequence asks for them."""
    if choices.logprobs is None or choices.top_ids is None or choices.top_logprobs is None:
        yield from repeat((None, ()), len(sequences))
        return
    columns = (choices.logprobs, choices.top_ids, choices.top_logprobs)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    for (logprob, ids, logprobs), sequence in zip(rows, sequences, strict=True):
        if not sequence.sampling.logprobs:
            yield None, ()
            continue
        top = islice(zip(ids, logprobs, strict=True), sequence.sampling.num_top_logprobs)
        yield logprob, tuple(Logprob(token_id=each, logprob=value) for each, value in top)


def _certain(result: Sampled | RowError, token_id: int) -> Sampled:
    return result if isinstance(result, Sampled) else Sampled(token_id=token_id)


def _written(row: _Row) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """The distinct tokens that penalties of a row concern, and how often each is in the output.

    Those of the prompt count as never, and are there where repetition is penalised.
    """
    sequence = row.sequence
    known = sequence.kv.sampler
    if known is None:
        repeats = sequence.sampling.repetition_penalty != 1.0
        prompt_ids = sequence.token_ids[: sequence.num_prompt_tokens] if repeats else []
        known = sequence.kv.sampler = _Written(
            OutputCounts(), np.unique(prompt_ids).astype(np.int64)
        )
    ids, counts = known.counts.update(sequence.token_ids[sequence.num_prompt_tokens :])
    if row.drafts:
        output_ids = [*sequence.token_ids[sequence.num_prompt_tokens :], *row.drafts]
        ids, numbers = np.unique(output_ids, return_counts=True)
        counts = numbers.astype(np.float32)
    others = np.setdiff1d(known.prompt_ids, ids)
    return np.concatenate([ids, others]), np.concatenate(
        [counts, np.zeros(len(others), np.float32)]
    )
