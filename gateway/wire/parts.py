"""How the events of one choice become parts in their order: thoughts, text and tool calls.

For the dialects whose answer is a list of items. Streams and whole answers are cut by the same
`Parts`, so the two amount to the same. An engine writes one part after the other: whatever belongs
to another part ends the one before.
"""

from collections.abc import AsyncIterator
from typing import Literal, TypeAlias

from msgspec import Struct, field

from appliance.generation import (
    ChoiceFinished,
    ChosenLogprob,
    Failed,
    Finished,
    FinishReason,
    GenerationEvent,
    TextDelta,
    ToolCallDelta,
    Usage,
)
from gateway.wire.answer import VISIBLE_REASONS, cut_answer
from gateway.wire.errors import from_failed


class Part(Struct, kw_only=True):
    """One part, while it grows and after. `id` and `name` are those of a tool call.

    `is_cut` says that the choice ended for lack of tokens inside of this part.
    """

    index: int = 0
    kind: Literal["content", "reasoning", "tool_call"]
    call_index: int = 0
    id: str = ""
    name: str = ""
    pieces: list[str] = field(default_factory=list)
    logprobs: list[ChosenLogprob] = field(default_factory=list)
    is_cut: bool = False

    @property
    def text(self) -> str:
        """What there is of it: text, or the arguments of a tool call."""
        return "".join(self.pieces)


class Opened(Struct, frozen=True):
    """A part begins, and is empty."""

    part: Part


class Grown(Struct, frozen=True):
    """A part has a new piece."""

    part: Part
    text: str
    logprobs: tuple[ChosenLogprob, ...] = ()


class Closed(Struct, frozen=True):
    """A part is complete, or as complete as it will get."""

    part: Part


Step: TypeAlias = Opened | Grown | Closed


class PartsAnswer(Struct, frozen=True, kw_only=True):
    """The whole answer of a request with one choice."""

    parts: tuple[Part, ...]
    finished: ChoiceFinished
    usage: Usage
    num_reasoning_tokens: int = 0


class Parts:
    """The parts of one choice so far."""

    def __init__(self) -> None:
        self.closed: list[Part] = []
        self._open: Part | None = None
        self._finished: ChoiceFinished | None = None
        self._num_reasoning_tokens = 0

    def take(self, delta: TextDelta | ToolCallDelta) -> list[Step]:
        """What a delta does; text that is held back does nothing yet."""
        if isinstance(delta, ToolCallDelta):
            return self._enter_call(delta) + self._grow(delta.arguments, ())
        if delta.channel == "reasoning":
            self._num_reasoning_tokens += delta.num_tokens
        if not delta.text and not delta.logprobs:
            return []
        return self._enter_text(delta) + self._grow(delta.text, delta.logprobs)

    def finish(self, choice: ChoiceFinished) -> list[Step]:
        """The end of the last part."""
        self._finished = choice
        return self._close(is_cut=choice.finish_reason is FinishReason.LENGTH)

    def join(self, usage: Usage) -> PartsAnswer:
        """The whole answer. Raises EngineError where the choice did not say how it ended."""
        if self._finished is None or self._finished.finish_reason not in VISIBLE_REASONS:
            raise cut_answer()
        return PartsAnswer(
            parts=tuple(self.closed),
            finished=self._finished,
            usage=usage,
            num_reasoning_tokens=self._num_reasoning_tokens,
        )

    def _enter_call(self, delta: ToolCallDelta) -> list[Step]:
        part = self._open
        if part is not None and part.kind == "tool_call" and part.call_index == delta.call_index:
            return []
        return self._begin(
            Part(kind="tool_call", call_index=delta.call_index, id=delta.id, name=delta.name)
        )

    def _enter_text(self, delta: TextDelta) -> list[Step]:
        if self._open is not None and self._open.kind == delta.channel:
            return []
        return self._begin(Part(kind=delta.channel))

    def _begin(self, part: Part) -> list[Step]:
        steps = self._close()
        part.index = len(self.closed)
        self._open = part
        return [*steps, Opened(part)]

    def _grow(self, text: str, logprobs: tuple[ChosenLogprob, ...]) -> list[Step]:
        if self._open is None or (not text and not logprobs):
            return []
        self._open.pieces.append(text)
        self._open.logprobs.extend(logprobs)
        return [Grown(self._open, text, logprobs)]

    def _close(self, *, is_cut: bool = False) -> list[Step]:
        part, self._open = self._open, None
        if part is None:
            return []
        part.is_cut = is_cut
        self.closed.append(part)
        return [Closed(part)]


async def gather(events: AsyncIterator[GenerationEvent]) -> PartsAnswer:
    """Wait for the ending and put the parts together.

    Raises what a Failed stands for (RequestError or EngineError), and EngineError
    `engine.answer_cut` where the events end, or the choice ends, without saying how.
    """
    parts = Parts()
    async for event in events:
        match event:
            case TextDelta() | ToolCallDelta():
                parts.take(event)
            case ChoiceFinished():
                parts.finish(event)
            case Finished(usage=usage):
                return parts.join(usage)
            case Failed():
                raise from_failed(event)
    raise cut_answer()
