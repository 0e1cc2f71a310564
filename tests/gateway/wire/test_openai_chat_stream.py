"""Chat answers with thoughts and calls, whole and in chunks."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from openai import OpenAI

from appliance.generation import (
    ChoiceFinished,
    Finished,
    FinishReason,
    GenerationEvent,
    TextDelta,
    ToolCallDelta,
    Usage,
)
from gateway.wire import openai_chat
from gateway.wire.call import Call

Events = tuple[GenerationEvent, ...]
Iterate = Callable[[Iterable[GenerationEvent]], AsyncIterator[GenerationEvent]]

CHAT: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}

texts = st.text(max_size=4)
text_deltas = st.builds(
    TextDelta,
    index=st.integers(0, 1),
    text=texts,
    channel=st.sampled_from(["content", "reasoning"]),
)
call_deltas = st.builds(
    ToolCallDelta, index=st.integers(0, 1), call_index=st.integers(0, 2), arguments=texts
)
JOINED_HEAD = ToolCallDelta(index=0, call_index=3, id="call_3", name="list", arguments="{}")


def with_heads(deltas: list[TextDelta | ToolCallDelta]) -> list[TextDelta | ToolCallDelta]:
    """The same deltas, each call opened by one with its id and name, as an engine opens it."""
    opened: set[tuple[int, int]] = set()
    headed: list[TextDelta | ToolCallDelta] = []
    for delta in deltas:
        if isinstance(delta, ToolCallDelta):
            key = (delta.index, delta.call_index)
            if key not in opened:
                opened.add(key)
                headed.append(
                    ToolCallDelta(index=key[0], call_index=key[1], id=f"call_{key}", name="find")
                )
        headed.append(delta)
    return headed


async def collect(chunks: AsyncIterator[bytes]) -> list[dict[str, Any]]:
    frames = b"".join([chunk async for chunk in chunks]).split(b"\n\n")
    return [json.loads(frame.removeprefix(b"data: ")) for frame in frames[:-2]]


def join(pieces: list[dict[str, Any]]) -> dict[str, Any]:
    """The message that the deltas of one choice amount to."""
    content = "".join(piece.get("content", "") for piece in pieces)
    thoughts = "".join(piece.get("reasoning_content", "") for piece in pieces)
    calls: dict[int, dict[str, Any]] = {}
    for call in (call for piece in pieces for call in piece.get("tool_calls", ())):
        if "id" in call:
            assert call["function"]["arguments"] == ""
            calls[call["index"]] = {"id": call["id"], "type": call["type"], **call}
            del calls[call["index"]]["index"]
        else:
            calls[call["index"]]["function"]["arguments"] += call["function"]["arguments"]
    message: dict[str, Any] = {"role": pieces[0]["role"], "refusal": None, "content": content}
    if calls:
        message["content"] = content or None
        message["tool_calls"] = [call for _, call in sorted(calls.items())]
    return message | ({"reasoning_content": thoughts} if thoughts else {})


@given(st.lists(text_deltas | call_deltas, max_size=12))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_joined_deltas_are_the_plain_answer(
    iterate: Iterate, call: Call, deltas: list[TextDelta | ToolCallDelta]
) -> None:
    """vllm-project/vllm#10781, #45256, #48702: streamed arguments were cut or invalid."""
    endings = [ChoiceFinished(index=at, finish_reason=FinishReason.TOOL_CALLS) for at in (0, 1)]
    events = [*with_heads(deltas), JOINED_HEAD, *endings, Finished(usage=Usage())]
    whole = json.loads(asyncio.run(openai_chat.encode_whole(iterate(events), call)))
    chunks = asyncio.run(collect(openai_chat.encode_stream(iterate(events), call)))
    for choice in whole["choices"]:
        own = [
            chunk["choices"][0]
            for chunk in chunks
            if chunk["choices"][0]["index"] == choice["index"]
        ]
        assert join([piece["delta"] for piece in own]) == choice["message"]
        assert own[-1]["finish_reason"] == choice["finish_reason"] == "tool_calls"


def test_thoughts_stand_apart_from_the_answer(
    client_of: Callable[..., OpenAI], thoughts_text_and_calls: Events
) -> None:
    client = client_of(thoughts_text_and_calls)
    (choice,) = client.chat.completions.create(**CHAT).choices
    assert choice.message.content == 'Let me "look"\n'
    assert choice.message.model_extra == {"reasoning_content": "Hmm, 🙂."}
    assert [call.id for call in choice.message.tool_calls or ()] == ["call_1", "call_2"]
    deltas = [
        chunk.choices[0].delta for chunk in client.chat.completions.create(**CHAT, stream=True)
    ]
    thoughts = [(delta.model_extra or {}).get("reasoning_content") for delta in deltas]
    assert "".join(filter(None, thoughts)) == "Hmm, 🙂."
    assert not any(delta.content for delta in deltas[: thoughts.index("m, 🙂.") + 1])


def test_an_answer_without_thoughts_or_calls_does_not_speak_of_them(
    client_of: Callable[..., OpenAI], two_choices: Events
) -> None:
    for choice in client_of(two_choices).chat.completions.create(**CHAT).choices:
        assert not {"reasoning_content", "tool_calls"} & choice.message.to_dict().keys()
