"""Where the logprobs of a prompt's own tokens go, for runners that can tell them."""

from collections.abc import Callable

from engines.runner import Chunk, Sampled
from engines.sequence import Sequence


def put_prompt_scores(chunk: Chunk, score: Callable[[Sequence, int], Sampled]) -> None:
    """Score each prompt token that a chunk's rows speak of: a row speaks of the token after it.

    `score` is given the sequence and the token's id, row by row; it is not called where nobody
    asked. What is computed again (after a pre-emption, or by another choice of the prompt) takes
    the place of what was there.
    """
    sequence = chunk.sequence
    scores = sequence.prompt_scores
    if scores is None:
        return
    end = min(chunk.start + chunk.length, sequence.num_prompt_tokens - 1)
    if chunk.start < end:
        wanted = sequence.token_ids[chunk.start + 1 : end + 1]
        scores[chunk.start : end] = [score(sequence, token_id) for token_id in wanted]
