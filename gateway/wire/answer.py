"""How the events of a request become one whole answer."""

from collections.abc import AsyncIterator
from typing import Final

from msgspec import Struct, field

from appliance.errors import EngineError
from appliance.generation import (
    ChoiceFinished,
    ChosenLogprob,
    Failed,
    Finished,
    FinishReason,
    GenerationEvent,
    TextDelta,
    ToolCall,
    ToolCallDelta,
    Usage,
)
from gateway.wire.errors import from_failed

VISIBLE_REASONS: Final = frozenset(
    {
        FinishReason.STOP,
        FinishReason.LENGTH,
        FinishReason.TOOL_CALLS,
        FinishReason.CONTENT_FILTER,
    }
)


class Choice(Struct, frozen=True, kw_only=True):
    """One complete choice."""

    index: int
    text: str
    finish_reason: FinishReason
    logprobs: tuple[ChosenLogprob, ...] = ()
    tool_calls: tuple[ToolCall, ...] = ()
    reasoning: str = ""


class Answer(Struct, frozen=True, kw_only=True):
    """All choices of a request, in order of their index."""

    choices: tuple[Choice, ...]
    usage: Usage


class _Pieces(Struct, kw_only=True):
    """What has come of one choice so far."""

    texts: list[str] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)
    logprobs: list[ChosenLogprob] = field(default_factory=list)
    tool_calls: dict[int, list[ToolCallDelta]] = field(default_factory=dict)
    finish_reason: FinishReason | None = None

    def add(self, event: TextDelta | ToolCallDelta | ChoiceFinished) -> None:
        match event:
            case TextDelta(text=text, logprobs=logprobs, channel=channel):
                (self.texts if channel == "content" else self.thoughts).append(text)
                self.logprobs.extend(logprobs)
            case ToolCallDelta(call_index=call_index):
                self.tool_calls.setdefault(call_index, []).append(event)
            case ChoiceFinished(finish_reason=reason):
                self.finish_reason = reason

    def join(self, index: int) -> Choice:
        if self.finish_reason not in VISIBLE_REASONS:
            raise cut_answer()
        return Choice(
            index=index,
            text="".join(self.texts),
            finish_reason=self.finish_reason,
            logprobs=tuple(self.logprobs),
            tool_calls=tuple(_join_call(deltas) for _, deltas in sorted(self.tool_calls.items())),
            reasoning="".join(self.thoughts),
        )


async def fold(events: AsyncIterator[GenerationEvent]) -> Answer:
    """Wait for the ending and put the pieces together.

    Raises what a Failed stands for (RequestError or EngineError), and EngineError
    `engine.answer_cut` where the events end, or a choice ends, without saying how.
    """
    pieces: dict[int, _Pieces] = {}
    async for event in events:
        match event:
            case Finished(usage=usage):
                choices = tuple(piece.join(index) for index, piece in sorted(pieces.items()))
                return Answer(choices=choices, usage=usage)
            case Failed():
                raise from_failed(event)
            case _:
                pieces.setdefault(event.index, _Pieces()).add(event)
    raise cut_answer()


def cut_answer() -> EngineError:
    """The engine fell silent before an answer was complete."""
    return EngineError("engine.answer_cut", "the engine ended the answer before it was complete")


def _join_call(deltas: list[ToolCallDelta]) -> ToolCall:
    return ToolCall(
        id="".join(delta.id for delta in deltas),
        name="".join(delta.name for delta in deltas),
        arguments="".join(delta.arguments for delta in deltas),
    )
