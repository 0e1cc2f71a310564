"""What one call holds and what became of it: opened before its first step, settled after its last.

Nothing here waits for anything, and neither does settling: it cannot be cancelled half-way, so a
client that hangs up at the worst moment leaves no place taken, no token reserved, no record open.
"""

from collections.abc import AsyncIterator

from appliance.audit.record import Outcome
from appliance.clock import Monotonic
from appliance.errors import HisarError, RequestError
from appliance.generation import (
    ChoiceFinished,
    Failed,
    Finished,
    GenerationEvent,
    TextDelta,
    Timings,
    Usage,
)
from appliance.metrics import Metrics
from gateway.context import RequestContext
from gateway.limits.limiter import Grant
from gateway.wire.errors import from_failed


class Lease:
    """One call. `is_recorded` says that a record of its arrival is durable.

    `first_delta_at` is when the first piece of the answer came, in monotonic seconds.
    """

    def __init__(
        self, context: RequestContext, route: str, metrics: Metrics, clock: Monotonic
    ) -> None:
        self.context = context
        self.route = route
        self.model = ""
        self.grant = Grant()
        self.is_recorded = False
        self.estimated_prompt_tokens = 0
        self.error: HisarError | None = None
        self.usage = Usage()
        self.timings = Timings()
        self.finish_reasons: list[str] = []
        self.first_delta_at: float | None = None
        self._last_delta_at = 0.0
        self._metrics = metrics
        self._clock = clock
        self._is_finished = False

    async def follow(
        self, events: AsyncIterator[GenerationEvent]
    ) -> AsyncIterator[GenerationEvent]:
        """The same events, noted as they pass."""
        async for event in events:
            self._note(event)
            yield event

    @property
    def outcome(self) -> Outcome:
        """How the call ended."""
        if self.error is None:
            return Outcome.OK if self._is_finished else Outcome.ERROR
        if self.error.code == "request.cancelled":
            return Outcome.CANCELLED
        return Outcome.REFUSED if isinstance(self.error, RequestError) else Outcome.ERROR

    @property
    def code(self) -> str:
        """The stable code of what went wrong; empty where nothing did."""
        if self.error is None:
            return "" if self._is_finished else "engine.answer_cut"
        return self.error.code

    def _note(self, event: GenerationEvent) -> None:
        match event:
            case TextDelta(num_tokens=num_tokens):
                self._note_time(self._clock())
                # What is charged should the engine's own count never come.
                self.usage = Usage(
                    prompt_tokens=self.estimated_prompt_tokens,
                    completion_tokens=self.usage.completion_tokens + num_tokens,
                )
            case ChoiceFinished(finish_reason=reason):
                self.finish_reasons.append(reason.value)
            case Finished(usage=usage, timings=timings):
                self._is_finished = True
                self._note_usage(usage, timings)
            case Failed(usage=usage, timings=timings):
                self.error = from_failed(event)
                self._note_usage(usage, timings)
            case _:
                pass

    def _note_time(self, now: float) -> None:
        if self.first_delta_at is None:
            self.first_delta_at = now
            self._gaps = self._metrics.inter_token.labels(self._metrics.label_of(self.model))
        else:
            self._gaps.observe(now - self._last_delta_at)
        self._last_delta_at = now

    def _note_usage(self, usage: Usage, timings: Timings) -> None:
        """Take the engine's own count; an answer that a guardrail cut short comes without one."""
        if usage.prompt_tokens:
            self.usage = usage
        self.timings = timings
