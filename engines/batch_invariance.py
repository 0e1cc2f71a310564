"""Whether a runner computes the same for a token whatever is computed beside it.

Kernels are chosen by the shape of what is computed, and each rounds in its own way. So the same
prompt may get another answer alone than in a batch, or where its beginning comes from the cache
(He et al. 2025, "Defeating Nondeterminism in LLM Inference"). Which kernels there are depends on
the machine and on the format of the weights: this computes a text in several ways and compares.
"""

from collections.abc import Iterable
from typing import Final

from appliance.generation import SamplingParams
from engines.runner import Answer, Chunk, Runner, StepPlan
from engines.sequence import Sequence

# More than kernels for many rows want at least: 64 in ggml's attention, 4 or 8 elsewhere.
_NUM_TOKENS: Final = 72
_MOST_SEQUENCES: Final = 8
_NUM_ALONE: Final = 16
# A row with other bits tells by one of the 20 likeliest tokens' logprobs.
_SAMPLING: Final = SamplingParams(temperature=0.0, logprobs=True, num_top_logprobs=20)


def is_batch_invariant(runner: Runner) -> bool:
    """Whether what follows a text is the same, to the bit, in whatever way the text is computed.

    At once, its last tokens one by one, in pieces of all sizes, and beside others that share its
    cache.
    Nothing of it is left in the runner.
    """
    token_ids = _take_tokens(runner)
    last = len(token_ids) - 1
    num_alone = min(_NUM_ALONE, last)
    expected = _answer_alone(runner, token_ids, [last + 1])
    told = [
        _answer_alone(runner, token_ids, [last, 1]),
        _answer_alone(runner, token_ids, [last + 1 - num_alone, *[1] * num_alone]),
        _answer_alone(runner, token_ids, range(1, last)),
        *_answer_together(runner, token_ids),
    ]
    return all(answer == expected for answer in told)


def _take_tokens(runner: Runner) -> list[int]:
    """Tokens of all sorts: where a text repeats itself, roundings even out."""
    length = min(_NUM_TOKENS, runner.facts.context_tokens)
    return [(31 * i * i + 7 * i) % runner.facts.vocabulary_size for i in range(length)]


def _answer_alone(runner: Runner, token_ids: list[int], lengths: Iterable[int]) -> Answer:
    sequence = _admit(runner, token_ids)
    answers = [_compute(runner, sequence, length) for length in lengths if sequence.num_uncomputed]
    runner.kv.release(sequence, reusable=False)
    return answers[-1]


def _answer_together(runner: Runner, token_ids: list[int]) -> list[Answer]:
    sequences = []
    for _ in range(min(_MOST_SEQUENCES, runner.facts.num_slots, runner.step_tokens)):
        sequences.append(_admit(runner, token_ids))
        _compute(runner, sequences[-1], sequences[-1].num_uncomputed - 1)
    answers = runner.execute(StepPlan(chunks=tuple(_next_chunk(s, 1) for s in sequences)))
    for sequence in sequences:
        runner.kv.release(sequence, reusable=False)
    return list(answers)


def _admit(runner: Runner, token_ids: list[int]) -> Sequence:
    """A sequence that takes over what it can, and stands as if its last token had been sampled."""
    sequence = Sequence(
        request_id="batch-invariance",
        index=0,
        num_prompt_tokens=len(token_ids) - 1,
        token_ids=token_ids.copy(),
        max_tokens=1,
        sampling=_SAMPLING,
        seed=0,
        cache_salt=b"batch-invariance",
    )
    runner.kv.admit(sequence)
    return sequence


def _compute(runner: Runner, sequence: Sequence, length: int) -> Answer:
    """The next tokens, in one step where it has room; answers what the last step did."""
    end = min(sequence.num_computed + length, len(sequence.token_ids))
    answer: Answer = None
    while sequence.num_computed < end:
        chunk = _next_chunk(sequence, min(end - sequence.num_computed, runner.step_tokens))
        (answer,) = runner.execute(StepPlan(chunks=(chunk,)))
        sequence.num_computed += chunk.length
    return answer


def _next_chunk(sequence: Sequence, length: int) -> Chunk:
    start = sequence.num_computed
    samples = start + length == len(sequence.token_ids)
    return Chunk(sequence=sequence, start=start, length=length, samples=samples)
