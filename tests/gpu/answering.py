"""Requests answered by the scheduler and a runner, and when each of their tokens came.

Prompts are token ids and answers are, too: what is left out is text.
"""

from collections.abc import Sequence as Seq
from itertools import count
from random import Random
from time import perf_counter
from typing import Final

from msgspec import Struct

from appliance.errors import EngineError
from appliance.generation import FinishReason, SamplingParams
from engines.pacing import PromptPace
from engines.runner import RowError, Runner, Sampled
from engines.scheduler import Scheduler
from engines.sequence import Sequence
from engines.speculation import Speculation

GREEDY: Final = SamplingParams(temperature=0.0)
_numbers = count()


class Ask(Struct, frozen=True, kw_only=True):
    """One request; it shares what was computed with others of its salt, without one with none."""

    token_ids: list[int]
    max_tokens: int
    sampling: SamplingParams = GREEDY
    seed: int = 7
    salt: bytes = b""


class Stream(Struct, kw_only=True):
    """A request under way: what came, and when."""

    sequence: Sequence
    asked_at: float
    results: list[Sampled]
    came_at: list[float]

    @property
    def num_tokens(self) -> int:
        """Tokens of the answer so far."""
        return len(self.results)

    @property
    def is_done(self) -> bool:
        """Whether it has all its tokens."""
        return self.num_tokens >= self.sequence.max_tokens

    @property
    def first_after_s(self) -> float:
        """The time to the first token."""
        return self.came_at[0] - self.asked_at


class Answering:
    """The requests of one runner. A row that fails is an EngineError."""

    def __init__(
        self,
        runner: Runner,
        *,
        pace: PromptPace | None = None,
        speculation: Speculation | None = None,
    ) -> None:
        self._runner = runner
        self._streams: dict[str, Stream] = {}
        self._scheduler = Scheduler(
            runner.kv,
            step_tokens=runner.step_tokens,
            max_running=runner.facts.num_slots,
            pace=pace,
            speculation=speculation,
        )

    def add(self, ask: Ask) -> Stream:
        """Queue a request."""
        number = next(_numbers)
        now = perf_counter()
        sequence = Sequence(
            request_id=str(number),
            index=0,
            num_prompt_tokens=len(ask.token_ids),
            token_ids=ask.token_ids.copy(),
            max_tokens=ask.max_tokens,
            sampling=ask.sampling,
            seed=ask.seed,
            cache_salt=ask.salt or b"%d" % number,
            arrived_at=now,
        )
        stream = Stream(sequence=sequence, asked_at=now, results=[], came_at=[])
        self._streams[sequence.request_id] = stream
        self._scheduler.add(sequence)
        return stream

    def step(self) -> bool:
        """One step; False when there is nothing to compute."""
        plan = self._scheduler.plan(perf_counter())
        if plan is None:
            return False
        began_at = perf_counter()
        answers = self._runner.execute(plan)
        now = perf_counter()
        for sequence, result in self._scheduler.commit(plan, answers, seconds=now - began_at):
            if isinstance(result, RowError):
                raise EngineError(result.code, result.message)
            stream = self._streams[sequence.request_id]
            stream.results.append(result)
            stream.came_at.append(now)
            if stream.is_done:
                self._scheduler.finish(sequence, FinishReason.LENGTH)
        return True

    def cancel(self, streams: Seq[Stream]) -> None:
        """End requests early."""
        for stream in streams:
            self._scheduler.abort(stream.sequence.request_id)

    def run(self) -> None:
        """Until all have their answers."""
        while self.step():
            pass


def answer(
    runner: Runner, asks: Seq[Ask], *, speculation: Speculation | None = None
) -> list[Stream]:
    """Requests that come in at once, answered."""
    answering = Answering(runner, speculation=speculation)
    streams = [answering.add(ask) for ask in asks]
    answering.run()
    return streams


def random_ids(numbers: Random, length: int, num_tokens: int) -> list[int]:
    """A prompt of that length."""
    return [numbers.randrange(num_tokens) for _ in range(length)]
