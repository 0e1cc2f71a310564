"""Frames: what goes in comes out, and nothing else does."""

from contextlib import suppress
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.embedding import EmbeddingRequest, Embeddings
from appliance.generation import (
    Failed,
    GenerationRequest,
    TextDelta,
    TextPrompt,
    TokenPrompt,
    Usage,
)
from appliance.tokens import Detokenized, DetokenizeRequest, Tokenized, TokenizeRequest
from engines.protocol import (
    MAX_FRAME_BYTES,
    Abort,
    Answer,
    AnyMessage,
    Ask,
    Drain,
    Events,
    FrameError,
    Generate,
    Hello,
    Load,
    ModelFacts,
    Ready,
    ReplicaStatus,
    decode_body,
    encode_frame,
    split_frames,
)

DECODER = msgspec.msgpack.Decoder(AnyMessage)

text = st.text(st.characters(exclude_categories=("Cs",)), max_size=50)
ids = st.lists(st.integers(0, 2**31), max_size=5).map(tuple)
questions = st.one_of(
    st.builds(TokenizeRequest, model=text, prompt=st.builds(TextPrompt, text=text)),
    st.builds(DetokenizeRequest, model=text, token_ids=ids),
    st.builds(
        EmbeddingRequest, model=text, inputs=st.tuples(st.builds(TokenPrompt, token_ids=ids))
    ),
)
replies = st.one_of(
    st.builds(Tokenized, token_ids=ids, context_tokens=st.integers(0, 9)),
    st.builds(Detokenized, text=text),
    st.builds(
        Embeddings,
        vectors=st.lists(st.binary(max_size=8), max_size=3).map(tuple),
        usage=st.builds(Usage, prompt_tokens=st.integers(0, 9)),
    ),
)
messages = st.one_of(
    st.builds(Ask, call_id=st.integers(0, 9), question=questions),
    st.builds(Answer, call_id=st.integers(0, 9), reply=replies),
    st.builds(Hello),
    st.builds(Drain),
    st.builds(Abort, request_id=text),
    st.builds(Load, call_id=st.integers(0, 2**32), model=text),
    st.builds(
        Generate,
        request=st.builds(
            GenerationRequest,
            id=text,
            model=text,
            prompts=st.tuples(st.builds(TextPrompt, text=text)),
        ),
    ),
    st.builds(
        Events,
        batch=st.lists(
            st.tuples(
                text,
                st.builds(TextDelta, index=st.integers(0, 9), text=text)
                | st.builds(Failed, code=text, message=text),
            ),
            max_size=5,
        ).map(tuple),
    ),
    st.just(
        Ready(
            facts=ModelFacts(
                model="m", runner="echo", context_tokens=1, vocabulary_size=2, num_slots=3
            )
        )
    ),
    st.builds(ReplicaStatus, call_id=st.integers(0, 9), model=text),
)


@settings(deadline=None)
@given(sent=st.lists(messages, max_size=8), data=st.data())
def test_messages_come_out_as_they_went_in_however_the_bytes_are_cut(
    sent: list[AnyMessage], data: st.DataObject
) -> None:
    stream = b"".join(encode_frame(message) for message in sent)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=20)))
    buffer = bytearray()
    received = []
    for start, end in pairwise([0, *cuts, len(stream)]):
        buffer += stream[start:end]
        received += [decode_body(DECODER, body) for body in split_frames(buffer)]
    assert received == sent
    assert not buffer


@settings(deadline=None)
@given(st.lists(messages, min_size=1, max_size=5), st.integers(1, 1000))
def test_an_unfinished_frame_stays_in_the_buffer(sent: list[AnyMessage], missing: int) -> None:
    frames = [encode_frame(message) for message in sent]
    kept = max(0, len(frames[-1]) - missing)
    buffer = bytearray(b"".join(frames[:-1]) + frames[-1][:kept])
    assert len(list(split_frames(buffer))) == len(sent) - 1
    assert buffer == frames[-1][:kept]


def test_frames_taken_before_the_reader_stops_are_not_seen_again() -> None:
    buffer = bytearray(encode_frame(Hello()) + encode_frame(Drain()))
    for body in split_frames(buffer):
        assert decode_body(DECODER, body) == Hello()
        break
    assert [decode_body(DECODER, body) for body in split_frames(buffer)] == [Drain()]


def test_a_length_over_the_limit_is_refused_after_the_frames_before_it() -> None:
    buffer = bytearray(encode_frame(Hello()) + (MAX_FRAME_BYTES + 1).to_bytes(4, "big"))
    taken = split_frames(buffer)
    assert decode_body(DECODER, next(iter(taken))) == Hello()
    with pytest.raises(FrameError):
        next(iter(taken))


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_a_message_or_a_frame_error(body: bytes) -> None:
    with suppress(FrameError):
        decode_body(DECODER, body)


def test_a_frame_nested_too_deeply_is_a_frame_error() -> None:
    with pytest.raises(FrameError):
        decode_body(DECODER, b"\x82\xa4type\xa5drain\xa1x" + b"\x91" * 200_000 + b"\xc0")


def test_a_frame_error_quotes_nothing_of_the_frame() -> None:
    secret = msgspec.msgpack.encode({"type": "generate", "request": {"id": "my-secret", "n": "x"}})
    with pytest.raises(FrameError) as caught:
        decode_body(DECODER, secret)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "message",
    [
        Abort(request_id="\ud800"),
        Load(call_id=2**70, model="m"),
        Load(call_id=1, model="x" * 2**25),
    ],
    ids=["half a surrogate pair", "a number over 64 bits", "over the size limit"],
)
def test_what_no_frame_can_carry_is_a_frame_error(message: AnyMessage) -> None:
    with pytest.raises(FrameError):
        encode_frame(message)
