"""What one call holds and what became of it: opened before its first step, settled after its last.

Nothing here waits for anything, and neither does settling: it cannot be cancelled half-way, so a
client that hangs up at the worst moment leaves no place taken, no token reserved, no record open.
"""

from collections.abc import AsyncIterator

from msgspec.structs import replace

from appliance.audit.record import Outcome
from appliance.clock import Monotonic
from appliance.errors import HisarError, RequestError
from appliance.generation import (
    Begun,
    ChoiceFinished,
    EngineEvent,
    Failed,
    Finished,
    GenerationEvent,
    TextDelta,
    Timings,
    ToolCallDelta,
    Usage,
)
from appliance.identity import Principal
from appliance.metrics import Metrics
from gateway.context import RequestContext
from gateway.limits.limiter import Grant
from gateway.wire.errors import from_failed


class Lease:
    """One call. `is_recorded` says that a record of its arrival is durable.

    `principal` is there once the caller is known.

    `usage` is what the engine has said so far, and in its ending for good.

    `first_delta_at` is when the first piece of the answer came, in monotonic seconds.
    """

    def __init__(
        self, context: RequestContext, route: str, metrics: Metrics, clock: Monotonic
    ) -> None:
        self.context = context
        self.route = route
        self.principal: Principal
        self.model = ""
        self.grant = Grant()
        self.is_recorded = False
        self.error: HisarError | None = None
        self.usage = Usage()
        self.timings = Timings()
        self.finish_reasons: list[str] = []
        self.first_delta_at: float | None = None
        self._last_delta_at = 0.0
        self._metrics = metrics
        self._clock = clock
        self._is_finished = False

    def tally(self, event: EngineEvent) -> None:
        """Count what the engine has used, as soon as it says so, whoever will read it."""
        match event:
            case Begun(prompt_tokens=prompt_tokens):
                self.usage = Usage(prompt_tokens=prompt_tokens)
            case TextDelta(num_tokens=num_tokens) | ToolCallDelta(num_tokens=num_tokens):
                written = self.usage.completion_tokens + num_tokens
                self.usage = replace(self.usage, completion_tokens=written)
            case Finished(usage=usage) | Failed(usage=usage) if usage.prompt_tokens:
                self.usage = usage

    async def follow(
        self, events: AsyncIterator[GenerationEvent]
    ) -> AsyncIterator[GenerationEvent]:
        """The same events, noted as they pass; an ending tells the `usage` that is settled."""
        async for event in events:
            self._note(event)
            yield replace(event, usage=self.usage) if isinstance(event, Finished) else event

    def finish(self, usage: Usage) -> None:
        """The engine has done what was asked at once, without events."""
        self._is_finished = True
        self.usage = usage

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
            case TextDelta() | ToolCallDelta():
                self._note_piece()
            case ChoiceFinished(finish_reason=reason):
                self.finish_reasons.append(reason.value)
            case Finished(timings=timings):
                self._is_finished = True
                self.timings = timings
            case Failed(timings=timings):
                self.error = from_failed(event)
                self.timings = timings

    def _note_piece(self) -> None:
        now = self._clock()
        if self.first_delta_at is None:
            self.first_delta_at = now
            self._gaps = self._metrics.inter_token.labels(self._metrics.label_of(self.model))
        else:
            self._gaps.observe(now - self._last_delta_at)
        self._last_delta_at = now
