"""One replica: the requests and questions given to one worker, and what becomes of them.

Those that come while no worker is ready wait for one, within a bound. When the worker is lost,
those it had begun fail at once; those still waiting stay.
"""

import asyncio
import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import msgspec
import psutil
from msgspec import Struct

from appliance.errors import EngineError
from appliance.generation import Failed, GenerationRequest
from engines.keeper import Keeper, Patience, ReplicaState
from engines.placement import Room
from engines.protocol import (
    Abort,
    Answer,
    Ask,
    Drain,
    Events,
    Forget,
    FrameError,
    FromWorker,
    Generate,
    GetStatus,
    ModelFacts,
    Question,
    Refused,
    ReplicaStatus,
    Reply,
    SchedulerStats,
)
from engines.refusals import to_error
from engines.routes import Receiver, Route, Routes
from engines.worker_process import COMMAND, WorkerOptions

# What a busy worker has not taken from its socket yet; beyond this the host would be the queue.
_MAX_UNSENT_BYTES: Final = 256 * 1024 * 1024

CANCELLED: Final = Failed(code="request.cancelled", message="the request was cancelled")
LOST: Final = Failed(
    code="engine.replica_lost",
    message="the engine process of this model ended; it is being started again",
    retry_after_s=1.0,
)
STARTING: Final = Failed(
    code="engine.replica_starting", message="the model is still being loaded", retry_after_s=5.0
)
NO_ROOM: Final = Failed(
    code="engine.memory_busy",
    message="models that are in use hold the memory that this model needs",
    retry_after_s=5.0,
)
DRAINING: Final = Failed(
    code="engine.draining", message="the engine host is shutting down", retry_after_s=1.0
)
UNLOADED: Final = Failed(
    code="engine.model_unloaded", message="the model was unloaded", retry_after_s=1.0
)
OVERLOADED: Final = Failed(
    code="engine.overloaded",
    message="the engine process of this model does not keep up with the requests sent to it",
    retry_after_s=1.0,
)


class Replica:
    """Passes requests to one worker, and its events back to where the requests came from.

    Its worker starts once `room` is done. `on_idle` is called when nobody uses it any more.
    """

    def __init__(
        self,
        options: WorkerOptions,
        patience: Patience,
        command: tuple[str, ...] = COMMAND,
        *,
        room: asyncio.Future[Room] | None = None,
    ) -> None:
        self.on_idle: Callable[[], None] = lambda: None
        self._model = options.model
        self._patience = patience
        self._routes = Routes()
        self._waiting: dict[str, tuple[GenerationRequest, asyncio.TimerHandle]] = {}
        self._stats = SchedulerStats()
        self._asked: dict[int, asyncio.Future[None]] = {}
        self._questions: dict[int, asyncio.Future[Reply]] = {}
        self._call_ids = itertools.count(1)
        self._loop = asyncio.get_running_loop()
        # Those who wait for the model to be in memory, or for an answer to a question.
        self._num_waiting_callers = 0
        self._keeper = Keeper(options, patience, self, command, room)

    @property
    def has_failed(self) -> bool:
        """Whether the model could not be loaded and is not being tried again."""
        return self._keeper.state is ReplicaState.FAILED

    @property
    def is_busy(self) -> bool:
        """Whether anybody has a request in it, or waits for it."""
        return bool(self._routes or self._num_waiting_callers)

    @property
    def facts(self) -> ModelFacts | None:
        """What its worker has said of the model; None before it has."""
        return self._keeper.facts

    @property
    def private_bytes(self) -> int:
        """Memory that its worker has taken from what the machine has free."""
        return memory_of(self._keeper.worker.pid).private_bytes

    def submit(self, key: str, request: GenerationRequest, route: Route) -> None:
        """Start a request, or let it wait. It is answered over `route`, also when it fails here.

        Raises FrameError for a key that is in use: whoever sent it counts its requests wrongly.
        """
        if key in self._routes:
            raise FrameError("a request id is used twice")
        self._routes.add(key, route)
        if self._keeper.failure is not None:
            self._fail([key], self._keeper.failure)
        elif self._keeper.state is ReplicaState.READY:
            self._send(key, request)
        else:
            timer = self._loop.call_later(self._patience.request_waits_s, self._stop_waiting, key)
            self._waiting[key] = (request, timer)

    async def ask(self, question: Question) -> Reply:
        """What the model says, once it is in memory. Raises EngineError, RequestError."""
        with self._in_use():
            try:
                # Not wait_for: between the news and the question the worker could be lost.
                async with asyncio.timeout(self._patience.request_waits_s):
                    await self._keeper.loaded()
            except TimeoutError:
                raise to_error(self._why_not_ready) from None
            return await self._ask(question)

    async def _ask(self, question: Question) -> Reply:
        call_id = next(self._call_ids)
        self._send_question(Ask(call_id=call_id, question=question))
        answered: asyncio.Future[Reply] = self._loop.create_future()
        self._questions[call_id] = answered
        try:
            return await answered
        except asyncio.CancelledError:
            self._keeper.worker.send(Forget(call_id=call_id))
            raise
        finally:
            del self._questions[call_id]

    def abort(self, key: str) -> bool:
        """Stop a request; False where this replica does not have it."""
        if key in self._waiting:
            self._fail([key], CANCELLED)
        elif key in self._routes:
            self._keeper.worker.send(Abort(request_id=key))
        else:
            return False
        return True

    def abort_all_of(self, receiver: Receiver) -> None:
        """Stop every request of a receiver that is gone."""
        for key in self._routes.keys_of(receiver):
            self.abort(key)

    def pause(self) -> None:
        """Take no events from the worker for now."""
        self._keeper.worker.pause()

    def resume(self) -> None:
        """Take events from the worker again."""
        self._keeper.worker.resume()

    async def loaded(self) -> ModelFacts:
        """Wait until the model is in memory. Raises EngineError where it never will be."""
        with self._in_use():
            return await self._keeper.loaded()

    async def status(self) -> ReplicaStatus:
        """How it stands; the last known figures where the worker is too busy to answer."""
        await self._ask_worker()
        keeper = self._keeper
        pid = keeper.worker.pid
        return ReplicaStatus(
            model=self._model,
            state=keeper.state.value,
            pid=pid,
            restarts=keeper.restarts.num_deaths,
            resident_bytes=memory_of(pid).resident_bytes,
            facts=keeper.facts,
            stats=self._stats,
            load_s=keeper.load_s,
            failure_code=keeper.failure.code if keeper.failure and self.has_failed else "",
        )

    async def drain(self, *, within_s: float) -> None:
        """Let running requests end, for at most `within_s`, then stop."""
        had_worker = self._keeper.state is ReplicaState.READY
        self._keeper.give_up(ReplicaState.DRAINING, DRAINING)
        if had_worker:
            self._keeper.worker.send(Drain())
            await self._keeper.worker_left(within_s=within_s)
        await self.stop(DRAINING)

    async def stop(self, failure: Failed) -> None:
        """End the worker; its requests fail with `failure`."""
        self._keeper.give_up(ReplicaState.STOPPED, failure)
        self._fail(list(self._routes), failure)
        self._fail_questions(failure)
        await self._keeper.stop()

    def on_ready(self) -> None:
        """The worker takes requests: those that waited go to it, in the order they came."""
        waiting, self._waiting = self._waiting, {}
        for key, (request, timer) in waiting.items():
            timer.cancel()
            self._send(key, request)

    def on_message(self, message: FromWorker) -> None:
        """The worker says something about its requests or about itself."""
        if isinstance(message, Events):
            self._routes.deliver(message.batch)
            self._tell_if_idle()
        elif isinstance(message, Answer):
            self._settle(message.call_id, message.reply)
        elif isinstance(message, Refused):
            self._settle(message.call_id, to_error(message))
        elif isinstance(message, ReplicaStatus):
            self._stats = message.stats
            answered = self._asked.pop(message.call_id, None)
            if answered is not None:
                answered.set_result(None)

    def on_lost(self) -> None:
        """The worker is gone, and with it every request it had begun."""
        self._stats = SchedulerStats()
        self._fail([key for key in self._routes if key not in self._waiting], LOST)
        self._fail_questions(LOST)

    def on_failed(self, failure: Failed) -> None:
        """There will be no other worker: nothing is worth waiting for."""
        self._fail(list(self._waiting), failure)

    def _send(self, key: str, request: GenerationRequest) -> None:
        worker = self._keeper.worker
        if worker.unsent_bytes > _MAX_UNSENT_BYTES:
            self._fail([key], OVERLOADED)
            return
        try:
            worker.send(Generate(request=msgspec.structs.replace(request, id=key)))
        except FrameError as error:
            self._fail([key], Failed(code="engine.request_unsendable", message=str(error)))

    def _send_question(self, ask: Ask) -> None:
        worker = self._keeper.worker
        if worker.unsent_bytes > _MAX_UNSENT_BYTES:
            raise to_error(OVERLOADED)
        try:
            worker.send(ask)
        except FrameError as error:
            raise EngineError("engine.request_unsendable", str(error)) from None

    def _settle(self, call_id: int, outcome: Reply | Exception) -> None:
        """End a question, if somebody still waits for it."""
        answered = self._questions.get(call_id)
        if answered is None or answered.done():
            return
        if isinstance(outcome, Exception):
            answered.set_exception(outcome)
        else:
            answered.set_result(outcome)

    def _fail_questions(self, failure: Failed) -> None:
        for call_id in tuple(self._questions):
            self._settle(call_id, to_error(failure))

    def _fail(self, keys: list[str], failure: Failed) -> None:
        for key in keys:
            _, timer = self._waiting.pop(key, (None, None))
            if timer is not None:
                timer.cancel()
        self._routes.deliver([(key, failure) for key in keys])
        self._tell_if_idle()

    def _stop_waiting(self, key: str) -> None:
        self._fail([key], self._why_not_ready)

    @property
    def _why_not_ready(self) -> Failed:
        return NO_ROOM if self._keeper.state is ReplicaState.WAITING else STARTING

    @contextmanager
    def _in_use(self) -> Iterator[None]:
        """Not idle for the length of the block."""
        self._num_waiting_callers += 1
        try:
            yield
        finally:
            self._num_waiting_callers -= 1
            self._tell_if_idle()

    def _tell_if_idle(self) -> None:
        if not self.is_busy:
            self.on_idle()

    async def _ask_worker(self) -> None:
        """Let the worker renew its figures, within a short bound."""
        if self._keeper.state is not ReplicaState.READY:
            return
        call_id = next(self._call_ids)
        answered = self._asked[call_id] = self._loop.create_future()
        self._keeper.worker.send(GetStatus(call_id=call_id))
        await asyncio.wait({answered}, timeout=self._patience.status_s)
        self._asked.pop(call_id, None)


class ProcessMemory(Struct, frozen=True):
    """Memory of a process: all it uses, and the part that is no copy of a file."""

    resident_bytes: int
    private_bytes: int


def memory_of(pid: int) -> ProcessMemory:
    """What a process holds; nothing for one that is gone."""
    try:
        told = psutil.Process(pid).memory_info() if pid else None
    except psutil.NoSuchProcess:
        told = None
    if told is None:
        return ProcessMemory(0, 0)
    return ProcessMemory(told.rss, told.rss - getattr(told, "shared", 0))
