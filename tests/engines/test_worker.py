"""A real worker process with the echo engine, spoken to over its socket."""

import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from collections.abc import Sequence as Seq
from pathlib import Path

import msgspec
import pytest

from appliance.errors import CatalogueError
from appliance.generation import (
    ChatPrompt,
    EngineEvent,
    Failed,
    Finished,
    GenerationRequest,
    Message,
    OutputFormat,
    Prompt,
    TextDelta,
    TextPrompt,
    Tool,
    ToolCallDelta,
)
from engines.echo.kv_blocks import EchoKv
from engines.echo.runner import EchoRunner
from engines.protocol import (
    Abort,
    Drain,
    Events,
    FromWorker,
    Generate,
    GetStatus,
    Ready,
    Refused,
    ReplicaStatus,
    ToWorker,
    encode_frame,
    split_frames,
)
from engines.runner import RUNNERS, Answer, Runner, RunnerOptions, StepPlan
from engines.worker import parse_arguments, serve, warm_up
from tests.engines.echo_engine import make_runner

DEADLINE_S = 20.0
_decoder = msgspec.msgpack.Decoder(FromWorker)


class WorkerUnderTest:
    """The host's end of the socket, and the process at the other."""

    def __init__(self) -> None:
        self.link, theirs = socket.socketpair()
        self.link.settimeout(DEADLINE_S)
        command = [sys.executable, "-m", "engines.worker", "--fd", str(theirs.fileno())]
        options = ["--runner", "echo", "--model", "m", "--path", "none", "--num-slots", "4"]
        context = ["--context-tokens", "4000000"]
        self.process = subprocess.Popen(
            command + options + context, pass_fds=[theirs.fileno()], stderr=subprocess.PIPE
        )
        theirs.close()
        self.messages = self._read()

    def send(self, message: ToWorker) -> None:
        self.link.sendall(encode_frame(message))

    def ask(
        self, request_id: str, prompt: Prompt, output_format: OutputFormat | None = None
    ) -> None:
        request = GenerationRequest(
            id=request_id, model="m", prompts=(prompt,), output_format=output_format
        )
        self.send(Generate(request=request))

    def until(self, is_it: Callable[[FromWorker], bool]) -> list[FromWorker]:
        """Messages up to the first that fits."""
        seen = []
        for message in self.messages:
            seen.append(message)
            if is_it(message):
                return seen
        raise AssertionError("the worker closed its socket")

    def events_until(self, request_id: str, kind: type[EngineEvent]) -> list[EngineEvent]:
        """What is said of a request, up to the first event of a kind."""

        def has_come(message: FromWorker) -> bool:
            return isinstance(message, Events) and any(
                name == request_id and isinstance(event, kind) for name, event in message.batch
            )

        batches = [m.batch for m in self.until(has_come) if isinstance(m, Events)]
        return [event for batch in batches for name, event in batch if name == request_id]

    def wait(self) -> int:
        return self.process.wait(DEADLINE_S)

    def close(self) -> None:
        self.link.close()
        self.process.communicate(timeout=DEADLINE_S)

    def _read(self) -> Iterator[FromWorker]:
        buffer = bytearray()
        while data := self.link.recv(1 << 20):
            buffer += data
            for body in split_frames(buffer):
                yield _decoder.decode(body)


@pytest.fixture
def worker() -> Iterator[WorkerUnderTest]:
    worker = WorkerUnderTest()
    assert isinstance(next(worker.messages), Ready)
    yield worker
    worker.close()


class CountingRunner(EchoRunner):
    """An echo engine that counts its steps."""

    num_steps = 0

    def execute(self, plan: StepPlan) -> Seq[Answer]:
        self.num_steps += 1
        return super().execute(plan)


def test_an_engine_computes_something_before_its_worker_is_ready_and_keeps_nothing() -> None:
    """vllm#16961: the first request was many times slower than those after it."""
    runner = CountingRunner(make_runner().facts, EchoKv(64, block_tokens=4), step_tokens=64)
    warm_up(runner)
    assert runner.num_steps == 1
    assert runner.kv.used_tokens == 0


def user(text: str) -> ChatPrompt:
    return ChatPrompt(messages=(Message(role="user", content=text),))


def test_a_chat_is_rendered_and_answered(worker: WorkerUnderTest) -> None:
    worker.ask("r", user("hello, ğüşİı 👩"))
    events = worker.events_until("r", Finished)
    deltas = [event for event in events if isinstance(event, TextDelta)]
    assert "".join(delta.text for delta in deltas) == "hello, ğüşİı 👩"


def test_a_long_prompt_does_not_stall_a_running_stream(worker: WorkerUnderTest) -> None:
    """llama.cpp#29175: the stream goes on while two megabytes are tokenised and computed."""
    worker.ask("stream", TextPrompt(text="ab " * 300_000))
    worker.events_until("stream", TextDelta)
    worker.ask("long", TextPrompt(text="x" * 2_000_000))

    def says_long(message: FromWorker) -> bool:
        return isinstance(message, Events) and "long" in dict(message.batch)

    meanwhile = [m.batch for m in worker.until(says_long) if isinstance(m, Events)]
    num_streamed = sum(name == "stream" for batch in meanwhile for name, _ in batch)
    # Computing the long prompt alone takes this many steps; the stream moved in each of them.
    assert num_streamed >= 2_000_000 // 512


def test_an_abort_frees_everything_and_says_so_at_once(worker: WorkerUnderTest) -> None:
    """vllm#31503: the running gauge goes back to zero."""
    worker.ask("r", TextPrompt(text="ab " * 50_000))
    worker.events_until("r", TextDelta)
    worker.send(Abort(request_id="r"))
    (failed,) = [e for e in worker.events_until("r", Failed) if isinstance(e, Failed)]
    assert failed.code == "request.cancelled"
    assert failed.usage.prompt_tokens == 150_001
    worker.send(GetStatus(call_id=5))
    status = worker.until(lambda m: isinstance(m, ReplicaStatus) and m.call_id == 5)[-1]
    assert isinstance(status, ReplicaStatus)
    assert (status.state, status.pid) == ("ready", worker.process.pid)
    assert (status.stats.num_running, status.stats.kv_used_tokens) == (0, 0)


def test_the_figures_of_the_end_come_before_the_end(worker: WorkerUnderTest) -> None:
    worker.ask("r", user("hello"))
    has_ended = False
    stats = None
    while not has_ended:
        message = next(worker.messages)
        if isinstance(message, ReplicaStatus):
            stats = message.stats
        elif isinstance(message, Events):
            has_ended = any(isinstance(event, Finished) for _, event in message.batch)
    assert stats is not None
    assert (stats.num_running, stats.num_waiting, stats.generation_tokens) == (0, 0, 2)


def test_a_drained_worker_leaves_when_the_last_request_has_ended(worker: WorkerUnderTest) -> None:
    worker.ask("r", user("hello " * 100))
    worker.events_until("r", TextDelta)
    worker.send(Drain())
    worker.events_until("r", Finished)
    assert worker.wait() == 0


def test_a_worker_leaves_with_its_host(worker: WorkerUnderTest) -> None:
    worker.ask("r", TextPrompt(text="ab " * 50_000))
    worker.events_until("r", TextDelta)
    worker.link.close()
    assert worker.wait() == 0


def test_a_worker_leaves_on_sigterm(worker: WorkerUnderTest) -> None:
    worker.ask("r", TextPrompt(text="ab " * 50_000))
    worker.events_until("r", TextDelta)
    worker.process.send_signal(signal.SIGTERM)
    assert worker.wait() == 0


def test_an_unreadable_frame_ends_the_worker(worker: WorkerUnderTest) -> None:
    worker.link.sendall(b"\x00\x00\x00\x01\xff")
    assert worker.wait() == 0


def test_an_unknown_runner_is_an_error_of_the_command_line(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "engines.worker", "--fd", "0", "--runner", "none"]
    words = [*command, "--model", "m", "--path", str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "echo" in done.stderr


def test_a_model_that_cannot_be_loaded_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(options: RunnerOptions) -> Runner:
        raise CatalogueError("model.unreadable", f"{options.model} is broken")

    monkeypatch.setitem(RUNNERS, "broken", start)
    words = ["--fd", "0", "--runner", "broken", "--model", "m", "--path", str(tmp_path)]
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert serve(theirs, parse_arguments(words)) == CatalogueError.exit_code
        (body,) = split_frames(bytearray(ours.recv(1 << 20)))
    refused = _decoder.decode(body)
    assert refused == Refused(call_id=0, code="model.unreadable", message="m is broken")


def test_tools_and_formats_reach_a_worker(worker: WorkerUnderTest) -> None:
    worker.ask("json", user('{"a": 1}'), output_format=OutputFormat(kind="json_object"))
    events = worker.events_until("json", Finished)
    assert "".join(e.text for e in events if isinstance(e, TextDelta)) == '{"a": 1}'
    prompt = user('<tool_call>{"name": "f", "arguments": {}}</tool_call>')
    worker.ask("call", msgspec.structs.replace(prompt, tools=(Tool(name="f"),)))
    events = worker.events_until("call", Finished)
    assert [e.name for e in events if isinstance(e, ToolCallDelta)][:1] == ["f"]
