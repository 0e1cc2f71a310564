"""What keeps a worker alive: start, wait until it is ready, notice its end, start the next.

    waiting ──room──> starting ──Ready──> ready ──gone──> restarting ──delay──> starting
                          └── Refused, or too many failed starts in a row ──> failed
    any ──> draining ──last request ended──> stopped          any ──> stopped

In the last three `failure` says why no further worker is started.
"""

import asyncio
import logging
from enum import StrEnum
from typing import Any, Final, Protocol

import msgspec
from msgspec import Struct

from appliance.generation import Failed
from engines.placement import Room
from engines.protocol import FrameError, FromWorker, ModelFacts, Ready, Refused
from engines.refusals import to_error
from engines.restarts import RestartPolicy, Restarts
from engines.worker_process import COMMAND, WorkerOptions, WorkerProcess

_log: Final = logging.getLogger(__name__)


class ReplicaState(StrEnum):
    """Where a replica stands."""

    WAITING = "waiting"
    STARTING = "starting"
    READY = "ready"
    RESTARTING = "restarting"
    FAILED = "failed"
    DRAINING = "draining"
    STOPPED = "stopped"


class Patience(Struct, frozen=True, kw_only=True):
    """How long is waited for what, in seconds."""

    ready_s: float = 600.0
    request_waits_s: float = 60.0
    worker_leaves_s: float = 5.0
    status_s: float = 0.25
    library_s: float = 1.0
    restarts: RestartPolicy = RestartPolicy()


class Watcher(Protocol):
    """Who is told what becomes of the worker."""

    def on_ready(self) -> None:
        """The worker takes requests."""

    def on_message(self, message: FromWorker) -> None:
        """The worker says something that concerns requests."""

    def on_lost(self) -> None:
        """The worker is gone, and with it every request it had begun."""

    def on_failed(self, failure: Failed) -> None:
        """There will be no other worker."""


class Keeper:
    """Keeps one worker alive, once `room` says what memory its keys and values may take.

    `load_s` is how long the latest start took, from the wish to readiness.
    """

    def __init__(
        self,
        options: WorkerOptions,
        patience: Patience,
        watcher: Watcher,
        command: tuple[str, ...] = COMMAND,
        room: asyncio.Future[Room] | None = None,
    ) -> None:
        self.state = ReplicaState.STARTING if room is None else ReplicaState.WAITING
        self.failure: Failed | None = None
        self.facts: ModelFacts | None = None
        self.restarts = Restarts(policy=patience.restarts)
        self._options = options
        self._patience = patience
        self._watcher = watcher
        self._command = command
        self._room = room
        self._loop = asyncio.get_running_loop()
        self._wanted_at = self._loop.time()
        self.load_s = 0.0
        # Set while "is the model in memory?" has an answer: yes, or never again.
        self._settled = asyncio.Event()
        self._became_ready: asyncio.Future[float] = self._loop.create_future()
        self.worker = self._new_worker()
        self._lives = self._loop.create_task(self._keep_alive())

    async def loaded(self) -> ModelFacts:
        """Wait until the model is in memory. Raises EngineError where it never will be."""
        while True:
            await self._settled.wait()
            if self.failure is not None:
                raise to_error(self.failure)
            if self.facts is not None:
                return self.facts

    def give_up(self, state: ReplicaState, failure: Failed) -> None:
        """Start no further worker; the present one lives on until it leaves or is stopped."""
        self.state = state
        self.failure = failure
        self._settled.set()
        self._watcher.on_failed(failure)

    async def worker_left(self, *, within_s: float) -> None:
        """Wait for the present worker to leave by itself. Only after `give_up`."""
        await asyncio.wait({self._lives}, timeout=within_s)

    async def stop(self) -> None:
        """End the present worker and wait until it is gone. Only after `give_up`."""
        self._lives.cancel()
        await asyncio.wait({self._lives})
        # Once more: the cancellation may have come while it was waiting for this very thing.
        await self.worker.end(grace_s=self._patience.worker_leaves_s)
        self.state = ReplicaState.STOPPED

    def _new_worker(self) -> WorkerProcess:
        return WorkerProcess(
            on_message=self._on_message, on_broken=self._on_broken, on_closed=self._on_closed
        )

    async def _keep_alive(self) -> None:
        if self._room is not None:
            room = await self._room
            self._options = msgspec.structs.replace(
                self._options, kv_room_bytes=room.kv_bytes, prefix_bytes=room.prefix_bytes
            )
        while self.failure is None:
            ready_for_s = await self._live_once()
            if self.failure is None:
                await self._pause(ready_for_s)

    async def _live_once(self) -> float | None:
        """Start the worker and stay with it to its end; how long it was ready, None for never."""
        self.state = ReplicaState.STARTING
        self._became_ready = self._loop.create_future()
        try:
            await self.worker.start(self._options, self._command)
            await self._stay_with(self.worker)
        except OSError as error:
            _log.error("a worker of %s cannot be started: %s", self._options.model, error)
        finally:
            ended_at = self._loop.time()
            pid, status = (
                self.worker.pid,
                await self.worker.end(grace_s=self._patience.worker_leaves_s),
            )
            self.worker = self._new_worker()
            _log.info("worker %d of %s ended, status %d", pid, self._options.model, status)
        return ended_at - self._became_ready.result() if self._became_ready.done() else None

    async def _stay_with(self, worker: WorkerProcess) -> None:
        news: set[asyncio.Future[Any]] = {worker.closed, self._became_ready}
        await asyncio.wait(
            news, timeout=self._patience.ready_s, return_when=asyncio.FIRST_COMPLETED
        )
        if self._became_ready.done():
            await asyncio.wait({worker.closed})

    async def _pause(self, ready_for_s: float | None) -> None:
        delay_s = self.restarts.after_death(ready_for_s=ready_for_s)
        if delay_s is not None:
            _log.warning("worker of %s is started again in %.1f s", self._options.model, delay_s)
            await asyncio.sleep(delay_s)
            return
        message = f"the model could not be loaded in {self.restarts.num_failed_starts} attempts"
        _log.error("%s: %s", self._options.model, message)
        self.give_up(ReplicaState.FAILED, Failed(code="engine.model_failed", message=message))

    def _on_message(self, message: FromWorker) -> None:
        if isinstance(message, Ready):
            self._on_ready(message)
        elif isinstance(message, Refused) and message.call_id == 0:
            _log.error("%s: %s", self._options.model, message.message)
            self.give_up(ReplicaState.FAILED, _failed_by(message))
        else:
            self._watcher.on_message(message)

    def _on_ready(self, message: Ready) -> None:
        if self.failure is not None or self._became_ready.done():
            return
        _log.info("%s is ready", self._options.model)
        self.facts = message.facts
        self.state = ReplicaState.READY
        self.load_s = self._loop.time() - self._wanted_at
        self._became_ready.set_result(self._loop.time())
        self._settled.set()
        self._watcher.on_ready()

    def _on_broken(self, error: FrameError) -> None:
        _log.error("worker of %s: %s", self._options.model, error)

    def _on_closed(self) -> None:
        if self.failure is None:
            self.state = ReplicaState.RESTARTING
            self._wanted_at = self._loop.time()
            self.facts = None
            self._settled.clear()
        self._watcher.on_lost()


def _failed_by(refusal: Refused) -> Failed:
    return Failed(code=refusal.code, message=refusal.message, retry_after_s=refusal.retry_after_s)
