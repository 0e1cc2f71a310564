"""The host among gateways: one that misbehaves harms no other, and models come and go."""

import asyncio
import os
import signal
import stat
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from appliance.catalogue import Library, ModelFile, ModelSpec
from appliance.errors import EngineError
from appliance.generation import EngineEvent, Failed, Finished
from appliance.home import Home
from engines.client import EngineClient
from engines.protocol import (
    MAX_FRAME_BYTES,
    Abort,
    Events,
    Generate,
    GetStatus,
    Hello,
    Load,
    Loaded,
    Refused,
    Status,
    ToGateway,
    Unload,
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

HELLO = encode_frame(Hello())


class RawGateway:
    """A gateway that sends whatever bytes it likes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._buffer = bytearray()
        self._messages: list[Any] = []
        self._decoder = msgspec.msgpack.Decoder(ToGateway)

    async def send(self, data: bytes) -> None:
        """Send bytes."""
        self._writer.write(data)
        await self._writer.drain()

    async def receive(self) -> Any:
        """The next message; None when the host has hung up."""
        async with asyncio.timeout(20):
            while not self._messages:
                data = await self._reader.read(65536)
                if not data:
                    return None
                self._buffer += data
                bodies = split_frames(self._buffer)
                self._messages += [decode_body(self._decoder, body) for body in bodies]
        return self._messages.pop(0)

    async def events_of(self, request_id: str) -> list[EngineEvent]:
        """The events of one request up to its ending."""
        events: list[EngineEvent] = []
        while not (events and isinstance(events[-1], Finished | Failed)):
            batch = (await self.receive()).batch
            events += [event for name, event in batch if name == request_id]
        return events


@asynccontextmanager
async def raw_gateway(host: HostProcess, greeting: bytes = HELLO) -> AsyncIterator[RawGateway]:
    """A connected gateway that has said `greeting`."""
    reader, writer = await asyncio.open_unix_connection(host.home.engine_socket)
    try:
        gateway = RawGateway(reader, writer)
        await gateway.send(greeting)
        yield gateway
    finally:
        writer.close()


def generate(request_id: str, text: str = "hello") -> bytes:
    """A frame that starts a request."""
    asked = msgspec.structs.replace(request(text), id=request_id)
    return encode_frame(Generate(request=asked))


async def test_the_host_welcomes_a_gateway_with_its_pid(host: HostProcess) -> None:
    async with raw_gateway(host) as gateway:
        assert await gateway.receive() == Welcome(host_pid=host.pid)


def test_socket_and_folder_belong_to_the_host_alone(host: HostProcess) -> None:
    path = host.home.engine_socket
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


@pytest.mark.parametrize(
    ("bytes_sent", "code"),
    [
        (encode_frame(Hello(version=2)), "engine.version_mismatch"),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "engine.bad_frame"),
        (HELLO + (MAX_FRAME_BYTES + 1).to_bytes(4, "big"), "engine.bad_frame"),
        (HELLO + b"\x00\x00\x00\x03\xff\xff\xff", "engine.bad_frame"),
        (HELLO + b"\x00\x00\x00\x00", "engine.bad_frame"),
        (HELLO + HELLO, "engine.bad_frame"),
        (generate("a"), "engine.bad_frame"),
        (encode_frame(GetStatus(call_id=1)), "engine.bad_frame"),
        (HELLO + generate("a", LONG_PROMPT) + generate("a"), "engine.bad_frame"),
        (HELLO + encode_frame(Welcome(host_pid=1)), "engine.bad_frame"),
    ],
    ids=[
        "another version",
        "HTTP",
        "oversize length",
        "garbage body",
        "empty body",
        "a second hello",
        "a request before hello",
        "a call before hello",
        "one request id twice",
        "a message of the other direction",
    ],
)
async def test_a_gateway_that_breaks_the_protocol_is_told_and_hung_up_on(
    host: HostProcess, client: EngineClient, bytes_sent: bytes, code: str
) -> None:
    async with raw_gateway(host, bytes_sent) as gateway:
        said: list[Any] = []
        while (message := await gateway.receive()) is not None:
            said.append(message)
        refusals = [message for message in said if isinstance(message, Refused)]
        assert [(refusal.call_id, refusal.code) for refusal in refusals] == [(0, code)]
    assert text_of(await answer(client, request("unharmed"))) == "unharmed"
    await replica_when(client, lambda r: r.stats.num_running == r.stats.num_waiting == 0)


async def test_a_gateway_that_leaves_in_the_middle_of_a_frame_harms_nobody(
    host: HostProcess, client: EngineClient
) -> None:
    async with raw_gateway(host, HELLO + generate("a")[:-3]) as gateway:
        assert isinstance(await gateway.receive(), Welcome)
    assert text_of(await answer(client, request("unharmed"))) == "unharmed"


async def test_two_gateways_may_use_the_same_request_id(host: HostProcess) -> None:
    async with raw_gateway(host) as first, raw_gateway(host) as second:
        for gateway, text in ((first, "one"), (second, "two")):
            assert isinstance(await gateway.receive(), Welcome)
            await gateway.send(generate("same", text))
        assert text_of(await first.events_of("same")) == "one"
        assert text_of(await second.events_of("same")) == "two"


async def test_an_abort_is_answered_with_the_requests_own_ending(host: HostProcess) -> None:
    async with raw_gateway(host) as gateway:
        assert isinstance(await gateway.receive(), Welcome)
        await gateway.send(generate("a", LONG_PROMPT))
        assert isinstance(await gateway.receive(), Events)
        await gateway.send(encode_frame(Abort(request_id="a")))
        ending = (await gateway.events_of("a"))[-1]
        assert isinstance(ending, Failed)
        assert ending.code == "request.cancelled"


async def test_an_abort_of_nothing_and_of_others_is_ignored(host: HostProcess) -> None:
    async with raw_gateway(host) as first, raw_gateway(host) as second:
        assert isinstance(await first.receive(), Welcome)
        await first.send(generate("a", "mine " * 200))
        await second.send(encode_frame(Abort(request_id="a")))
        await second.send(encode_frame(Abort(request_id="1:a")))
        await first.send(encode_frame(Abort(request_id="never heard of")))
        assert text_of(await first.events_of("a")) == "mine " * 200


async def test_a_gateway_that_does_not_read_is_dropped_and_the_others_go_on(
    host: HostProcess, client: EngineClient
) -> None:
    async with raw_gateway(host) as deaf:
        for i in range(3):
            await deaf.send(generate(str(i), LONG_PROMPT))
        assert text_of(await answer(client, request("served"))) == "served"
        await replica_when(client, lambda r: r.stats.num_running == 0)
        endings = 0
        with pytest.raises((ConnectionError, AttributeError)):
            while True:
                batch = (await deaf.receive()).batch
                endings += sum(isinstance(event, Finished | Failed) for _, event in batch)
        assert endings == 0


async def test_a_model_is_loaded_once_for_all_who_ask(
    home: Home, start_host: Callable[[], HostProcess]
) -> None:
    home.config.write_text("[engine]\npreload = []\n")
    host = start_host()
    async with connected(home.engine_socket) as client:
        assert (await client.status()).replicas == ()
        asked = [client.load("echo") for _ in range(5)]
        texts = [answer(client, request(f"text {i}")) for i in range(5)]
        facts, answers = await asyncio.gather(asyncio.gather(*asked), asyncio.gather(*texts))
        assert len(set(facts)) == 1
        assert [text_of(events) for events in answers] == [f"text {i}" for i in range(5)]
        assert len(host.workers()) == 1


async def test_an_unloaded_model_is_gone_and_comes_back_on_use(
    home: Home, start_host: Callable[[], HostProcess]
) -> None:
    host = start_host()
    async with connected(home.engine_socket) as client:
        await client.load("echo")
        (worker,) = host.workers()
        events = client.generate(request(LONG_PROMPT))
        await anext(events)
        assert (await client.unload("echo")).replicas == ()
        assert not worker.is_running()
        rest = [event async for event in events]
        assert isinstance(rest[-1], Failed)
        assert rest[-1].code == "engine.model_unloaded"
        with pytest.raises(EngineError) as caught:
            await client.unload("echo")
        assert caught.value.code == "engine.not_loaded"
        assert text_of(await answer(client, request("back"))) == "back"


async def test_models_live_side_by_side_and_die_alone(
    home: Home, start_host: Callable[[], HostProcess]
) -> None:
    Library(home.models).add(ModelSpec(name="other", runner="echo"))
    host = start_host()
    async with connected(home.engine_socket) as client:
        await client.load("other")
        await client.load("echo")
        replicas = (await client.status()).replicas
        (other,) = [replica for replica in replicas if replica.model == "other"]
        events = client.generate(request(LONG_PROMPT))
        await anext(events)
        os.kill(other.pid, signal.SIGKILL)
        await until(lambda: other.pid not in [worker.pid for worker in host.workers()])
        assert text_of(await answer(client, request("x", model="other"))) == "x"
        assert (await anext(events)).text
        await events.aclose()


async def test_a_model_that_failed_stays_failed_until_it_is_loaded_or_replaced(
    home: Home, start_host: Callable[[], HostProcess]
) -> None:
    library = Library(home.models)
    library.add(ModelSpec(name="odd", runner="no-such-runner"))
    start_host()
    async with connected(home.engine_socket) as client:
        for _ in range(2):
            with pytest.raises(EngineError) as caught:
                await client.load("odd")
            assert caught.value.code == "engine.model_failed"
        (failed,) = await answer(client, request(model="odd"))
        assert isinstance(failed, Failed)
        assert failed.code == "engine.model_failed"
        library.add(ModelSpec(name="odd", runner="echo"))
        assert text_of(await answer(client, request("even", model="odd"))) == "even"


async def test_a_model_larger_than_the_free_memory_is_refused(
    home: Home, start_host: Callable[[], HostProcess]
) -> None:
    huge = ModelFile(path="huge.bin", size_bytes=2**50, sha256="")
    Library(home.models).add(ModelSpec(name="huge", runner="echo", files=(huge,)))
    start_host()
    async with connected(home.engine_socket) as client:
        with pytest.raises(EngineError, match="needs 107374") as caught:
            await client.load("huge")
        assert caught.value.code == "engine.does_not_fit"


async def test_calls_that_cannot_be_answered_are_refused_by_their_number(
    host: HostProcess,
) -> None:
    async with raw_gateway(host) as gateway:
        assert isinstance(await gateway.receive(), Welcome)
        await gateway.send(encode_frame(Load(call_id=7, model="missing")))
        refused = await gateway.receive()
        assert (refused.call_id, refused.code) == (7, "model.not_found")
        await gateway.send(encode_frame(Unload(call_id=8, model="missing")))
        refused = await gateway.receive()
        assert (refused.call_id, refused.code) == (8, "engine.not_loaded")
        await gateway.send(encode_frame(Load(call_id=9, model="echo")))
        assert isinstance(loaded := await gateway.receive(), Loaded)
        assert loaded.call_id == 9
        await gateway.send(encode_frame(GetStatus(call_id=10)))
        assert isinstance(status := await gateway.receive(), Status)
        assert status.replicas[0].resident_bytes > 0


async def test_no_character_of_a_prompt_is_in_the_log(
    home: Home, start_host: Callable[[], HostProcess]
) -> None:
    home.config.write_text(home.config.read_text() + '[logs]\nlevel = "debug"\n')
    host = start_host()
    async with connected(home.engine_socket) as client:
        await answer(client, request("very-secret-text"))
        await answer(client, request("very-secret-text", model="missing"))
    async with raw_gateway(host, HELLO + b"\x00\x00\x00\x12\xb1very-secret-text!") as gateway:
        while await gateway.receive() is not None:
            pass
    _, log = await asyncio.to_thread(host.stop)
    assert "engine" in log
    assert "very-secret" not in log


async def test_a_gateway_that_reads_slowly_gets_everything(host: HostProcess) -> None:
    async with raw_gateway(host) as slow:
        for i in range(3):
            await slow.send(generate(str(i), LONG_PROMPT))
        endings = num_messages = 0
        while endings < 3:
            batch = getattr(await slow.receive(), "batch", ())
            endings += sum(isinstance(event, Finished | Failed) for _, event in batch)
            num_messages += 1
            if num_messages % 500 == 0:  # Far below what echo can say, well above being dropped.
                await asyncio.sleep(0.01)
