"""Whose prompt is computed in a step, and how much of it.

Prompts computed one after the other are done sooner than side by side, and cost less: an engine may
have to compute pieces of different lengths one by one. So the first takes what it can use, and only
prompts that have less to go get up to half before it, the shortest first: none waits behind a long
one. What is left goes to the others in their order.

A prompt is not cut one token after its beginning or before its end: engines have kernels of their
own for a token alone, which round in another way, and answers would depend on where the cut fell.

A prompt whose own logprobs are wanted has a row of logits a token, each as wide as the vocabulary:
of such tokens a step has no more than engines set memory aside for.
"""

from collections.abc import Iterable
from collections.abc import Sequence as Seq
from typing import Final

from engines.runner import Chunk
from engines.sequence import Sequence

MOST_SCORED_TOKENS: Final = 256


def share_out(prompts: Seq[Sequence], num_tokens: int) -> list[Chunk]:
    """So many tokens of a step for these prompts, which stand in order of importance."""
    lengths = [0] * len(prompts)
    before = _those_before_the_first(prompts)
    _fill(lengths, prompts, before, num_tokens // 2, MOST_SCORED_TOKENS // 2)
    _fill(lengths, prompts, range(len(prompts)), num_tokens - sum(lengths), MOST_SCORED_TOKENS)
    _leave_none_alone(lengths, prompts)
    return [
        Chunk(
            sequence=prompt,
            start=prompt.num_computed,
            length=length,
            samples=length == prompt.num_uncomputed,
        )
        for prompt, length in zip(prompts, lengths, strict=True)
        if length
    ]


def _those_before_the_first(prompts: Seq[Sequence]) -> list[int]:
    """Where those stand that have less to go than the first, the shortest first."""
    left = [prompt.num_uncomputed for prompt in prompts]
    return sorted((i for i in range(1, len(left)) if left[i] < left[0]), key=left.__getitem__)


def _fill(
    lengths: list[int],
    prompts: Seq[Sequence],
    indices: Iterable[int],
    num_tokens: int,
    most_scored: int,
) -> None:
    """Give those at the indices what they can still use, in this order, until none is left."""
    for i in indices:
        more = min(prompts[i].num_uncomputed - lengths[i], num_tokens)
        if prompts[i].prompt_scores is not None:
            more = min(more, most_scored - _count_scored(lengths, prompts))
        lengths[i] += more
        num_tokens -= more


def _count_scored(lengths: list[int], prompts: Seq[Sequence]) -> int:
    pairs = zip(lengths, prompts, strict=True)
    return sum(length for length, prompt in pairs if prompt.prompt_scores is not None)


def _leave_none_alone(lengths: list[int], prompts: Seq[Sequence]) -> None:
    """Take back what would cut off one token; the first prompt moves on by one at least."""
    for i, prompt in enumerate(prompts):
        num_left = prompt.num_uncomputed - lengths[i]
        if (num_left and lengths[i] == 1 and i) or (num_left == 1 and lengths[i] > 1):
            lengths[i] -= 1
