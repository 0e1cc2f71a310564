"""The engine host: accepts gateways, keeps models in memory, and leaves in good order."""

import asyncio
import itertools
import logging
import socket
from typing import Final

from appliance.errors import HisarError
from engines.channel import Channel
from engines.connection import Connection
from engines.memory import Memory
from engines.protocol import FromGateway

_log: Final = logging.getLogger(__name__)

# How long gateways have to read the last events when the host leaves.
_FLUSH_S: Final = 2.0


class Host:
    """The gateways connected to this host, and the memory they share."""

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._connections: set[Connection] = set()
        self._numbers = itertools.count(1)

    async def listen(self, listener: socket.socket) -> asyncio.Server:
        """Accept gateways from now on."""
        loop = asyncio.get_running_loop()
        return await loop.create_unix_server(self._accept, sock=listener)

    async def preload(self, models: tuple[str, ...]) -> None:
        """Bring models into memory; one that cannot be loaded is reported and left out."""
        await asyncio.gather(*(self._preload(model) for model in models))

    async def follow_library(self) -> None:
        """Let go of models that leave the library, until cancelled."""
        await self._memory.follow_library()

    async def drain(self, server: asyncio.Server, *, within_s: float) -> None:
        """Take nothing new, let running requests end, end the workers, let gateways read on."""
        server.close()
        _log.info("draining")
        await self._memory.drain(within_s=within_s)
        closed = {connection.channel.closed for connection in self._connections}
        for connection in self._connections:
            connection.channel.close()
        if closed:
            await asyncio.wait(closed, timeout=_FLUSH_S)
        for connection in tuple(self._connections):
            connection.channel.abort()

    def _accept(self) -> Channel[FromGateway]:
        connection = Connection(next(self._numbers), self._memory, self._connections.discard)
        self._connections.add(connection)
        return connection.channel

    async def _preload(self, model: str) -> None:
        try:
            await self._memory.load(model)
        except HisarError as error:
            _log.warning("%s is not loaded at the start: %s", model, error.message)
