"""One worker: a process that loads one model and runs its step loop until it is told to leave.

    python -m engines.worker --fd N --runner NAME --model NAME --path PATH [--num-slots N ...]

`--fd` is an inherited, connected stream socket that carries frames of `engines.protocol`. The
worker says `Ready` after a first step, or `Refused` when the model cannot be loaded. It leaves
when the socket closes (also because its host died), on SIGTERM, or drained.
"""

import argparse
import contextlib
import gc
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Sequence as Seq
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Final, TypeAlias, get_args

import msgspec

from appliance import logs
from appliance.config import LogLevel
from appliance.errors import EngineError, HisarError
from appliance.generation import FinishReason, SamplingParams
from engines.intake import Delivered, Encoded, Intake
from engines.outbox import Outbox
from engines.prompting import start_prompt_encoder
from engines.protocol import (
    Abort,
    Drain,
    Events,
    FrameError,
    FromWorker,
    Generate,
    GetStatus,
    Ready,
    Refused,
    ReplicaStatus,
    SchedulerStats,
    ToWorker,
    decode_body,
    encode_frame,
    split_frames,
)
from engines.questions import Questions
from engines.runner import RUNNERS, Runner, RunnerOptions
from engines.scheduler import Scheduler
from engines.sequence import Sequence
from engines.step_loop import Batch, StepLoop

STATUS_EVERY_S: Final = 0.1
# A frame of a display with 30 of them a second. Telling costs 0.6 ms of a step of 8 ms when the
# code of host and gateway has left the processor's caches.
TELL_EVERY_S: Final = 0.033
_log: Final = logging.getLogger(__name__)
_RECEIVE_BYTES: Final = 256 * 1024
_TO_WORKER: Final = msgspec.msgpack.Decoder(ToWorker)

# None: the host is gone, or this worker shall go.
Received: TypeAlias = ToWorker | Delivered | None
Inbox: TypeAlias = "SimpleQueue[Received]"


class Worker:
    """Receive, step (plan, execute, commit), emit, until the host is gone or wants this to end."""

    def __init__(self, link: socket.socket, runner: Runner, *, speculates: bool) -> None:
        self._link = link
        self._runner = runner
        self._inbox: Inbox = SimpleQueue()
        self._intake = Intake(start_prompt_encoder(runner.tokenizer), self._inbox.put)
        self._loop = StepLoop(runner, self._intake, time.monotonic, speculates=speculates)
        self._questions = Questions(runner, self._intake)
        self._outbox = Outbox(TELL_EVERY_S)
        self._told = SchedulerStats()
        self._told_at = 0.0
        self._is_leaving = False

    def run(self) -> None:
        """Warm up, then serve until the host is gone, SIGTERM, or drained."""
        reader = threading.Thread(target=read_messages, args=(self._link, self._inbox))
        reader.start()
        signal.signal(signal.SIGTERM, lambda *_: self._inbox.put(None))
        try:
            warm_up(self._runner)
            gc.freeze()  # What is there now stays; looking through it again takes 7 ms of a step.
            self._send(Ready(facts=self._runner.facts))
            while not self._is_leaving:
                self._receive()
                self._emit(self._loop.step())
                self._reply()
        except (BrokenPipeError, ConnectionResetError):
            pass  # The host is gone: nobody is left to be told anything.
        finally:
            with contextlib.suppress(OSError):
                self._link.shutdown(socket.SHUT_RDWR)
            reader.join()
            self._intake.close()

    def _receive(self) -> None:
        """Everything that has come in; with nothing to compute, wait for something."""
        patience_s = None if self._loop.is_idle else STATUS_EVERY_S
        has_work = self._loop.has_work or self._questions.has_work
        try:
            self._take(self._inbox.get(block=not has_work, timeout=patience_s))
            while True:
                self._take(self._inbox.get_nowait())
        except Empty:
            pass

    def _take(self, message: Received) -> None:
        if message is None:
            self._is_leaving = True
        elif isinstance(message, GetStatus):
            self._send(self._status(self._loop.stats(), call_id=message.call_id))
        elif isinstance(message, Drain):
            self._loop.receive(message)
            self._questions.is_draining = True
        elif isinstance(message, Generate | Abort | Encoded):
            self._loop.receive(message)
        else:
            self._questions.receive(message)

    def _emit(self, batch: Batch) -> None:
        """What the step said, after the figures that already count it."""
        now = time.monotonic()
        if self._loop.is_idle or now - self._told_at >= STATUS_EVERY_S:
            stats = self._loop.stats()
            if stats != self._told:
                self._told, self._told_at = stats, now
                self._send(self._status(stats))
        self._outbox.put(batch)
        batch = self._outbox.take(now, is_last=not self._loop.has_work)
        if batch:
            self._send(Events(batch=batch))

    def _reply(self) -> None:
        """One batch of vectors, if any are wanted, and every answer there is."""
        for ending in self._questions.step(beside_streams=self._loop.has_work):
            self._send(ending)
        if self._loop.is_draining and self._loop.is_idle and self._questions.is_idle:
            self._is_leaving = True

    def _status(self, stats: SchedulerStats, call_id: int = 0) -> ReplicaStatus:
        return ReplicaStatus(
            call_id=call_id,
            model=self._runner.facts.model,
            state="draining" if self._loop.is_draining else "ready",
            pid=os.getpid(),
            facts=self._runner.facts,
            stats=stats,
        )

    def _send(self, message: FromWorker) -> None:
        self._link.sendall(encode_frame(message))


def read_messages(link: socket.socket, inbox: Inbox) -> None:
    """A thread's work: every message into the inbox, and None when there will be no more."""
    buffer = bytearray()
    try:
        while data := link.recv(_RECEIVE_BYTES):
            buffer += data
            for body in split_frames(buffer):
                inbox.put(decode_body(_TO_WORKER, body))
    except (OSError, FrameError):
        pass  # A broken link ends like a closed one.
    finally:
        inbox.put(None)


def warm_up(runner: Runner) -> None:
    """Compute something and forget it, so that the first request finds everything in place."""
    token_ids = runner.tokenizer.encode("Hello", markers=False) or [0]  # not all know letters
    if runner.embedder is not None:
        runner.embedder.embed([token_ids])
    if runner.facts.generates:
        _generate_one(runner, token_ids)


def _generate_one(runner: Runner, token_ids: list[int]) -> None:
    scheduler = Scheduler(runner.kv, step_tokens=runner.step_tokens, max_running=1)
    sequence = Sequence(
        request_id="warm-up",
        index=0,
        num_prompt_tokens=len(token_ids),
        token_ids=token_ids,
        max_tokens=1,
        sampling=SamplingParams(temperature=0.0),
        seed=0,
    )
    scheduler.add(sequence)
    while sequence.num_output_tokens == 0 and (plan := scheduler.plan(time.monotonic())):
        list(scheduler.commit(plan, runner.execute(plan)))
    scheduler.finish(sequence, FinishReason.ERROR)


def parse_arguments(words: Seq[str]) -> argparse.Namespace:
    """The command line, with a name in it for every field of RunnerOptions."""
    parser = argparse.ArgumentParser(prog="python -m engines.worker", allow_abbrev=False)
    parser.add_argument("--fd", type=int, required=True)
    parser.add_argument("--runner", choices=sorted(RUNNERS), required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--path", type=Path, required=True)
    for name in ("--context-tokens", "--num-slots", "--num-threads", "--step-tokens"):
        parser.add_argument(name, type=int, default=0)
    parser.add_argument("--kv-room-bytes", type=int, default=0)
    parser.add_argument("--prefix-bytes", type=int, default=0)
    parser.add_argument("--log-level", choices=get_args(LogLevel), default="info")
    for name in ("--speculation", "--deterministic"):
        parser.add_argument(name, type=lambda word: bool(int(word)), default=False)
    return parser.parse_args(words)


def load(arguments: argparse.Namespace) -> Runner:
    """The runner that was asked for. Raises HisarError where the model cannot be loaded."""
    given = {name: getattr(arguments, name) for name in RunnerOptions.__struct_fields__}
    return RUNNERS[arguments.runner](RunnerOptions(**given))


def serve(link: socket.socket, arguments: argparse.Namespace) -> int:
    """Load and run; answers the exit status."""
    try:
        runner = load(arguments)
    except HisarError as error:
        link.sendall(encode_frame(Refused(call_id=0, code=error.code, message=error.message)))
        return error.exit_code
    with contextlib.closing(runner):
        Worker(link, runner, speculates=arguments.speculation).run()
    return 0


def main(words: Seq[str]) -> int:
    """The whole life of a worker process; answers its exit status."""
    arguments = parse_arguments(words)
    logs.configure(arguments.log_level, "worker")
    with socket.socket(fileno=arguments.fd) as link:
        try:
            return serve(link, arguments)
        except Exception:  # noqa: BLE001
            # The process's outermost frame: a broken engine ends its process, and says where.
            _log.exception("the engine failed", extra={"model": arguments.model})
            return EngineError.exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
