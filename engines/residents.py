"""Who gets memory: models wait for room in their order, and those nobody uses leave for them.

Memory is counted in bytes: what the machine has free (or the configuration allows), less what the
models in memory have not taken yet. For a model without room those leave that nobody uses, idle
for longest first; one that is in use or pinned never does. One that is not pinned also leaves
after `keep_alive_s` without use. A model that would not fit either way is refused.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from typing import Final

from msgspec import Struct

from appliance.catalogue import ModelSpec
from appliance.config import EngineConfig
from appliance.devices import take_inventory
from appliance.engine_choice import choose_runner
from appliance.errors import EngineError
from appliance.footprint import Footprint, measure
from appliance.generation import Failed
from engines.placement import Occupant, Room, choose_evictions, grant_room, require_room
from engines.replica import UNLOADED, Replica

_log: Final = logging.getLogger(__name__)


class Resident(Struct, kw_only=True, eq=False):
    """A model that is in memory, or waits for room: `room` is done once it has some."""

    spec: ModelSpec
    footprint: Footprint
    replica: Replica
    room: asyncio.Future[Room]
    idle_since: float = 0.0
    retirement: asyncio.TimerHandle | None = None

    @property
    def held_bytes(self) -> int:
        """What would be free without it."""
        if self.replica.has_failed or not self.room.done():
            return 0
        need, facts = self.footprint, self.replica.facts
        num_slots = need.num_slots if facts is None else facts.num_slots
        more_slots_bytes = need.kv_bytes * (num_slots - need.num_slots) // need.num_slots
        if facts is not None and facts.kv_bytes:
            more_slots_bytes = facts.kv_bytes - need.kv_bytes
        granted_bytes = need.total_bytes + more_slots_bytes + self.room.result().prefix_bytes
        return max(granted_bytes, self.replica.private_bytes)

    @property
    def untaken_bytes(self) -> int:
        """What it needs of the memory that the machine calls free: mapped weights, above all."""
        return max(0, self.held_bytes - self.replica.private_bytes)


class Residents:
    """The models of this host, by name. `evictions` counts how often each left for another."""

    def __init__(self, engine: EngineConfig) -> None:
        self._engine = engine
        self._residents: dict[str, Resident] = {}
        # Those on their way out, and what they held.
        self._leaving: dict[asyncio.Task[None], int] = {}
        self._is_closed = False
        self.evictions: Counter[str] = Counter()

    def find(self, model: str) -> Resident | None:
        """The model of that name, if it is in memory, on its way there, or failed."""
        return self._residents.get(model)

    @property
    def replicas(self) -> tuple[Replica, ...]:
        """Everyone's replica."""
        return tuple(resident.replica for resident in self._residents.values())

    @property
    def specs(self) -> tuple[ModelSpec, ...]:
        """What everyone was in the library when it was taken in."""
        return tuple(resident.spec for resident in self._residents.values())

    def admit(self, spec: ModelSpec, start: Callable[[asyncio.Future[Room]], Replica]) -> Resident:
        """Take a model in, in the place of an older one; it starts when there is room.

        Raises EngineError `engine.does_not_fit` where there never will be.
        """
        engine = self._engine
        need = measure(
            spec,
            runner=choose_runner(spec, engine),
            has_gpu=bool(take_inventory().gpus),
            context_tokens=engine.context_tokens,
            num_slots=engine.num_slots,
        )
        self._require_room_ever(spec.name, need)
        room: asyncio.Future[Room] = asyncio.get_running_loop().create_future()
        resident = Resident(spec=spec, footprint=need, replica=start(room), room=room)
        resident.replica.on_idle = lambda: self._on_idle(resident)
        self._residents[spec.name] = resident
        self._make_room()
        return resident

    def forget(self, model: str) -> None:
        """Drop a model that has failed, and so holds nothing."""
        del self._residents[model]

    def let_go_if_unused(self, spec: ModelSpec) -> bool:
        """Have a model leave that was taken in as this one, unless somebody uses it now."""
        resident = self._residents.get(spec.name)
        if resident is None or resident.spec is not spec or not self._is_unused(resident):
            return False
        self.let_go(resident)
        return True

    def let_go(self, resident: Resident, failure: Failed = UNLOADED) -> asyncio.Task[None]:
        """Have a model leave; its requests fail. Those that wait look again when it is gone."""
        del self._residents[resident.spec.name]
        if resident.retirement is not None:
            resident.retirement.cancel()
        held_bytes = resident.held_bytes
        leaving = asyncio.get_running_loop().create_task(resident.replica.stop(failure))
        self._leaving[leaving] = held_bytes
        leaving.add_done_callback(self._on_gone)
        return leaving

    async def close(self, *, within_s: float) -> None:
        """Let running requests end within the bound, then everyone leaves."""
        self._is_closed = True
        await asyncio.gather(*(replica.drain(within_s=within_s) for replica in self.replicas))
        await asyncio.gather(*self._leaving)

    def _require_room_ever(self, model: str, need: Footprint) -> None:
        """Raises EngineError for a model that would not fit if all who may leave had left."""
        may_leave = sum(
            each.held_bytes for each in self._residents.values() if not self._pins(each)
        )
        free_bytes = self._free_bytes() + may_leave + sum(self._leaving.values())
        require_room(model, needed_bytes=need.total_bytes, free_bytes=free_bytes)

    def _free_bytes(self) -> int:
        everyone = self._residents.values()
        free_bytes = take_inventory().memory.available_bytes
        free_bytes -= sum(each.untaken_bytes for each in everyone)
        if not self._engine.memory_bytes:
            return free_bytes
        held_bytes = sum(each.held_bytes for each in everyone) + sum(self._leaving.values())
        return min(free_bytes, self._engine.memory_bytes - held_bytes)

    def _make_room(self) -> None:
        """Let those start that wait and fit, in their order; for the first other one, others go."""
        if self._is_closed:
            return
        for resident in tuple(self._residents.values()):
            if resident.room.done():
                continue
            free_bytes, need = self._free_bytes(), resident.footprint
            if need.total_bytes > free_bytes:
                self._evict_for(resident, need.total_bytes - free_bytes)
                return
            _log.info("%s is being loaded", resident.spec.name)
            share = self._engine.prefix_memory_share
            resident.room.set_result(grant_room(need, free_bytes=free_bytes, prefix_share=share))

    def _evict_for(self, newcomer: Resident, missing_bytes: int) -> None:
        if self._leaving:
            return  # When they are gone this is asked again.
        for model in choose_evictions(self._find_idle(), missing_bytes):
            _log.info("%s leaves, because %s needs its memory", model, newcomer.spec.name)
            self.evictions[model] += 1
            self.let_go(self._residents[model])
        if self._leaving:
            return
        try:
            self._require_room_ever(newcomer.spec.name, newcomer.footprint)
        except EngineError as error:
            self.let_go(newcomer, Failed(code=error.code, message=error.message))

    def _find_idle(self) -> list[Occupant]:
        return [
            Occupant(model=model, held_bytes=held_bytes, idle_since=each.idle_since)
            for model, each in self._residents.items()
            if (held_bytes := each.held_bytes) and not each.replica.is_busy and not self._pins(each)
        ]

    def _pins(self, resident: Resident) -> bool:
        return resident.spec.name in self._engine.preload

    def _on_gone(self, leaving: asyncio.Task[None]) -> None:
        del self._leaving[leaving]
        self._make_room()

    def _on_idle(self, resident: Resident) -> None:
        """Not now: whoever says so is in the middle of something."""
        asyncio.get_running_loop().call_soon(self._rest, resident)

    def _rest(self, resident: Resident) -> None:
        if not self._is_unused(resident):
            return
        resident.idle_since = asyncio.get_running_loop().time()
        if not resident.room.done():
            self.let_go(resident)  # Whoever wanted it has given up.
            return
        if resident.retirement is None:
            self._retire_in(resident, self._engine.keep_alive_s)
        self._make_room()

    def _retire_in(self, resident: Resident, delay_s: float) -> None:
        if delay_s > 0 and not self._pins(resident) and not resident.replica.has_failed:
            loop = asyncio.get_running_loop()
            resident.retirement = loop.call_later(delay_s, self._retire, resident)

    def _retire(self, resident: Resident) -> None:
        """Let a model go that was idle for long enough; else look again when it may have been."""
        resident.retirement = None
        if not self._is_unused(resident):
            return
        idle_for_s = asyncio.get_running_loop().time() - resident.idle_since
        if idle_for_s < self._engine.keep_alive_s:
            self._retire_in(resident, self._engine.keep_alive_s - idle_for_s)
            return
        _log.info("%s leaves: it was idle for %.0f s", resident.spec.name, idle_for_s)
        self.let_go(resident)

    def _is_unused(self, resident: Resident) -> bool:
        is_here = self._residents.get(resident.spec.name) is resident
        return is_here and not self._is_closed and not resident.replica.is_busy
