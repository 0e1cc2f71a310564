"""What the gateway sees of the engine host: events, endings, and what a lost host looks like."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from appliance.errors import EngineError
from appliance.generation import (
    Begun,
    EngineEvent,
    Failed,
    Finished,
    GenerationRequest,
    TextDelta,
    TextPrompt,
    Usage,
)
from engines.client import EngineClient
from engines.protocol import (
    Abort,
    Events,
    FromGateway,
    Generate,
    Refused,
    Welcome,
    decode_body,
    encode_frame,
    split_frames,
)
from tests.engines.host_process import (
    LONG_PROMPT,
    HostProcess,
    answer,
    connected,
    replica_when,
    request,
    text_of,
    until,
)

FINISHED = Finished(usage=Usage())
WELCOME = Welcome(host_pid=1)


class ScriptedHost:
    """Says to one gateway exactly what a test wants said; keeps what it hears."""

    def __init__(self, path: Path, greeting: Welcome | Refused) -> None:
        self.path = path
        self.greeting = greeting
        self.heard: list[FromGateway] = []
        self._writers: list[asyncio.StreamWriter] = []

    def say(self, message: Any) -> None:
        """Send a message to the gateway that came last."""
        self._writers[-1].write(encode_frame(message))

    async def hear(self, kind: type, num: int = 1) -> Any:
        """The `num`th message of a kind, once it is there."""
        await until(lambda: sum(isinstance(m, kind) for m in self.heard) >= num)
        return [m for m in self.heard if isinstance(m, kind)][num - 1]

    def hang_up(self) -> None:
        """End every connection."""
        for writer in self._writers:
            writer.close()

    def leave(self) -> None:
        """End every connection and take the socket away."""
        self.hang_up()
        self.path.unlink()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection."""
        self._writers.append(writer)
        self.say(self.greeting)
        buffer = bytearray()
        decoder = msgspec.msgpack.Decoder(FromGateway)
        while data := await reader.read(65536):
            buffer += data
            self.heard += [decode_body(decoder, body) for body in split_frames(buffer)]
        writer.close()


@asynccontextmanager
async def scripted(
    path: Path, greeting: Welcome | Refused = WELCOME
) -> AsyncIterator[ScriptedHost]:
    """A scripted host that listens."""
    host = ScriptedHost(path, greeting)
    server = await asyncio.start_unix_server(host.serve, path)
    try:
        yield host
    finally:
        server.close()
        host.leave()


@pytest.fixture
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a scripted host listens."""
    return tmp_path_factory.mktemp("s") / "engine.sock"


async def test_an_answer_arrives_whole_and_ends_once(client: EngineClient) -> None:
    events = await answer(client, request("hello world"))
    assert text_of(events) == "hello world"
    assert [isinstance(e, (Finished, Failed)) for e in events].count(True) == 1
    assert isinstance(events[-1], Finished)
    assert events[-1].usage.prompt_tokens > 0


async def test_who_is_cut_off_knows_how_long_the_prompt_was(client: EngineClient) -> None:
    whole = (await answer(client, request(LONG_PROMPT)))[-1]
    told: list[EngineEvent] = []
    async with aclosing(client.generate(request(LONG_PROMPT), told.append)) as events:
        first = await anext(events)
    assert isinstance(whole, Finished)
    assert told[:2] == [Begun(prompt_tokens=whole.usage.prompt_tokens), first]


async def test_many_requests_share_one_connection_and_keep_their_own_text(
    client: EngineClient,
) -> None:
    texts = [f"request number {i} says {'x' * i}" for i in range(60)]
    answers = await asyncio.gather(*(answer(client, request(text)) for text in texts))
    assert [text_of(events) for events in answers] == texts
    await replica_when(client, lambda r: r.stats.num_running == r.stats.num_waiting == 0)


async def test_one_id_may_be_in_use_twice_at_once(client: EngineClient) -> None:
    assert request("first").id == request("second").id
    first, second = await asyncio.gather(
        answer(client, request("first")), answer(client, request("second"))
    )
    assert (text_of(first), text_of(second)) == ("first", "second")


async def test_an_unknown_model_fails_the_request_alone(client: EngineClient) -> None:
    (failed,) = await answer(client, request(model="nobody"))
    assert isinstance(failed, Failed)
    assert failed.code == "model.not_found"
    with pytest.raises(EngineError) as caught:
        await client.load("nobody")
    assert caught.value.code == "model.not_found"


async def test_text_no_frame_can_carry_fails_the_request_alone(client: EngineClient) -> None:
    (failed,) = await answer(client, request("\ud800"))
    assert isinstance(failed, Failed)
    assert failed.code == "engine.request_unsendable"
    assert text_of(await answer(client, request("still here"))) == "still here"


@pytest.mark.parametrize("num_events", [1, 50])
async def test_closing_a_stream_early_stops_its_sequence(
    client: EngineClient, num_events: int
) -> None:
    before = await replica_when(client, lambda r: r.stats.num_running == 0)
    async with aclosing(client.generate(request(LONG_PROMPT))) as events:
        for _ in range(num_events):
            assert isinstance(await anext(events), TextDelta)
    after = await replica_when(client, lambda r: r.stats.num_running == 0)
    assert after.stats.kv_used_tokens == 0
    assert after.stats.generation_tokens - before.stats.generation_tokens < len(LONG_PROMPT) / 2


async def test_cancelling_before_the_first_token_stops_the_request(client: EngineClient) -> None:
    waiting = asyncio.create_task(answer(client, request(LONG_PROMPT)))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait({waiting})
    await replica_when(client, lambda r: r.stats.num_running == r.stats.num_waiting == 0)


async def test_cancelling_while_queued_behind_others_stops_the_request(
    client: EngineClient,
) -> None:
    streams = [client.generate(request(LONG_PROMPT)) for _ in range(4)]
    for stream in streams:
        await anext(stream)
    queued = asyncio.create_task(answer(client, request("queued")))
    await replica_when(client, lambda r: r.stats.num_waiting == 1)
    queued.cancel()
    await replica_when(client, lambda r: r.stats.num_waiting == 0)
    for stream in streams:
        assert isinstance(await anext(stream), TextDelta)
        await stream.aclose()
    await replica_when(client, lambda r: r.stats.num_running == 0)


async def test_a_stream_that_nobody_reads_does_not_stall_another(client: EngineClient) -> None:
    async with aclosing(client.generate(request("ab " * 20_000))) as slow:
        await anext(slow)
        assert text_of(await answer(client, request("quick"))) == "quick"
        await replica_when(client, lambda r: r.stats.num_running == 0)
        rest = [event async for event in slow]
    assert isinstance(rest[-1], Finished)


async def test_the_abort_is_sent_without_another_await(path: Path) -> None:
    async with scripted(path) as host, connected(path) as client:
        events = client.generate(request())
        first = asyncio.ensure_future(anext(events))
        asked = await host.hear(Generate)
        host.say(Events(batch=((asked.request.id, TextDelta(index=0, text="x")),)))
        await first
        with pytest.raises(StopIteration):
            events.aclose().send(None)
        assert (await host.hear(Abort)).request_id == asked.request.id


async def test_an_ending_that_crosses_an_abort_is_dropped(path: Path) -> None:
    async with scripted(path) as host, connected(path) as client:
        aborted = asyncio.create_task(answer(client, request()))
        first = await host.hear(Generate)
        aborted.cancel()
        await host.hear(Abort)
        other = asyncio.create_task(answer(client, request()))
        second = await host.hear(Generate, 2)
        host.say(Events(batch=((first.request.id, FINISHED), (second.request.id, FINISHED))))
        assert await other == [FINISHED]


async def test_nothing_follows_the_first_ending(path: Path) -> None:
    async with scripted(path) as host, connected(path) as client:
        asking = asyncio.create_task(answer(client, request()))
        key = (await host.hear(Generate)).request.id
        late = TextDelta(index=0, text="late")
        host.say(Events(batch=((key, FINISHED), (key, late), (key, FINISHED))))
        assert await asking == [FINISHED]


async def test_a_request_without_an_event_is_given_to_the_next_host(path: Path) -> None:
    async with connected(path) as client:
        asking = asyncio.create_task(answer(client, request()))
        async with scripted(path) as host:
            await host.hear(Generate)
        async with scripted(path) as host:
            key = (await host.hear(Generate)).request.id
            host.say(Events(batch=((key, FINISHED),)))
            assert await asking == [FINISHED]


async def test_a_request_is_given_to_a_second_host_but_to_no_third(path: Path) -> None:
    async with connected(path) as client:
        asking = asyncio.create_task(answer(client, request()))
        for _ in range(2):
            async with scripted(path) as host:
                await host.hear(Generate)
        (failed,) = await asking
        assert isinstance(failed, Failed)
        assert failed.code == "engine.host_lost"


async def test_without_a_host_a_request_fails_after_a_bound(path: Path) -> None:
    async with connected(path, host_s=0.05) as client:
        (failed,) = await answer(client, request())
        assert isinstance(failed, Failed)
        assert (failed.code, failed.retry_after_s) == ("engine.unreachable", 1.0)
        with pytest.raises(EngineError) as caught:
            await client.status()
        assert caught.value.code == "engine.unreachable"
        assert not client.connected


async def test_a_host_of_another_version_is_named_as_such(path: Path) -> None:
    refusal = Refused(call_id=0, code="engine.version_mismatch", message="version 2")
    async with scripted(path, refusal), connected(path, host_s=0.05) as client:
        (failed,) = await answer(client, request())
        assert isinstance(failed, Failed)
        assert failed.code == "engine.version_mismatch"


async def test_a_closed_client_fails_what_is_under_way_and_what_comes_after(
    host: HostProcess,
) -> None:
    async with connected(host.home.engine_socket) as client:
        events = client.generate(request(LONG_PROMPT))
        await anext(events)
    rest = [event async for event in events]
    assert isinstance(rest[-1], Failed)
    assert rest[-1].code == "engine.host_lost"
    (failed,) = await answer(client, request())
    assert isinstance(failed, Failed)
    assert failed.code == "engine.unreachable"


async def test_a_request_of_every_size_the_gateway_takes_goes_through(
    client: EngineClient,
) -> None:
    asked = GenerationRequest(id="r", model="echo", prompts=(TextPrompt(text="a " * 1_000_000),))
    (failed,) = await answer(client, asked)
    assert isinstance(failed, Failed)
    assert failed.code == "request.context_length_exceeded"
