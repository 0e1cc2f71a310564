"""How an answer looks as OpenAI's response object."""

from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

from msgspec import Struct

from appliance.errors import HisarError
from appliance.generation import FinishReason, Usage
from gateway.wire.call import Call
from gateway.wire.errors import tell
from gateway.wire.openai_logprobs import WireChosenLogprob, to_chosen
from gateway.wire.parts import Part, PartsAnswer

Status: TypeAlias = Literal["in_progress", "completed", "incomplete"]

# Why an answer is incomplete; for any other reason it is complete.
_INCOMPLETE: Final = {
    FinishReason.LENGTH: "max_output_tokens",
    FinishReason.CONTENT_FILTER: "content_filter",
}
# The errors that a response has words of its own for.
_ERROR_CODES: Final = ("rate_limit_exceeded", "data_residency_mismatch")


class OutputText(Struct, frozen=True, kw_only=True, tag_field="type", tag="output_text"):
    """The text of a message."""

    text: str
    annotations: tuple[str, ...] = ()
    logprobs: list[WireChosenLogprob] = []


class ReasoningText(Struct, frozen=True, kw_only=True, tag_field="type", tag="reasoning_text"):
    """What the model thought."""

    text: str


class MessageItem(Struct, frozen=True, kw_only=True, tag_field="type", tag="message"):
    """What the model said."""

    id: str
    status: Status
    role: str = "assistant"
    content: tuple[OutputText, ...] = ()


class ReasoningItem(Struct, frozen=True, kw_only=True, tag_field="type", tag="reasoning"):
    """What the model thought before it spoke."""

    id: str
    status: Status
    summary: tuple[str, ...] = ()
    content: tuple[ReasoningText, ...] = ()


class CallItem(Struct, frozen=True, kw_only=True, tag_field="type", tag="function_call"):
    """A call the model wants made."""

    id: str
    status: Status
    call_id: str
    name: str
    arguments: str = ""


Item: TypeAlias = MessageItem | ReasoningItem | CallItem
Content: TypeAlias = OutputText | ReasoningText


class InputDetails(Struct, frozen=True):
    """How much of the prompt was found in the prefix cache."""

    cached_tokens: int
    cache_write_tokens: int = 0


class OutputDetails(Struct, frozen=True):
    """How much of the answer was thought."""

    reasoning_tokens: int


class ResponseUsage(Struct, frozen=True):
    """What a request consumed."""

    input_tokens: int
    input_tokens_details: InputDetails
    output_tokens: int
    output_tokens_details: OutputDetails
    total_tokens: int


class Response(Struct, frozen=True, kw_only=True):
    """A response, complete or on its way; the last block is what it repeats of the request."""

    id: str
    object: str = "response"
    created_at: int
    model: str
    status: Literal["in_progress", "completed", "incomplete", "failed"]
    error: Mapping[str, str] | None = None
    incomplete_details: Mapping[str, str] | None = None
    output: tuple[Item, ...] = ()
    usage: ResponseUsage | None = None
    background: bool = False
    previous_response_id: None = None
    store: bool = False
    truncation: str = "disabled"

    instructions: str | None = None
    max_output_tokens: int | None = None
    metadata: Mapping[str, str] = {}
    parallel_tool_calls: bool = True
    temperature: float = 1.0
    text: Mapping[str, Any] = {}
    tool_choice: Any = "auto"
    tools: Any = ()
    top_logprobs: int = 0
    top_p: float = 1.0
    user: str | None = None


def to_response(answer: PartsAnswer, call: Call) -> Response:
    """The whole answer to that call."""
    why = _INCOMPLETE.get(answer.finished.finish_reason)
    return _respond(
        call,
        status="incomplete" if why else "completed",
        incomplete_details={"reason": why} if why else None,
        output=tuple(to_item(part, call) for part in answer.parts),
        usage=_to_usage(answer.usage, answer.num_reasoning_tokens),
    )


def to_begun(call: Call) -> Response:
    """A response that has just begun."""
    return _respond(call, status="in_progress")


def to_failed(error: HisarError, parts: list[Part], call: Call) -> Response:
    """A response that ended in an error, with the parts that were complete by then."""
    told = tell(error)
    code = "server_error" if told.type == "server_error" else "invalid_prompt"
    return _respond(
        call,
        status="failed",
        error={
            "code": told.code if told.code in _ERROR_CODES else code,
            "message": told.message,
        },
        output=tuple(to_item(part, call) for part in parts),
    )


def to_item(part: Part, call: Call) -> Item:
    """A part that is complete, or as complete as it will get."""
    status: Status = "incomplete" if part.is_cut else "completed"
    item_id = to_item_id(part, call)
    if part.kind == "tool_call":
        return CallItem(
            id=item_id, status=status, call_id=part.id, name=part.name, arguments=part.text
        )
    if part.kind == "reasoning":
        return ReasoningItem(id=item_id, status=status, content=(ReasoningText(text=part.text),))
    return MessageItem(id=item_id, status=status, content=(to_output_text(part),))


def to_empty_item(part: Part, call: Call) -> Item:
    """A part that has just begun."""
    item_id = to_item_id(part, call)
    if part.kind == "tool_call":
        return CallItem(id=item_id, status="in_progress", call_id=part.id, name=part.name)
    if part.kind == "reasoning":
        return ReasoningItem(id=item_id, status="in_progress")
    return MessageItem(id=item_id, status="in_progress")


def to_output_text(part: Part) -> OutputText:
    """What a message says, with its logprobs."""
    return OutputText(text=part.text, logprobs=[to_chosen(logprob) for logprob in part.logprobs])


def to_item_id(part: Part, call: Call) -> str:
    """What a part is called."""
    prefix = {"content": "msg", "reasoning": "rs", "tool_call": "fc"}[part.kind]
    return f"{prefix}_{call.id}_{part.index}"


def _respond(
    call: Call,
    *,
    status: Literal["in_progress", "completed", "incomplete", "failed"],
    **fields: Any,  # noqa: ANN401
) -> Response:
    return Response(
        id=f"resp_{call.id}",
        created_at=call.created,
        model=call.model,
        status=status,
        **fields,
        **call.repeated,
    )


def _to_usage(usage: Usage, num_reasoning_tokens: int) -> ResponseUsage:
    return ResponseUsage(
        usage.prompt_tokens,
        InputDetails(usage.cached_tokens),
        usage.completion_tokens,
        OutputDetails(num_reasoning_tokens),
        usage.prompt_tokens + usage.completion_tokens,
    )
