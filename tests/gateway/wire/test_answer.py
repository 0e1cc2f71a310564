"""Whole answers, and streams that amount to the same, as the official client reads them."""

from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

import pytest
from openai import APIError, OpenAI

from appliance.errors import EngineError, HisarError, RequestError
from appliance.generation import (
    ChoiceFinished,
    ChosenLogprob,
    Failed,
    Finished,
    FinishReason,
    GenerationEvent,
    TextDelta,
    TokenLogprob,
    ToolCallDelta,
    Usage,
)
from gateway.wire.answer import fold

Events = tuple[GenerationEvent, ...]
Iterate = Callable[[Iterable[GenerationEvent]], AsyncIterator[GenerationEvent]]
ClientOf = Callable[..., OpenAI]

CHAT: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
TEXT: dict[str, Any] = {"model": "m", "prompt": "hi"}
LOST = Failed(code="engine.replica_lost", message="the engine was lost", retry_after_s=1.0)


def logprob(token: str, value: float, token_bytes: bytes | None = None) -> TokenLogprob:
    return TokenLogprob(
        token=token,
        token_bytes=token.encode() if token_bytes is None else token_bytes,
        logprob=value,
    )


WITH_LOGPROBS: Events = (
    TextDelta(
        index=0,
        text="Hi",
        logprobs=(
            ChosenLogprob(
                chosen=logprob("Hi", -0.25), top=(logprob("Ho", -0.125), logprob("Hi", -0.25))
            ),
        ),
    ),
    # Half of a character: no text yet, and already a token.
    TextDelta(
        index=0,
        text="",
        logprobs=(ChosenLogprob(chosen=logprob("\ufffd", float("-inf"), b"\xf0\x9f")),),
    ),
    ChoiceFinished(index=0, finish_reason=FinishReason.STOP),
    Finished(usage=Usage(prompt_tokens=1, completion_tokens=2)),
)


def test_a_chat_stream_amounts_to_the_whole_answer(
    client_of: ClientOf, two_choices: Events
) -> None:
    """vllm-mlx#628, llama.cpp#16048, vllm#7262: one finish reason a choice, then usage alone."""
    client = client_of(two_choices)
    whole = client.chat.completions.create(**CHAT)
    stream = client.chat.completions.create(
        **CHAT, stream=True, stream_options={"include_usage": True}
    )
    *chunks, last = list(stream)

    assert whole.id == "chatcmpl-r1"
    assert whole.model == "名前:7b"
    assert whole.created == 1_700_000_000
    assert [choice.index for choice in whole.choices] == [0, 1]
    for choice in whole.choices:
        own = [chunk.choices[0] for chunk in chunks if chunk.choices[0].index == choice.index]
        assert own[0].delta.role == "assistant"
        assert own[0].delta.content == ""
        assert all(piece.delta.role is None for piece in own[1:])
        text = "".join(piece.delta.content or "" for piece in own)
        assert text == choice.message.content
        reasons = [piece.finish_reason for piece in own if piece.finish_reason]
        assert reasons == [own[-1].finish_reason] == [choice.finish_reason]
    assert all("usage" in chunk.model_fields_set and chunk.usage is None for chunk in chunks)
    assert last.choices == []
    assert last.usage == whole.usage
    assert whole.usage is not None
    assert whole.usage.total_tokens == 12
    assert whole.usage.prompt_tokens_details is not None
    assert whole.usage.prompt_tokens_details.cached_tokens == 3
    assert {(chunk.id, chunk.model, chunk.created) for chunk in [*chunks, last]} == {
        (whole.id, whole.model, whole.created)
    }


def test_a_completions_stream_amounts_to_the_whole_answer(
    client_of: ClientOf, two_choices: Events
) -> None:
    whole = client_of(two_choices).completions.create(**TEXT)
    stream = client_of(two_choices, is_strict=False).completions.create(
        **TEXT, stream=True, stream_options={"include_usage": True}
    )
    *chunks, last = list(stream)

    assert whole.id == "cmpl-r1"
    for choice in whole.choices:
        own = [chunk.choices[0] for chunk in chunks if chunk.choices[0].index == choice.index]
        assert "".join(piece.text for piece in own) == choice.text
        assert own[-1].finish_reason == choice.finish_reason
        assert not any(piece.finish_reason for piece in own[:-1])
    assert last.choices == []
    assert last.usage == whole.usage


def test_usage_is_not_sent_to_those_who_did_not_ask(
    client_of: ClientOf, two_choices: Events
) -> None:
    """llama.cpp#16048, vllm#7262, BerriAI/litellm#35290: what the box meters is no business of the
    client's bytes.
    """
    chunks = list(client_of(two_choices).chat.completions.create(**CHAT, stream=True))
    assert all(chunk.choices for chunk in chunks)
    assert not any("usage" in chunk.model_fields_set for chunk in chunks)


def test_chat_logprobs_are_the_same_in_both_forms(client_of: ClientOf) -> None:
    client = client_of(WITH_LOGPROBS)
    asked = CHAT | {"logprobs": True, "top_logprobs": 2}
    (choice,) = client.chat.completions.create(**asked).choices
    assert choice.logprobs is not None
    assert choice.logprobs.content is not None
    first, half = choice.logprobs.content
    assert (first.token, first.logprob, first.bytes) == ("Hi", -0.25, [72, 105])
    assert [(rival.token, rival.logprob) for rival in first.top_logprobs] == [
        ("Ho", -0.125),
        ("Hi", -0.25),
    ]
    assert (half.logprob, half.bytes, half.top_logprobs) == (-9999.0, [0xF0, 0x9F], [])
    streamed = [
        content
        for chunk in client.chat.completions.create(**asked, stream=True)
        if chunk.choices[0].logprobs
        for content in chunk.choices[0].logprobs.content or ()
    ]
    assert streamed == choice.logprobs.content


def test_completions_logprobs_are_the_same_in_both_forms(client_of: ClientOf) -> None:
    asked = TEXT | {"logprobs": 2}
    (choice,) = client_of(WITH_LOGPROBS).completions.create(**asked).choices
    assert choice.logprobs is not None
    assert choice.logprobs.tokens == ["Hi", "\ufffd"]
    assert choice.logprobs.token_logprobs == [-0.25, -9999.0]
    assert choice.logprobs.text_offset == [0, 2]
    assert choice.logprobs.top_logprobs == [{"Ho": -0.125, "Hi": -0.25}, {}]
    client = client_of(WITH_LOGPROBS, is_strict=False)
    pieces = [
        chunk.choices[0].logprobs
        for chunk in client.completions.create(**asked, stream=True)
        if chunk.choices[0].logprobs
    ]
    for name in ("tokens", "token_logprobs", "text_offset", "top_logprobs"):
        streamed = [item for piece in pieces for item in getattr(piece, name)]
        assert streamed == getattr(choice.logprobs, name)


ECHOED: Events = (
    # The prompt "Güneş": its first token has nothing before it, and one character has two tokens.
    TextDelta(
        index=0,
        text="Güneş",
        logprobs=tuple(
            ChosenLogprob(chosen=chosen, top=(chosen,))
            for chosen in (
                logprob("G", float("nan")),
                logprob("\ufffd", -1.0, b"\xc3"),
                logprob("\ufffd", -2.0, b"\xbc"),
                logprob("neş", -3.0),
            )
        ),
    ),
    TextDelta(index=0, text=" doğdu", logprobs=(ChosenLogprob(chosen=logprob(" doğdu", -0.5)),)),
    ChoiceFinished(index=0, finish_reason=FinishReason.LENGTH),
    Finished(usage=Usage(prompt_tokens=4, completion_tokens=1)),
)


def test_an_echoed_prompt_is_part_of_the_text_and_of_its_logprobs(client_of: ClientOf) -> None:
    """vllm-project/vllm#6521: echo with logprobs; the first token of a prompt has none."""
    client = client_of(ECHOED, is_strict=False)
    (choice,) = client.completions.create(**TEXT, logprobs=1).choices
    assert choice.text == "Güneş doğdu"
    assert choice.logprobs is not None
    assert choice.logprobs.token_logprobs == [None, -1.0, -2.0, -3.0, -0.5]
    assert choice.logprobs.text_offset == [0, 1, 1, 2, 5]
    assert choice.logprobs.top_logprobs is not None
    assert choice.logprobs.top_logprobs[0] is None
    pieces = [
        chunk.choices[0].logprobs
        for chunk in client.completions.create(**TEXT, logprobs=1, stream=True)
        if chunk.choices[0].logprobs
    ]
    streamed = [offset for piece in pieces for offset in piece.text_offset or ()]
    assert streamed == choice.logprobs.text_offset


def test_a_choice_without_text_is_an_empty_string(client_of: ClientOf) -> None:
    events = (
        ChoiceFinished(index=0, finish_reason=FinishReason.CONTENT_FILTER),
        Finished(usage=Usage(prompt_tokens=1)),
    )
    client = client_of(events)
    assert client.chat.completions.create(**CHAT).choices[0].message.content == ""
    assert client.completions.create(**TEXT).choices[0].text == ""
    opening, ending = client.chat.completions.create(**CHAT, stream=True)
    assert opening.choices[0].delta.role == "assistant"
    assert ending.choices[0].finish_reason == "content_filter"


def test_tool_calls_are_put_together_from_their_pieces(client_of: ClientOf) -> None:
    events = (
        ToolCallDelta(index=0, call_index=0, id="call_1", name="find"),
        ToolCallDelta(index=0, call_index=0, arguments='{"no":'),
        ToolCallDelta(index=0, call_index=0, arguments='"417"}'),
        ChoiceFinished(index=0, finish_reason=FinishReason.TOOL_CALLS),
        Finished(usage=Usage()),
    )
    client = client_of(events)
    message = client.chat.completions.create(**CHAT).choices[0].message
    assert message.content is None
    assert message.tool_calls is not None
    (tool_call,) = message.tool_calls
    assert tool_call.id == "call_1"
    assert tool_call.type == "function"
    assert tool_call.function.arguments == '{"no":"417"}'
    pieces = [
        piece
        for chunk in client.chat.completions.create(**CHAT, stream=True)
        for piece in chunk.choices[0].delta.tool_calls or ()
    ]
    assert (pieces[0].id, pieces[0].function.name) == ("call_1", "find")
    assert "".join(piece.function.arguments or "" for piece in pieces) == '{"no":"417"}'


@pytest.mark.parametrize(
    "ending",
    [
        (LOST,),
        (),
        (ChoiceFinished(index=0, finish_reason=FinishReason.ERROR), Finished(usage=Usage())),
        (ChoiceFinished(index=0, finish_reason=FinishReason.CANCELLED), Finished(usage=Usage())),
    ],
)
def test_a_stream_that_breaks_raises_in_the_client_and_never_says_stop(
    client_of: ClientOf, ending: Events
) -> None:
    """BerriAI/litellm#33404, open-webui/open-webui#29628: broken streams passed for complete."""
    client = client_of((TextDelta(index=0, text="half an ans"), *ending), is_strict=False)
    for create, asked in (
        (client.chat.completions.create, CHAT),
        (client.completions.create, TEXT),
    ):
        stream = iter(create(**asked, stream=True))
        reasons = []
        with pytest.raises(APIError) as caught:
            while True:
                reasons.append(next(stream).choices[0].finish_reason)
        assert reasons
        assert not any(reasons)
        assert caught.value.type == "server_error"


@pytest.mark.parametrize(
    ("failed", "kind", "status"),
    [
        (LOST, EngineError, None),
        (Failed(code="engine.row_failed", message="x"), EngineError, None),
        (Failed(code="request.context_length_exceeded", message="9 > 8"), RequestError, 400),
        (Failed(code="request.cancelled", message="gone"), RequestError, 499),
        (Failed(code="model.not_found", message="no such model"), RequestError, 404),
    ],
)
async def test_a_failure_is_raised_where_nothing_has_been_sent(
    iterate: Iterate, failed: Failed, kind: type[HisarError], status: int | None
) -> None:
    with pytest.raises(kind) as caught:
        await fold(iterate([TextDelta(index=0, text="half"), failed]))
    assert caught.value.code == failed.code
    assert getattr(caught.value, "status", None) == status


@pytest.mark.parametrize(
    "events",
    [
        [],
        [TextDelta(index=0, text="half")],
        [TextDelta(index=0, text="half"), Finished(usage=Usage())],
        [ChoiceFinished(index=0, finish_reason=FinishReason.ERROR), Finished(usage=Usage())],
    ],
)
async def test_an_answer_is_never_made_up_from_half_of_one(
    iterate: Iterate, events: list[GenerationEvent]
) -> None:
    with pytest.raises(EngineError) as caught:
        await fold(iterate(events))
    assert caught.value.code == "engine.answer_cut"
