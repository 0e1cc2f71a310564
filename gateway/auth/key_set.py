"""The identity provider's public keys: one set, kept while the provider is down, never asked for
in a flood.

A key that is not in the set may be new, so the set is fetched again, once for all who wait. If that
brought nothing, nobody's unknown key is asked for until a pause is over: keys that do not exist
cost the provider nothing, and a new one is there with the first token that it signed.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeAlias

from jwt import PyJWK

from appliance.clock import Monotonic
from appliance.errors import MachineError, RequestError

COOL_DOWN_S: Final = 10.0
_REFRESH_S: Final = 600.0
_RETRY_S: Final = 5.0

_log: Final = logging.getLogger(__name__)

# The keys by their `kid`. Raises MachineError where they cannot be had.
FetchKeys: TypeAlias = Callable[[], Awaitable[Mapping[str, PyJWK]]]


class KeySet:
    """The keys as they were fetched last."""

    def __init__(self, fetch: FetchKeys, clock: Monotonic) -> None:
        self._fetch = fetch
        self._clock = clock
        self._keys: Mapping[str, PyJWK] = {}
        self._fetching = asyncio.Lock()
        self._quiet_until = float("-inf")
        self._is_failing = False

    async def find(self, kid: str) -> PyJWK | None:
        """The key of that name; None when the provider has none.

        Raises RequestError 503 where no key is known at all, so that nobody can be judged.
        """
        if kid not in self._keys:
            await self._look_for(kid)
        if not self._keys:
            raise RequestError(
                "auth.provider_unreachable",
                "tokens cannot be checked now: the identity provider does not answer",
                status=503,
                retry_after_s=_RETRY_S,
            )
        return self._keys.get(kid)

    async def keep_fresh(self) -> None:
        """Fetch the set now and from time to time, for as long as the box runs."""
        while True:
            async with self._fetching:
                await self._refetch()
            await asyncio.sleep(_RETRY_S if self._is_failing else _REFRESH_S)

    async def _look_for(self, kid: str) -> None:
        async with self._fetching:
            if kid in self._keys or self._clock() < self._quiet_until:
                return
            # Before the answer is there: whoever hangs up on us must not undo the pause.
            self._quiet_until = self._clock() + COOL_DOWN_S
            await self._refetch()
            if kid in self._keys:
                self._quiet_until = float("-inf")

    async def _refetch(self) -> None:
        try:
            self._keys = await self._fetch()
        except MachineError as error:
            if not self._is_failing:
                _log.warning("%s; keys at hand: %d", error, len(self._keys))
            self._is_failing = True
        else:
            if self._is_failing:
                _log.warning("the identity provider's keys can be had again")
            self._is_failing = False
