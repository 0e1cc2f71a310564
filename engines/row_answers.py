"""What a step answers, from the rows of logits it computed: for runners whose rows are in numpy."""

from collections.abc import Callable
from collections.abc import Sequence as Seq

import numpy as np
from numpy.typing import NDArray

from engines.prompt_scores import put_prompt_scores
from engines.restrictions import allowed_tokens, withheld_ids
from engines.runner import Answer, Chunk, RowError, Sampled
from engines.sampler import Row, SamplerState, likeliest, with_logprobs
from engines.sequence import Sequence
from engines.verifying import verify


def num_rows(chunk: Chunk) -> int:
    """How many rows of logits a chunk wants: all for its prompt's scores, or its last to sample.

    Those of its drafts are to be sampled, too.
    """
    sequence = chunk.sequence
    if sequence.prompt_scores is not None and chunk.start < sequence.num_prompt_tokens - 1:
        return chunk.length
    return int(chunk.samples) + len(chunk.drafts)


def read_answers(chunks: Seq[Chunk], rows: NDArray[np.float32]) -> list[Answer]:
    """Chunk by chunk, what their rows say; `rows` are as many as each wants, one after the other.

    What a sequence's sampler needs to remember is kept in its `kv.sampler`.
    """
    answers: list[Answer] = [None] * len(chunks)
    greedy: dict[int, int] = {}
    end = 0
    for number, chunk in enumerate(chunks):
        begin, end = end, end + num_rows(chunk)
        if chunk.sequence.prompt_scores is not None:
            put_prompt_scores(chunk, _scorer(rows[begin:end]))
        if not chunk.samples:
            continue
        if chunk.drafts:
            answers[number] = verify(chunk, rows[begin:end], choose)
        elif _takes_likeliest(chunk.sequence):
            greedy[number] = end - 1
        else:
            answers[number] = choose(chunk.sequence, rows[end - 1])
    if greedy:
        chosen = rows if len(greedy) == len(rows) else rows[list(greedy.values())]
        for number, answer, row in zip(greedy, likeliest(chosen), chosen, strict=True):
            sequence = chunks[number].sequence
            answers[number] = choose(sequence, row) if _withholds(sequence, answer) else answer
    return answers


def choose(sequence: Sequence, row: Row) -> Sampled | RowError:
    """The sequence's next token, from the raw logits after its last."""
    allowed = allowed_tokens(sequence, len(row))
    if isinstance(allowed, RowError):
        return allowed
    output_ids = sequence.token_ids[sequence.num_prompt_tokens :]
    return _sampler(sequence).choose(row, output_ids, allowed)


def _takes_likeliest(sequence: Sequence) -> bool:
    return sequence.constraint is None and _sampler(sequence).takes_likeliest


def _withholds(sequence: Sequence, answer: Sampled | RowError) -> bool:
    """Whether the likeliest token must not follow; most often it may, and no row is copied."""
    if not sequence.withheld or isinstance(answer, RowError):
        return False
    return answer.token_id in withheld_ids(sequence)


def _sampler(sequence: Sequence) -> SamplerState:
    place = sequence.kv
    if place.sampler is None:
        prompt_ids = sequence.token_ids[: sequence.num_prompt_tokens]
        place.sampler = SamplerState(sequence.sampling, seed=sequence.seed, prompt_ids=prompt_ids)
    sampler: SamplerState = place.sampler
    return sampler


def _scorer(rows: NDArray[np.float32]) -> Callable[[Sequence, int], Sampled]:
    """Scores one token a row, from the first row on."""
    left = iter(rows)

    def score(sequence: Sequence, token_id: int) -> Sampled:
        row = next(left)
        if not sequence.sampling.logprobs:
            return Sampled(token_id=token_id)
        return with_logprobs(row, token_id, sequence.sampling.num_top_logprobs)

    return score
