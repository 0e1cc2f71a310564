"""API keys as the gateway sees them: the store's, at most half a second old.

A key is asked for with every request and changes hardly ever. Half a second keeps a revocation,
made by any process on any machine, inside the promised second, whichever database holds the keys.
"""

import asyncio
from collections import OrderedDict
from typing import Final, Protocol

from appliance.clock import Monotonic
from appliance.identity import ApiKey

_FRESH_S: Final = 0.5
# Unknown ids are remembered too; the bound keeps guessers from filling the memory.
_MAX_KEYS: Final = 4096


class KeySource(Protocol):
    """Where keys come from: the store's repository."""

    async def get(self, key_id: str) -> ApiKey | None:
        """The key of that public id, whatever its state."""


class KeyCache:
    """Looks keys up, asking the source at most twice a second for each."""

    def __init__(self, source: KeySource, clock: Monotonic) -> None:
        self._source = source
        self._clock = clock
        self._known: OrderedDict[str, tuple[float, ApiKey | None]] = OrderedDict()
        self._asking = asyncio.Lock()

    async def get(self, key_id: str) -> ApiKey | None:
        """The key of that public id, whatever its state. Raises StoreError."""
        entry = self._fresh(key_id)
        if entry is None:
            # One question at a time: a burst of requests with one key asks once.
            async with self._asking:
                entry = self._fresh(key_id) or await self._ask(key_id)
        return entry[1]

    def _fresh(self, key_id: str) -> tuple[float, ApiKey | None] | None:
        entry = self._known.get(key_id)
        return entry if entry is not None and self._clock() - entry[0] < _FRESH_S else None

    async def _ask(self, key_id: str) -> tuple[float, ApiKey | None]:
        asked_at = self._clock()
        entry = (asked_at, await self._source.get(key_id))
        self._known[key_id] = entry
        self._known.move_to_end(key_id)
        if len(self._known) > _MAX_KEYS:
            self._known.popitem(last=False)
        return entry
