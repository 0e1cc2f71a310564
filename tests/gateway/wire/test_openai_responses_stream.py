"""Responses, whole and as events, as OpenAI's own client reads them."""

from collections.abc import Callable
from typing import Any

import pytest
from openai import OpenAI
from openai.types.responses import ResponseFailedEvent

from appliance.generation import (
    ChoiceFinished,
    ChosenLogprob,
    Failed,
    Finished,
    FinishReason,
    GenerationEvent,
    TextDelta,
    TokenLogprob,
    Usage,
)

Events = tuple[GenerationEvent, ...]
ClientOf = Callable[..., OpenAI]

ASKED: dict[str, Any] = {"model": "m", "input": "hi"}
DONE = (ChoiceFinished(index=0, finish_reason=FinishReason.STOP), Finished(usage=Usage()))


def stream_of(client: OpenAI, **asked: Any) -> list[Any]:
    return list(client.responses.create(**ASKED, **asked, stream=True))


def test_a_stream_amounts_to_the_whole_answer(
    client_of: ClientOf, thoughts_text_and_calls: Events
) -> None:
    client = client_of(thoughts_text_and_calls)
    whole = client.responses.create(**ASKED)
    with client.responses.stream(**ASKED) as stream:
        for _ in stream:
            pass
        accumulated = stream.get_final_response()
    assert stream_of(client)[-1].response == whole
    assert (accumulated.output_text, accumulated.usage) == (whole.output_text, whole.usage)
    assert [item.id for item in accumulated.output] == [item.id for item in whole.output]
    thoughts, said, *calls = whole.output
    assert thoughts.type == "reasoning"
    assert [part.text for part in thoughts.content or ()] == ["Hmm, 🙂."]
    assert said.type == "message"
    assert whole.output_text == 'Let me "look"\n'
    assert [(call.name, call.call_id, call.arguments) for call in calls] == [
        ("find", "call_1", '{"no": "417"}'),
        ("list", "call_2", "{}"),
    ]
    assert whole.status == "completed"
    assert whole.usage is not None
    assert whole.usage.total_tokens == 29
    assert whole.usage.input_tokens_details.cached_tokens == 4
    assert whole.usage.output_tokens_details.reasoning_tokens == 4


def test_the_events_come_in_their_order_and_are_numbered(
    client_of: ClientOf, thoughts_text_and_calls: Events
) -> None:
    events = stream_of(client_of(thoughts_text_and_calls))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    around = ["response.output_item.added", "response.content_part.added"]
    after = ["response.content_part.done", "response.output_item.done"]
    call = ["response.output_item.added"]
    arguments = "response.function_call_arguments"
    assert [event.type for event in events] == [
        "response.created",
        "response.in_progress",
        *around,
        *["response.reasoning_text.delta"] * 2,
        "response.reasoning_text.done",
        *after,
        *around,
        *["response.output_text.delta"] * 2,
        "response.output_text.done",
        *after,
        *call,
        *[f"{arguments}.delta"] * 2,
        f"{arguments}.done",
        "response.output_item.done",
        *call,
        f"{arguments}.delta",
        f"{arguments}.done",
        "response.output_item.done",
        "response.completed",
    ]


def test_joined_deltas_are_what_done_says(
    client_of: ClientOf, thoughts_text_and_calls: Events
) -> None:
    events = stream_of(client_of(thoughts_text_and_calls))
    for index in range(4):
        own = [event for event in events if getattr(event, "output_index", None) == index]
        joined = "".join(event.delta for event in own if event.type.endswith(".delta"))
        (done,) = [event for event in own if event.type.endswith(("text.done", "arguments.done"))]
        assert joined == (done.arguments if hasattr(done, "arguments") else done.text)
        assert len({event.item_id for event in own if hasattr(event, "item_id")}) == 1


@pytest.mark.parametrize(
    ("reason", "why", "item_status"),
    [
        (FinishReason.LENGTH, "max_output_tokens", "incomplete"),
        (FinishReason.CONTENT_FILTER, "content_filter", "completed"),
    ],
)
def test_an_answer_that_is_cut_is_incomplete(
    client_of: ClientOf, reason: FinishReason, why: str, item_status: str
) -> None:
    client = client_of(
        (
            TextDelta(index=0, text="Once upon"),
            ChoiceFinished(index=0, finish_reason=reason),
            Finished(usage=Usage(prompt_tokens=1, completion_tokens=2)),
        )
    )
    whole = client.responses.create(**ASKED)
    last = stream_of(client)[-1]
    assert last.type == "response.incomplete"
    assert last.response == whole
    assert whole.incomplete_details is not None
    assert (whole.status, whole.incomplete_details.reason) == ("incomplete", why)
    assert whole.output[0].status == item_status


def test_the_answer_repeats_what_was_asked(client_of: ClientOf) -> None:
    tool = {"type": "function", "name": "find", "parameters": {"type": "object"}, "strict": True}
    asked: dict[str, Any] = {
        "instructions": "Be brief.",
        "max_output_tokens": 5,
        "metadata": {"team": "loans"},
        "temperature": 0.5,
        "tools": [tool],
        "tool_choice": {"type": "function", "name": "find"},
        "parallel_tool_calls": False,
        "text": {"format": {"type": "json_object"}},
    }
    whole = client_of(DONE).responses.create(**ASKED, **asked).model_dump(exclude_none=True)
    assert {name: whole[name] for name in asked} == asked
    assert (whole["id"], whole["model"], whole["store"]) == ("resp_r1", "名前:7b", False)
    assert whole["output"] == []


def test_logprobs_come_with_the_text_in_both_forms(client_of: ClientOf) -> None:
    token = TokenLogprob(token="Hi", token_bytes=b"Hi", logprob=-0.25)
    client = client_of(
        (
            TextDelta(index=0, text="Hi", logprobs=(ChosenLogprob(chosen=token, top=(token,)),)),
            *DONE,
        )
    )
    asked: dict[str, Any] = {"include": ["message.output_text.logprobs"], "top_logprobs": 1}
    (said,) = client.responses.create(**ASKED, **asked).output
    assert said.type == "message"
    assert said.content[0].type == "output_text"
    (logprob,) = said.content[0].logprobs or ()
    assert (logprob.token, logprob.logprob, logprob.bytes) == ("Hi", -0.25, [72, 105])
    assert [rival.token for rival in logprob.top_logprobs] == ["Hi"]
    (delta,) = [
        event for event in stream_of(client, **asked) if event.type == "response.output_text.delta"
    ]
    assert [logprob.token for logprob in delta.logprobs] == ["Hi"]


@pytest.mark.parametrize(
    ("ending", "code"),
    [
        ((Failed(code="engine.replica_lost", message="lost", retry_after_s=1.0),), "server_error"),
        ((), "server_error"),
        ((Finished(usage=Usage()),), "server_error"),
        (
            (ChoiceFinished(index=0, finish_reason=FinishReason.CANCELLED),),
            "server_error",
        ),
        ((Failed(code="request.context_length_exceeded", message="9 of 8"),), "invalid_prompt"),
        ((Failed(code="limits.tokens_per_minute", message="later"),), "rate_limit_exceeded"),
    ],
)
def test_a_stream_that_breaks_says_failed_and_never_completed(
    client_of: ClientOf, ending: Events, code: str
) -> None:
    """BerriAI/litellm#33404, open-webui/open-webui#29628: broken streams passed for complete."""
    events = stream_of(client_of((TextDelta(index=0, text="half an ans"), *ending)))
    last = events[-1]
    assert isinstance(last, ResponseFailedEvent)
    assert last.response.status == "failed"
    assert last.response.error is not None
    assert last.response.error.code == code
    assert "response.completed" not in {event.type for event in events}
