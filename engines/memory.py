"""Which models are in memory: loaded on first use, each once, and let go of on command.

A model that could not be loaded stays listed as failed, so that requests fail at once and say why,
until it is loaded anew or another model of its name is put in the library. Who makes room for whom
is decided in `engines.residents`.
"""

import asyncio
import logging
import os
from typing import Final

from appliance.catalogue import Library, ModelSpec
from appliance.config import Config
from appliance.engine_choice import choose_runner
from appliance.errors import CatalogueError, EngineError, HisarError
from appliance.generation import Failed
from engines.keeper import Patience
from engines.placement import Room
from engines.protocol import ModelFacts, Status
from engines.refusals import to_error
from engines.replica import DRAINING, Replica
from engines.residents import Residents
from engines.routes import Receiver
from engines.worker_process import WorkerOptions

_log: Final = logging.getLogger(__name__)


class Memory:
    """The replicas of this host, by model."""

    def __init__(self, library: Library, config: Config, patience: Patience) -> None:
        self._library = library
        self._config = config
        self._patience = patience
        self._residents = Residents(config.engine)
        self._is_draining = False
        self._behind: set[Receiver] = set()

    def lease(self, model: str) -> Replica:
        """The model's replica, started if there is none; a request in it is the lease.

        Raises CatalogueError for a model that is not in the library, EngineError
        `engine.does_not_fit` or `engine.draining`.
        """
        if self._is_draining:
            raise to_error(DRAINING)
        resident = self._residents.find(model)
        if resident is not None and not resident.replica.has_failed:
            return resident.replica
        spec = self._library.get(model)
        if resident is None or spec != resident.spec:
            resident = self._residents.admit(spec, lambda room: self._start(spec, room))
        return resident.replica

    async def load(self, model: str) -> ModelFacts:
        """Wait until a model is in memory; one that had failed gets a new chance.

        Raises as `lease` does, and EngineError where the model cannot be loaded.
        """
        known = self._residents.find(model)
        if known is not None and known.replica.has_failed:
            self._residents.forget(model)
        return await self.lease(model).loaded()

    async def unload(self, model: str) -> None:
        """Let a model go; its requests fail. Raises EngineError `engine.not_loaded`."""
        resident = self._residents.find(model)
        if resident is None:
            raise EngineError("engine.not_loaded", f"the model {model!r} is not in memory")
        await asyncio.wait({self._residents.let_go(resident)})

    async def follow_library(self) -> None:
        """Have models leave that were removed or changed in the library, until cancelled.

        One that is in use stays until it is not. One to be preloaded comes back as it is now.
        """
        while True:
            await asyncio.sleep(self._patience.library_s)
            for spec in await asyncio.to_thread(self._find_outdated, self._residents.specs):
                if self._residents.let_go_if_unused(spec):
                    _log.info("%s leaves: it was removed or changed in the library", spec.name)
                    self._take_back(spec.name)

    def _find_outdated(self, specs: tuple[ModelSpec, ...]) -> list[ModelSpec]:
        return [spec for spec in specs if self._is_outdated(spec)]

    def _is_outdated(self, spec: ModelSpec) -> bool:
        try:
            return self._library.get(spec.name) != spec
        except CatalogueError as error:
            return error.code == "model.not_found"
        except OSError:  # it cannot be told
            return False

    def _take_back(self, model: str) -> None:
        if model in self._config.engine.preload:
            try:
                self.lease(model)
            except HisarError as error:
                _log.warning("%s is not loaded again: %s", model, error.message)

    def abort(self, key: str) -> None:
        """Stop a request, if any replica has it."""
        any(replica.abort(key) for replica in self._residents.replicas)

    def abort_all_of(self, receiver: Receiver) -> None:
        """Stop every request of a receiver that is gone."""
        for replica in self._residents.replicas:
            replica.abort_all_of(receiver)

    def hold_for(self, receiver: Receiver) -> None:
        """Let the engines wait until a receiver that has fallen behind catches up."""
        self._behind.add(receiver)
        for replica in self._residents.replicas:
            replica.pause()

    def stop_holding_for(self, receiver: Receiver) -> None:
        """A receiver has caught up or is gone."""
        self._behind.discard(receiver)
        if not self._behind:
            for replica in self._residents.replicas:
                replica.resume()

    async def status(self, call_id: int) -> Status:
        """How every replica stands."""
        replicas = await asyncio.gather(*(r.status() for r in self._residents.replicas))
        return Status(
            call_id=call_id,
            host_pid=os.getpid(),
            replicas=tuple(replicas),
            evictions=dict(self._residents.evictions),
        )

    async def drain(self, *, within_s: float) -> None:
        """Take nothing new, let running requests end within the bound, and end every worker."""
        self._is_draining = True
        await self._residents.close(within_s=within_s)

    def _start(self, spec: ModelSpec, room: asyncio.Future[Room]) -> Replica:
        engine = self._config.engine
        options = WorkerOptions(
            model=spec.name,
            runner=choose_runner(spec, engine),
            path=self._library.path_of(spec),
            context_tokens=engine.context_tokens or spec.context_tokens,
            num_slots=engine.num_slots,
            num_threads=engine.num_threads,
            step_tokens=engine.step_tokens,
            log_level=self._config.logs.level,
            speculation=engine.speculation,
            deterministic=engine.deterministic,
        )
        return Replica(options, self._patience, room=room)


def failed_by(error: HisarError) -> Failed:
    """How a request ends that ran into this error."""
    retry_after_s = error.retry_after_s if isinstance(error, EngineError) else None
    return Failed(code=error.code, message=error.message, retry_after_s=retry_after_s)
