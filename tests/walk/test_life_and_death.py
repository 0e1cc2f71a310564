"""Processes that are told to go, and processes that die."""

import io
import json
import signal
import socket
import subprocess
import sys
from contextlib import closing
from typing import Any

from appliance.audit.record import Completed, Outcome
from tests.walk.raw import connect, head, post, read_answer, read_to_end
from tests.walk.running_box import CONFIG, RunningBox, running_box, wait_until

LONG = {"model": "echo", "messages": [{"role": "user", "content": "x" * 200_000}]}
STREAM = json.dumps({**LONG, "stream": True}).encode()


def begin_stream(box: RunningBox, num_events: int = 5) -> tuple[socket.socket, bytes]:
    """A long stream of which some events have been read."""
    connection = connect(box.port)
    connection.sendall(post(STREAM, box.key))
    received = b""
    while received.count(b"data: ") < num_events:
        received += connection.recv(4096)
    return connection, received


def events_of(stream: bytes) -> list[Any]:
    """The events of a chunked stream; `[DONE]` as a word."""
    body = io.BytesIO(stream.partition(b"\r\n\r\n")[2])
    pieces = []
    while size := int(body.readline(), 16):
        pieces.append(body.read(size))
        body.readline()
    text = b"".join(pieces)
    lines = [line.removeprefix("data: ") for line in text.decode().split("\n\n") if line]
    return [line if line == "[DONE]" else json.loads(line) for line in lines]


def request_id_of(stream: bytes) -> str:
    head = stream.partition(b"\r\n\r\n")[0].decode().lower()
    return next(line for line in head.split("\r\n") if line.startswith("x-request-id")).split()[1]


def assert_ends_in_an_error(stream: bytes) -> None:
    events = events_of(stream)
    assert events[-1] == "[DONE]"
    assert set(events[-2]["error"]) == {"message", "type", "param", "code"}
    reasons = [choice["finish_reason"] for event in events[:-2] for choice in event["choices"]]
    assert set(reasons) == {None}


def test_a_worker_killed_in_mid_stream_is_an_error_in_the_stream_and_comes_back(
    mortal_box: RunningBox,
) -> None:
    """BerriAI/litellm#39748, open-webui/open-webui#29628: a broken stream just ended."""
    connection, received = begin_stream(mortal_box)
    with closing(connection):
        mortal_box.worker().kill()
        connection.settimeout(5)
        while b"[DONE]" not in received:
            received += connection.recv(65536)
        received += connection.recv(65536) if not received.endswith(b"0\r\n\r\n") else b""
    assert_ends_in_an_error(received)
    wait_until(lambda: len(mortal_box.records_of(request_id_of(received))) == 2, "both records")
    ending = mortal_box.records_of(request_id_of(received))[1]
    assert isinstance(ending, Completed)
    assert ending.outcome is Outcome.ERROR
    assert ending.usage.completion_tokens > 0
    wait_until(mortal_box.is_ready, "the worker to be back")
    assert mortal_box.chat("hello").status_code == 200


def test_a_worker_killed_before_an_unstreamed_answer_is_a_5xx(mortal_box: RunningBox) -> None:
    with closing(connect(mortal_box.port)) as connection:
        connection.sendall(post(json.dumps(LONG).encode(), mortal_box.key))
        wait_until(
            lambda: mortal_box.metric("hisar_num_requests_running") == 1, "the engine to run"
        )
        mortal_box.worker().kill()
        answer = read_answer(connection)
    assert answer.status >= 500
    assert answer.error["type"] == "server_error"


def test_a_gateway_killed_leaves_the_engine_idle_and_a_new_one_takes_over(
    mortal_box: RunningBox,
) -> None:
    connection, received = begin_stream(mortal_box)
    request_id, worker = request_id_of(received), mortal_box.worker()
    assert mortal_box.gateway is not None
    mortal_box.gateway.kill()
    mortal_box.gateway.wait()
    connection.close()
    mortal_box.start_gateway()
    mortal_box.wait_until_ready()
    wait_until(mortal_box.is_idle, "the engine to be idle", 2)
    assert mortal_box.chat("hello").status_code == 200
    assert mortal_box.worker().pid == worker.pid
    ending = mortal_box.records_of(request_id)[-1]
    assert isinstance(ending, Completed)
    assert ending.outcome is Outcome.ERROR
    assert ending.code == "request.lost_in_crash"


def test_without_an_engine_the_box_is_live_and_not_ready_and_says_when_to_come_back(
    mortal_box: RunningBox,
) -> None:
    """vllm#16961: ready and live are two questions."""
    box = mortal_box
    assert box.host is not None
    box.host.terminate()
    box.host.wait()
    wait_until(lambda: not box.is_ready(), "the box to notice")
    assert box.is_live()
    with box.client() as client:
        told = client.get("/health/ready")
        answer = client.post("/v1/chat/completions", json=LONG)
    assert told.status_code == 503
    assert told.json()["reasons"] == ["engine.unreachable"]
    assert answer.status_code == 503
    assert int(answer.headers["retry-after"]) >= 1
    box.start_host()
    box.wait_until_ready()
    assert box.chat("hello").status_code == 200


def test_sigterm_lets_a_stream_end_and_takes_nothing_new() -> None:
    text = "word " * 10_000
    message = {"model": "echo", "messages": [{"role": "user", "content": text}], "stream": True}
    with (
        running_box(CONFIG.replace("drain_s = 1.0", "drain_s = 600.0")) as box,
        closing(connect(box.port)) as kept,
        closing(connect(box.port)) as streaming,
    ):
        kept.sendall(head("GET", "/health/live"))
        assert read_answer(kept).status == 200
        streaming.sendall(post(json.dumps(message).encode(), box.key))
        received = streaming.recv(1000)
        assert box.gateway is not None
        box.gateway.send_signal(signal.SIGTERM)
        wait_until(lambda: box.answers("/health/ready") == 503, "the drain to begin")
        kept.sendall(post(b"{}", box.key))
        refused = read_answer(kept)
        received += read_to_end(streaming)
        assert box.gateway.wait(10) == 0
        records = box.records_of(request_id_of(received))
    assert refused.status == 503
    assert refused.error["code"] == "gateway.draining"
    assert refused.headers["connection"] == "close"
    events = events_of(received)
    assert events[-1] == "[DONE]"
    assert "".join(e["choices"][0]["delta"].get("content", "") for e in events[:-1]) == text
    assert len(records) == 2


def test_sigterm_ends_what_takes_too_long_with_an_error_in_the_stream(
    mortal_box: RunningBox,
) -> None:
    connection, received = begin_stream(mortal_box)
    with closing(connection):
        assert mortal_box.gateway is not None
        mortal_box.gateway.send_signal(signal.SIGTERM)
        received += read_to_end(connection)
    assert_ends_in_an_error(received)
    assert mortal_box.gateway.wait(10) == 0
    ending = mortal_box.records_of(request_id_of(received))[1]
    assert isinstance(ending, Completed)
    assert ending.code == "gateway.draining"
    assert ending.outcome is Outcome.ERROR


def test_a_second_signal_hurries() -> None:
    with running_box(CONFIG.replace("drain_s = 1.0", "drain_s = 600.0")) as box:
        connection, received = begin_stream(box)
        with closing(connection):
            assert box.gateway is not None
            box.gateway.send_signal(signal.SIGINT)
            wait_until(lambda: box.answers("/health/ready") == 503, "the drain to begin")
            assert box.gateway.poll() is None
            box.gateway.send_signal(signal.SIGINT)
            received += read_to_end(connection)
        assert_ends_in_an_error(received)
        assert box.gateway.wait(10) == 0


def test_an_idle_gateway_goes_at_once(mortal_box: RunningBox) -> None:
    with closing(connect(mortal_box.port)) as idle:
        idle.sendall(head("GET", "/health/live"))
        assert read_answer(idle).status == 200
        assert mortal_box.gateway is not None
        mortal_box.gateway.send_signal(signal.SIGTERM)
        assert mortal_box.gateway.wait(5) == 0


def test_a_port_that_is_taken_is_one_clear_line(box: RunningBox) -> None:
    command = [sys.executable, "-m", "gateway", "--home", str(box.home.root), "--port"]
    second = subprocess.run(
        [*command, str(box.port)], capture_output=True, text=True, timeout=30, check=False
    )
    assert second.returncode == 69
    assert "machine.port_taken" in second.stderr
    assert "Traceback" not in second.stderr
