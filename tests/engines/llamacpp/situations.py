"""The same requests in all situations that must not matter: alone, beside others, from the cache,
as the next turn of a conversation, and after pre-emption.

An answer here is the tokens of a request run to its end through the real scheduler.
"""

from collections.abc import Callable
from collections.abc import Sequence as Seq
from itertools import count
from typing import Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from appliance.generation import FinishReason, SamplingParams
from engines.llamacpp.runner import LlamaRunner
from engines.runner import Chunk, Sampled
from engines.scheduler import Scheduler
from engines.sequence import Sequence
from engines.speculation import Speculation

MAX_RUNNING: Final = 8
_STEPS_BETWEEN_PREEMPTIONS: Final = 5
_NUM_DRAFTS: Final = 3

Answers: TypeAlias = list[list[int]]
_numbers = count()


class Ask(Struct, frozen=True, kw_only=True):
    """One request."""

    token_ids: list[int]
    max_tokens: int
    sampling: SamplingParams = SamplingParams(temperature=0.0)
    seed: int = 7


def answer(
    runner: LlamaRunner,
    asks: Seq[Ask],
    *,
    salt: bytes | None = None,
    preempts: bool = False,
    speculation: Speculation | None = None,
) -> Answers:
    """Answers to requests that come in at once; up to eight run together.

    Without a salt nothing computed before is shared. With `preempts` a sequence loses its place
    every few steps, and every second time what it had computed as well.
    """
    scheduler = Scheduler(
        runner.kv,
        step_tokens=runner.step_tokens,
        max_running=MAX_RUNNING,
        speculation=speculation,
    )
    salt = fresh_salt() if salt is None else salt
    sequences = [_sequence(ask, salt, number) for number, ask in enumerate(asks)]
    for sequence in sequences:
        scheduler.add(sequence)
    num_steps = 0
    while (plan := scheduler.plan(0.0)) is not None:
        for sequence, result in scheduler.commit(plan, runner.execute(plan), seconds=1.0):
            assert isinstance(result, Sampled)
            is_last = sequence.num_output_tokens == sequence.max_tokens
            if is_last or runner.tokenizer.ends_generation(result.token_id):
                scheduler.finish(sequence, FinishReason.STOP)
        num_steps += 1
        if preempts and num_steps % _STEPS_BETWEEN_PREEMPTIONS == 0:
            _preempt(scheduler, forgets=num_steps % 2 == 0)
    return [sequence.token_ids[sequence.num_prompt_tokens :] for sequence in sequences]


def alone(runner: LlamaRunner, asks: Seq[Ask]) -> Answers:
    """Each by itself, with nothing to share."""
    return [answer(runner, [ask])[0] for ask in asks]


def together(runner: LlamaRunner, asks: Seq[Ask], _: Answers) -> Answers:
    """Eight at a time, the next one entering as soon as one ends."""
    return answer(runner, asks)


def drafted(runner: LlamaRunner, asks: Seq[Ask], expected: Answers) -> Answers:
    """Together, with drafts in every step."""
    return answer(runner, asks, speculation=Foresight(runner, expected))


def from_cache(runner: LlamaRunner, asks: Seq[Ask], _: Answers) -> Answers:
    """Each a second time, while its prompt and its answer are still there."""
    answers = []
    for ask in asks:
        salt = fresh_salt()
        answer(runner, [ask], salt=salt)
        answers += answer(runner, [ask], salt=salt)
    return answers


def preempted(runner: LlamaRunner, asks: Seq[Ask], _: Answers) -> Answers:
    """Together, with one sent back every few steps."""
    return answer(runner, asks, preempts=True)


def next_turns(runner: LlamaRunner, asks: Seq[Ask]) -> tuple[Answers, Answers]:
    """To go on after an answer: with nothing to share, and in the conversation that wrote it."""
    cold: Answers = []
    warm: Answers = []
    for ask in asks:
        salt = fresh_salt()
        (first,) = answer(runner, [ask], salt=salt)
        token_ids = ask.token_ids + first + ask.token_ids[-12:]
        follow_up = Ask(
            token_ids=token_ids, max_tokens=ask.max_tokens, sampling=ask.sampling, seed=ask.seed
        )
        cold += answer(runner, [follow_up])
        warm += answer(runner, [follow_up], salt=salt)
    return cold, warm


class Foresight(Speculation):
    """Drafts two tokens that are right, and a third that is not."""

    def __init__(self, runner: LlamaRunner, expected: Answers) -> None:
        super().__init__(runner.kv)
        self._expected = expected

    def add_drafts(self, decodes: list[Chunk], num_tokens: int) -> list[Chunk]:
        """The same chunks, each with drafts while there is room."""
        return [
            replace(chunk, drafts=self._guess(chunk.sequence))
            if number * _NUM_DRAFTS + _NUM_DRAFTS <= num_tokens
            else chunk
            for number, chunk in enumerate(decodes)
        ]

    def _guess(self, sequence: Sequence) -> tuple[int, ...]:
        begin = sequence.num_output_tokens
        right = self._expected[int(sequence.request_id)][begin : begin + _NUM_DRAFTS - 1]
        return (*right, sequence.token_ids[0])


# The answers of each request alone are given, too: drafts are made of them.
SITUATIONS: Final[dict[str, Callable[[LlamaRunner, Seq[Ask], Answers], Answers]]] = {
    "together": together,
    "with drafts": drafted,
    "from the cache": from_cache,
    "pre-empted": preempted,
}


def fresh_salt() -> bytes:
    """One that nothing was computed under."""
    return b"%d" % next(_numbers)


def _preempt(scheduler: Scheduler, *, forgets: bool) -> None:
    victim = scheduler.preempt_newest()
    if victim is not None and forgets:
        victim.cache_salt = fresh_salt()


def _sequence(ask: Ask, salt: bytes, number: int) -> Sequence:
    return Sequence(
        request_id=str(number),
        index=0,
        num_prompt_tokens=len(ask.token_ids),
        token_ids=ask.token_ids.copy(),
        max_tokens=ask.max_tokens,
        sampling=ask.sampling,
        seed=ask.seed,
        cache_salt=salt,
        arrived_at=float(number),
    )
