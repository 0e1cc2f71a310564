"""What one step does with requests: who is let in, what each new token says, how each one ends.

The loop is driven from outside: `receive` what came in, then `step`. It touches no socket and
waits for nothing. Every request it was given ends in exactly one Finished or Failed.
"""

import logging
from collections.abc import Callable, Iterable
from typing import Final, Protocol, TypeAlias

import msgspec

from appliance.errors import EngineError, HisarError, RequestError
from appliance.generation import (
    Begun,
    ChoiceFinished,
    EngineEvent,
    Failed,
    Finished,
    FinishReason,
    GenerationRequest,
)
from engines.choice import Choice
from engines.constraint import ConstraintError
from engines.intake import Encoded
from engines.live_request import LiveRequest
from engines.pacing import PromptPace
from engines.protocol import Abort, Drain, Generate, SchedulerStats
from engines.runner import OutOfKvError, RowError, Runner, Sampled
from engines.scheduler import Outcome, Scheduler
from engines.sequence import Sequence
from engines.speculation import Speculation

# How long a step may take while streams run and prompts come in: their next tokens wait for it.
STEP_S: Final = 0.5
# The gateway bounds its queue long before; this keeps a worker alive behind one that does not.
MAX_LIVE_REQUESTS: Final = 4096

_log: Final = logging.getLogger(__name__)

Received: TypeAlias = Generate | Abort | Drain | Encoded
Batch: TypeAlias = tuple[tuple[str, EngineEvent], ...]

_CANCELLED: Final = EngineError("request.cancelled", "the request was cancelled")
_DRAINING: Final = EngineError(
    "engine.draining", "the engine takes no new request", retry_after_s=1
)
_OVERLOADED: Final = EngineError(
    "engine.overloaded", f"the engine already has {MAX_LIVE_REQUESTS} requests", retry_after_s=1
)
_MUTE: Final = RequestError(
    "request.model_cannot_generate",
    "this model makes embeddings and writes no text",
    status=400,
    param="model",
)
_UNSCORED: Final = RequestError(
    "request.unsupported_parameter",
    "the engine of this model cannot tell the logprobs of a prompt",
    status=400,
    param="logprobs",
)


class Tokeniser(Protocol):
    """Where prompts go to be tokenised; each comes back as an `Encoded` to be received."""

    def submit(self, request: GenerationRequest, is_wanted: Callable[[], bool]) -> None: ...


class StepLoop:
    """The live requests of one runner. With `speculates` it drafts, if the runner can verify.

    `step_s` is how long a step may take while streams run and prompts come in.
    """

    def __init__(
        self,
        runner: Runner,
        tokeniser: Tokeniser,
        clock: Callable[[], float],
        *,
        speculates: bool = False,
        step_s: float = STEP_S,
    ) -> None:
        self._runner = runner
        self._tokeniser = tokeniser
        self._clock = clock
        facts = runner.facts
        self._context_tokens = min(facts.context_tokens, runner.kv.total_tokens)
        speculation = Speculation(runner.kv, may_round=not facts.is_batch_invariant)
        self._scheduler = Scheduler(
            runner.kv,
            step_tokens=runner.step_tokens,
            max_running=facts.num_slots,
            pace=PromptPace(step_s),
            speculation=speculation if speculates and facts.verifies_drafts else None,
        )
        self._live: dict[str, LiveRequest] = {}
        self._num_tokenising = 0
        self._events: list[tuple[str, EngineEvent]] = []
        self.is_draining = False

    @property
    def has_work(self) -> bool:
        """Whether there is something to compute or to tell; if not, `step` does nothing."""
        return bool(self._events) or not self._scheduler.is_idle

    @property
    def is_idle(self) -> bool:
        """Whether every request has ended."""
        return not self._live

    def stats(self) -> SchedulerStats:
        """The scheduler's figures; prompts being tokenised count as waiting."""
        stats = self._scheduler.stats()
        num_waiting = stats.num_waiting + self._num_tokenising
        return msgspec.structs.replace(stats, num_waiting=num_waiting)

    def receive(self, message: Received) -> None:
        """Take in one message."""
        if isinstance(message, Generate):
            self._begin(message.request)
        elif isinstance(message, Encoded):
            self._open(message)
        elif isinstance(message, Abort):
            self._fail(message.request_id, _CANCELLED)
        else:
            self.is_draining = True

    def step(self) -> Batch:
        """Plan, execute, commit; answers everything there is to tell since the last step."""
        for sequence, result in self._compute():
            self._tell(sequence, result)
        events, self._events = tuple(self._events), []
        return events

    def _compute(self) -> Iterable[Outcome]:
        try:
            plan = self._scheduler.plan(self._clock())
            if plan is None:
                return ()
            began_at = self._clock()
            answers = self._runner.execute(plan)
        except OutOfKvError:
            self._make_room()
            return ()
        return self._scheduler.commit(plan, answers, seconds=self._clock() - began_at)

    def _make_room(self) -> None:
        """Nothing was computed: the next step is tried with one sequence less."""
        if self._scheduler.preempt_newest() is None:
            (lone,) = self._scheduler.running
            self._fail_row(lone, "no room for its keys and values, even alone")

    def _begin(self, request: GenerationRequest) -> None:
        if request.id in self._live:
            return  # Ids are unique; a second one could not be told apart from the first.
        refusal = self._refusal(request)
        self._live[request.id] = LiveRequest(request, self._clock())
        if refusal is not None:
            self._fail(request.id, refusal)
            return
        self._num_tokenising += 1
        self._tokeniser.submit(request, lambda: self._is_live(request))

    def _is_live(self, request: GenerationRequest) -> bool:
        """Whether it has not ended. Its id may be in use again. Asked by other threads, too."""
        live = self._live.get(request.id)
        return live is not None and live.request is request

    def _refusal(self, request: GenerationRequest) -> HisarError | None:
        if self.is_draining:
            return _DRAINING
        if not self._runner.facts.generates:
            return _MUTE
        if request.scores_prompt and not self._runner.facts.scores_prompts:
            return _UNSCORED
        return _OVERLOADED if len(self._live) >= MAX_LIVE_REQUESTS else None

    def _open(self, encoded: Encoded) -> None:
        self._num_tokenising -= 1
        if not self._is_live(encoded.request):
            return  # Aborted while it was being tokenised.
        request_id = encoded.request.id
        live = self._live[request_id]
        try:
            if encoded.error is not None:
                raise encoded.error
            live.open(encoded.prompts, self._runner.tokenizer, self._context_tokens)
        except HisarError as error:
            self._fail(request_id, error)
            return
        self._events.append((request_id, Begun(prompt_tokens=live.usage().prompt_tokens)))
        for choice in live.choices:
            self._scheduler.add(choice.sequence)
            if choice.owes_prompt:
                continue
            if live.request.echoes_prompt:
                self._events.append((request_id, choice.tell_prompt()))
            if choice.sequence.max_tokens == 0:
                self._end_choice(live, choice, FinishReason.LENGTH)

    def _tell(self, sequence: Sequence, result: Sampled | RowError) -> None:
        live = self._live.get(sequence.request_id)
        if live is None:
            return  # A sibling's row failed in this very step.
        if isinstance(result, RowError):
            self._fail_row(sequence, result.message, code=result.code)
            return
        if not sequence.first_token_at:
            sequence.first_token_at = self._clock()
        choice = live.choices[sequence.index]
        if choice.owes_prompt:
            self._events.append((sequence.request_id, choice.tell_prompt()))
            if sequence.max_tokens == 0:
                sequence.token_ids.pop()  # Only the prompt was wanted.
                self._end_choice(live, choice, FinishReason.LENGTH)
                return
        try:
            deltas, reason = choice.push(result)
        except ConstraintError as error:
            self._fail_row(sequence, str(error))
            return
        for delta in deltas:
            self._events.append((sequence.request_id, delta))
        if reason is not None:
            self._end_choice(live, choice, reason)

    def _end_choice(self, live: LiveRequest, choice: Choice, reason: FinishReason) -> None:
        sequence = choice.sequence
        self._scheduler.finish(sequence, reason)
        ended = ChoiceFinished(index=sequence.index, finish_reason=reason, stop=choice.matched_stop)
        self._events.append((live.request.id, ended))
        live.num_open -= 1
        if not live.num_open:
            del self._live[live.request.id]
            ending = Finished(usage=live.usage(), timings=live.timings(self._clock()))
            self._events.append((live.request.id, ending))

    def _fail_row(self, sequence: Sequence, message: str, code: str = "engine.row_failed") -> None:
        _log.error("a row failed", extra={"request_id": sequence.request_id, "code": code})
        self._scheduler.finish(sequence, FinishReason.ERROR)
        self._fail(sequence.request_id, EngineError(code, message))

    def _fail(self, request_id: str, error: HisarError) -> None:
        """End a request early; one that has ended already stays as it ended."""
        live = self._live.pop(request_id, None)
        if live is None:
            return
        self._scheduler.abort(request_id)
        failed = Failed(
            code=error.code,
            message=error.message,
            usage=live.usage(),
            timings=live.timings(self._clock()),
            retry_after_s=getattr(error, "retry_after_s", None),
            param=getattr(error, "param", None),
        )
        self._events.append((request_id, failed))
