"""The same requests in all situations that must not matter: alone, beside others, from the cache,
as the next turn of a conversation, and after pre-emption.

An answer here is the tokens of a request, as many as it asked for, through the real scheduler.
"""

from collections.abc import Callable
from collections.abc import Sequence as Seq
from itertools import count
from typing import Final, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from appliance.generation import FinishReason, SamplingParams
from engines.runner import Chunk, Runner, Sampled
from engines.scheduler import Scheduler
from engines.sequence import Sequence
from engines.speculation import Speculation

MAX_RUNNING: Final = 8
# Of its answer a sequence has this part when it is sent back.
_PART_BEFORE_PREEMPTION: Final = 1 / 4
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
    runner: Runner,
    asks: Seq[Ask],
    *,
    salt: bytes | None = None,
    preempts: bool = False,
    speculation: Speculation | None = None,
) -> Answers:
    """Answers to requests that come in at once; up to eight run together.

    Without a salt nothing computed before is shared. With `preempts`, for at most eight, all but
    the oldest lose their place in the middle of their answers.
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
    while (plan := scheduler.plan(0.0)) is not None:
        for sequence, result in scheduler.commit(plan, runner.execute(plan), seconds=1.0):
            assert isinstance(result, Sampled)
            if sequence.num_output_tokens == sequence.max_tokens:
                scheduler.finish(sequence, FinishReason.LENGTH)
        if preempts and all(map(_is_under_way, sequences)):
            _preempt_all(scheduler)
            assert all(sequence.num_preemptions for sequence in sequences[1:])
            preempts = False
    assert not preempts
    return [sequence.token_ids[sequence.num_prompt_tokens :] for sequence in sequences]


def twice(runner: Runner, asks: Seq[Ask]) -> tuple[Answers, Answers]:
    """Each by itself, with nothing to share; and again while its prompt and answer are there."""
    alone: Answers = []
    again: Answers = []
    for ask in asks:
        salt = fresh_salt()
        alone += answer(runner, [ask], salt=salt)
        again += answer(runner, [ask], salt=salt)
    return alone, again


def together(runner: Runner, asks: Seq[Ask], _: Answers) -> Answers:
    """Eight at a time, the next one entering as soon as one ends."""
    return answer(runner, asks)


def drafted(runner: Runner, asks: Seq[Ask], expected: Answers) -> Answers:
    """Together, with drafts in every step."""
    return answer(runner, asks, speculation=Foresight(runner, expected))


def preempted(runner: Runner, asks: Seq[Ask], _: Answers) -> Answers:
    """Together, each sent back once.

    The oldest never is, so one more goes before the others.
    """
    answers: Answers = []
    for begin in range(0, len(asks), MAX_RUNNING - 1):
        group = asks[begin : begin + MAX_RUNNING - 1]
        answers += answer(runner, [asks[0], *group], preempts=True)[1:]
    return answers


def next_turns(runner: Runner, asks: Seq[Ask]) -> tuple[Answers, Answers]:
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

    def __init__(self, runner: Runner, expected: Answers) -> None:
        super().__init__(runner.kv)
        self._expected = expected

    def add_drafts(self, decodes: list[Chunk], num_tokens: int) -> list[Chunk]:
        """The same chunks, each with drafts while there is room."""
        return [
            replace(chunk, drafts=self._guess(chunk.sequence))
            if number * _NUM_DRAFTS + _NUM_DRAFTS <= num_tokens
            and self._kv.grow(chunk.sequence, len(chunk.sequence.token_ids) + _NUM_DRAFTS)
            else chunk
            for number, chunk in enumerate(decodes)
        ]

    def _guess(self, sequence: Sequence) -> tuple[int, ...]:
        begin = sequence.num_output_tokens
        right = self._expected[int(sequence.request_id)][begin : begin + _NUM_DRAFTS - 1]
        return (*right, sequence.token_ids[0])


# The answers of each request alone are given, too: drafts are made of them. From the cache is the
# second half of `twice`.
SITUATIONS: Final[dict[str, Callable[[Runner, Seq[Ask], Answers], Answers]]] = {
    "together": together,
    "with drafts": drafted,
    "pre-empted": preempted,
}


def fresh_salt() -> bytes:
    """One that nothing was computed under."""
    return b"%d" % next(_numbers)


def _is_under_way(sequence: Sequence) -> bool:
    return sequence.num_output_tokens >= _PART_BEFORE_PREEMPTION * sequence.max_tokens


def _preempt_all(scheduler: Scheduler) -> None:
    """All but the oldest; of every second one nothing stays known."""
    for number in range(len(scheduler.running) - 1):
        victim = scheduler.preempt_newest()
        if victim is not None and number % 2:
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
