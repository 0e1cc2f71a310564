"""Clients that leave: the engine stops, what was held goes back, one record closes the call.

The four phases are queued, before the first token, in the midst of a stream, and unstreamed.
"""

import json
import random
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

from appliance.audit.record import Completed, Outcome, Received
from tests.walk.raw import connect, post, reset
from tests.walk.running_box import CONFIG, RunningBox, running_box, wait_until

# As many tokens: many seconds of echoing, if nobody stops it.
LONG = "x" * 200_000

Leave = Callable[[socket.socket], None]


def body(text: str, *, stream: bool) -> bytes:
    messages = [{"role": "user", "content": text}]
    return json.dumps({"model": "echo", "messages": messages, "stream": stream}).encode()


def close(connection: socket.socket) -> None:
    connection.close()


def shut(connection: socket.socket) -> None:
    """Leave a socket that will not be read again, as a proxy may."""
    connection.shutdown(socket.SHUT_RDWR)


LEAVES = [close, reset, shut]


def num_tokens(box: RunningBox, text: str) -> int:
    """How many tokens a chat of one message has."""
    messages = [{"role": "user", "content": text}]
    with box.client() as client:
        answer = client.post("/tokenize", json={"model": "echo", "messages": messages})
    return int(answer.json()["count"])


def cancelled(box: RunningBox) -> float:
    return box.metric("hisar_requests_total", outcome="cancelled")


def ended(box: RunningBox) -> float:
    return box.metric("hisar_requests_total")


def is_running(box: RunningBox) -> bool:
    return box.metric("hisar_num_requests_running") > 0


@pytest.fixture(scope="module")
def narrow_box() -> Iterator[RunningBox]:
    """A box that serves one request at a time."""
    with running_box(CONFIG.replace("max_in_flight = 16", "max_in_flight = 1")) as box:
        yield box


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("leave", LEAVES)
def test_a_client_that_leaves_while_the_engine_works_stops_it(
    box: RunningBox, leave: Leave, stream: bool
) -> None:
    """BerriAI/litellm#31499, #37140: the engine ran on for a client that was gone."""
    before = cancelled(box)
    connection = connect(box.port)
    connection.sendall(post(body(LONG, stream=stream), box.key))
    wait_until(lambda: is_running(box), "the engine to run")
    leave(connection)
    wait_until(box.is_idle, "the engine to stop", 2)
    connection.close()
    assert cancelled(box) == before + 1


@pytest.mark.parametrize("leave", LEAVES)
def test_a_client_that_leaves_in_the_midst_of_a_stream_stops_it(
    box: RunningBox, leave: Leave
) -> None:
    """ggml-org/llama.cpp#24496, BerriAI/litellm#30244: generation went on to the end."""
    before = cancelled(box)
    connection = connect(box.port)
    connection.sendall(post(body(LONG, stream=True), box.key))
    received = b""
    while received.count(b"data: ") < 5:
        received += connection.recv(4096)
    leave(connection)
    wait_until(box.is_idle, "the engine to stop", 2)
    connection.close()
    assert cancelled(box) == before + 1
    head = received.partition(b"\r\n\r\n")[0].decode()
    request_id = next(line for line in head.split("\r\n") if "x-request-id" in line).split()[1]
    wait_until(lambda: len(box.records_of(request_id)) == 2, "both records")
    arrival, ending = box.records_of(request_id)
    assert isinstance(arrival, Received)
    assert isinstance(ending, Completed)
    assert ending.outcome is Outcome.CANCELLED
    assert ending.code == "request.cancelled"
    assert received.count(b'"content":"x"') <= ending.usage.completion_tokens < 200_000
    assert ending.usage.prompt_tokens == num_tokens(box, LONG)


def test_resets_by_the_dozen_leave_nothing_behind(box: RunningBox) -> None:
    """cubist38/mlx-openai-server#269: each client that left took a slot with it."""
    assert box.gateway is not None
    gateway = psutil.Process(box.gateway.pid)
    reset_streams(box, 10)
    num_fds, num_threads = gateway.num_fds(), gateway.num_threads()
    reset_streams(box, 50)
    # Pools of connections and threads may still grow a little, but not by the client.
    assert gateway.num_fds() < num_fds + 25
    assert gateway.num_threads() < num_threads + 25


def reset_streams(box: RunningBox, times: int) -> None:
    """Clients that leave after the first bytes of a stream, until the box is idle again."""
    for _ in range(times):
        connection = connect(box.port)
        connection.sendall(post(body("x" * 10_000, stream=True), box.key))
        connection.recv(100)
        reset(connection)
    wait_until(box.is_idle, "the box to be idle", 10)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("leave", LEAVES)
def test_a_client_that_leaves_the_queue_gives_up_its_place(
    narrow_box: RunningBox, leave: Leave, stream: bool
) -> None:
    box = narrow_box
    before = cancelled(box)
    running, waiting = connect(box.port), connect(box.port)
    running.sendall(post(body(LONG, stream=True), box.key))
    running.recv(100)
    waiting.sendall(post(body("hi", stream=stream), box.key))
    wait_until(lambda: box.metric("hisar_requests_in_flight") == 2, "the second to wait")
    leave(waiting)
    wait_until(lambda: box.metric("hisar_requests_in_flight") == 1, "its place to be free", 2)
    assert cancelled(box) == before + 1
    reset(running)
    wait_until(box.is_idle, "the box to be idle", 2)
    assert box.chat("hello").status_code == 200
    waiting.close()


def test_a_client_that_sent_ahead_and_left_stops_its_first_request(box: RunningBox) -> None:
    connection = connect(box.port)
    connection.sendall(post(body(LONG, stream=False), box.key) * 2)
    wait_until(lambda: is_running(box), "the engine to run")
    connection.close()
    wait_until(box.is_idle, "the engine to stop", 2)


def test_thirty_two_streams_with_a_third_hanging_up_lose_nothing(box: RunningBox) -> None:
    """vllm#31503, vllm#55634, vllm#8115."""
    before, leaving = ended(box), set(random.Random(7).sample(range(32), 11))  # noqa: S311 a test's dice

    def stream(number: int) -> str:
        text = f"request {number} " * 150
        with (
            box.client() as client,
            client.stream(
                "POST",
                "/v1/chat/completions",
                content=body(text, stream=True),
                headers={"content-type": "application/json"},
            ) as answer,
        ):
            assert answer.status_code == 200
            pieces = []
            for line in answer.iter_lines():
                if line.startswith("data: {"):
                    pieces.append(json.loads(line[6:])["choices"][0]["delta"].get("content", ""))
                if number in leaving and len(pieces) > number:
                    return "left"
            assert line == "" or line == "data: [DONE]"
            return "whole" if "".join(pieces) == text else "wrong"

    with ThreadPoolExecutor(32) as pool:
        results = list(pool.map(stream, range(32)))
    assert results == ["left" if number in leaving else "whole" for number in range(32)]
    wait_until(box.is_idle, "the box to be idle", 5)
    wait_until(lambda: ended(box) == before + 32, "32 endings", 5)
