"""What the gateway knows of the engines: asked of the host once a second.

A request for a model that is not in memory goes to the host all the same: loading it is the host's
business. Only when no host answers is there nowhere to send it.
"""

import asyncio
import logging
from collections.abc import Mapping
from typing import Final

from appliance.catalogue import Library
from appliance.errors import EngineError
from appliance.metrics import EngineNumbers, Metrics
from engines.client import EngineClient
from engines.protocol import ReplicaStatus

ASK_EVERY_S: Final = 1.0
# While nothing is ready somebody is waiting for it.
ASK_SOON_S: Final = 0.1

_log: Final = logging.getLogger(__name__)


class Fleet:
    """The engines behind this gateway."""

    def __init__(self, client: EngineClient, library: Library, metrics: Metrics) -> None:
        self._client = client
        self._library = library
        self._metrics = metrics
        self.replicas: tuple[ReplicaStatus, ...] = ()

    @property
    def is_connected(self) -> bool:
        """Whether a host answers at this moment."""
        return self._client.connected

    @property
    def ready_models(self) -> tuple[str, ...]:
        """Models that answer at once."""
        if not self.is_connected:
            return ()
        return tuple(replica.model for replica in self.replicas if replica.state == "ready")

    @property
    def failure_codes(self) -> frozenset[str]:
        """Why models that were wanted could not be loaded."""
        return frozenset(replica.failure_code for replica in self.replicas if replica.failure_code)

    def context_tokens(self, model: str) -> int | None:
        """What prompt and answer may hold together; None while the model was never loaded."""
        facts = (replica.facts for replica in self.replicas if replica.model == model)
        return next((known.context_tokens for known in facts if known is not None), None)

    async def refresh(self) -> None:
        """Ask the host how it stands; a host that does not say leaves nothing known."""
        evictions: Mapping[str, int] = {}
        try:
            status = await self._client.status()
            self.replicas, evictions = status.replicas, status.evictions
        except EngineError:
            self.replicas = ()
        self._metrics.show_engines({r.model: _numbers(r) for r in self.replicas}, evictions)

    async def keep_watch(self) -> None:
        """Refresh, and learn which models there are, until cancelled."""
        while True:
            try:
                specs = await asyncio.to_thread(self._library.list)
                self._metrics.know_models(spec.name for spec in specs)
            except OSError as error:
                _log.warning("the folder of the models cannot be read", exc_info=error)
            await self.refresh()
            await asyncio.sleep(ASK_EVERY_S if self.ready_models else ASK_SOON_S)


def _numbers(replica: ReplicaStatus) -> EngineNumbers:
    stats = replica.stats
    return EngineNumbers(
        state=replica.state,
        load_s=replica.load_s,
        failure_code=replica.failure_code,
        num_running=stats.num_running,
        num_waiting=stats.num_waiting,
        kv_used_tokens=stats.kv_used_tokens,
        kv_cached_tokens=stats.kv_cached_tokens,
        kv_saved_tokens=stats.kv_saved_tokens,
        kv_total_tokens=stats.kv_total_tokens,
        num_preemptions=stats.num_preemptions,
        prefix_cache_queries=stats.prefix_cache_queries,
        prefix_cache_hits=stats.prefix_cache_hits,
        num_drafted=stats.num_drafted,
        num_accepted=stats.num_accepted,
    )
