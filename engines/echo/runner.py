"""The echo engine: deterministic, without weights, driven like any other.

It answers a chat with the tokens of the last user message, and anything else with the tokens of
the whole prompt; then it ends the turn. Sampling parameters make no difference: the next token is
certain, its logprob is 0.0, and there is no other candidate. Where the next token is not allowed
(by a grammar, or because the answer may not end yet), it takes one that is: the tokens that close
something in turn, so that an answer held to a grammar comes to an end; else one that opens JSON,
else the lowest id.
"""

from collections.abc import Sequence as Seq
from typing import TYPE_CHECKING, Final

from engines.echo.embedder import EMBEDDING_SIZE, EchoEmbedder
from engines.echo.kv_blocks import EchoKv
from engines.echo.tokenizer import BOS, TURN_END, TURN_START, EchoTokenizer, marker_id
from engines.prompt_scores import put_prompt_scores
from engines.protocol import ModelFacts
from engines.reasoning import THINK_END
from engines.restrictions import allowed_tokens
from engines.runner import Answer, Chunk, Logprob, RowError, RunnerOptions, Sampled, StepPlan
from engines.sequence import Sequence
from engines.verifying import verify

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

DEFAULT_CONTEXT_TOKENS: Final = 8192
DEFAULT_NUM_SLOTS: Final = 32
DEFAULT_STEP_TOKENS: Final = 512

_BOS_ID: Final = marker_id(BOS)
_TURN_START_ID: Final = marker_id(TURN_START)
_TURN_END_ID: Final = marker_id(TURN_END)
_CLOSING_IDS: Final = EchoTokenizer().encode(f'"}}]{THINK_END}', markers=False)
_OPENING_IDS: Final = EchoTokenizer().encode("{[", markers=False)
_USER_TURN: Final = [_TURN_START_ID, *EchoTokenizer().encode("user\n", markers=False)]


class EchoRunner:
    """A Runner over an EchoKv."""

    def __init__(self, facts: ModelFacts, kv: EchoKv, step_tokens: int) -> None:
        self.facts = facts
        self.kv = kv
        self.step_tokens = step_tokens
        self.tokenizer = EchoTokenizer()
        self.embedder = EchoEmbedder(facts.context_tokens)

    def execute(self, plan: StepPlan) -> Seq[Answer]:
        """One token for each chunk that reaches the end of its sequence, and one for each draft."""
        for chunk in plan.chunks:
            put_prompt_scores(chunk, _certain)
        return [_answer(chunk) if chunk.samples else None for chunk in plan.chunks]

    def close(self) -> None:
        """Nothing to give back."""


def start(options: RunnerOptions) -> EchoRunner:
    """A runner whose pool holds `num_slots` sequences of full length."""
    context_tokens = options.context_tokens or DEFAULT_CONTEXT_TOKENS
    num_slots = options.num_slots or DEFAULT_NUM_SLOTS
    facts = ModelFacts(
        model=options.model,
        runner="echo",
        context_tokens=context_tokens,
        vocabulary_size=EchoTokenizer.vocabulary_size,
        num_slots=num_slots,
        scores_prompts=True,
        embedding_size=EMBEDDING_SIZE,
        verifies_drafts=True,
        is_batch_invariant=True,
    )
    kv = EchoKv(num_slots * context_tokens)
    return EchoRunner(facts, kv, options.step_tokens or DEFAULT_STEP_TOKENS)


def find_answer(prompt: list[int]) -> list[int]:
    """What is echoed of a prompt: the last user turn, or all of it but BOS."""
    for start_at in range(len(prompt) - len(_USER_TURN), -1, -1):
        if prompt[start_at] == _TURN_START_ID:
            content_at = start_at + len(_USER_TURN)
            if prompt[start_at:content_at] == _USER_TURN:
                content = prompt[content_at:]
                return (
                    content[: content.index(_TURN_END_ID)] if _TURN_END_ID in content else content
                )
    return prompt[1:] if prompt[:1] == [_BOS_ID] else prompt


def _answer(chunk: Chunk) -> Answer:
    if not chunk.drafts:
        return _sample(chunk.sequence)
    return verify(chunk, range(1 + len(chunk.drafts)), lambda sequence, _: _sample(sequence))


def _sample(sequence: Sequence) -> Sampled | RowError:
    token_id = _next_token(sequence)
    allowed = allowed_tokens(sequence, EchoTokenizer.vocabulary_size)
    if isinstance(allowed, RowError):
        return allowed
    if allowed is not None and not allowed[token_id]:
        token_id = _another(allowed, sequence.num_output_tokens)
    return _certain(sequence, token_id)


def _another(allowed: "NDArray[np.bool_]", turn: int) -> int:
    """A token that is allowed, where the one that comes next is not."""
    first = turn % len(_CLOSING_IDS)
    liked = (*_CLOSING_IDS[first:], *_CLOSING_IDS[:first], *_OPENING_IDS)
    return next((token_id for token_id in liked if allowed[token_id]), int(allowed.argmax()))


def _certain(sequence: Sequence, token_id: int) -> Sampled:
    """A token that has all the probability there is."""
    if not sequence.sampling.logprobs:
        return Sampled(token_id=token_id)
    certain = Logprob(token_id=token_id, logprob=0.0)
    top = (certain,) if sequence.sampling.num_top_logprobs else ()
    return Sampled(token_id=token_id, logprob=certain, top=top)


def _next_token(sequence: Sequence) -> int:
    place = sequence.kv
    if place.answer is None:
        place.answer = find_answer(sequence.token_ids[: sequence.num_prompt_tokens])
    num_said = sequence.num_output_tokens
    return place.answer[num_said] if num_said < len(place.answer) else _TURN_END_ID
