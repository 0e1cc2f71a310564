"""A real engine host process, and what its tests say to it and wait for."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import psutil

from appliance.generation import (
    GenerationEvent,
    GenerationRequest,
    TextDelta,
    TextPrompt,
)
from appliance.home import Home
from engines.client import ClientPatience, EngineClient
from engines.protocol import ReplicaStatus

COMMAND = (sys.executable, "-m", "engines")
DEADLINE_S = 20.0

# Long enough an answer that a test can act while it streams.
LONG_PROMPT = "ab " * 60_000


def request(text: str = "hello world", *, model: str = "echo") -> GenerationRequest:
    """A request whose answer is its own text."""
    return GenerationRequest(id="r", model=model, prompts=(TextPrompt(text=text),))


@asynccontextmanager
async def connected(path: Path, **patience: float) -> AsyncIterator[EngineClient]:
    """A started client."""
    client = EngineClient(path, ClientPatience(**patience))
    await client.start()
    try:
        yield client
    finally:
        await client.close()


async def answer(client: EngineClient, asked: GenerationRequest) -> list[GenerationEvent]:
    """Every event of a request."""
    return [event async for event in client.generate(asked)]


def text_of(events: list[GenerationEvent]) -> str:
    """The text of one choice's events."""
    return "".join(event.text for event in events if isinstance(event, TextDelta))


async def until(condition: Callable[[], object]) -> None:
    """Wait until something holds, at most DEADLINE_S."""
    async with asyncio.timeout(DEADLINE_S):
        while not condition():  # noqa: ASYNC110  other processes set no event of ours
            await asyncio.sleep(0.01)


async def replica_when(
    client: EngineClient, condition: Callable[[ReplicaStatus], object]
) -> ReplicaStatus:
    """The one replica's status, once it is as it should be."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            (replica,) = (await client.status()).replicas
            if condition(replica):
                return replica
            await asyncio.sleep(0.01)


class HostProcess:
    """`python -m engines`, started and listening."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self._log: list[str] = []
        readable, writable = os.pipe()
        try:
            self.process = subprocess.Popen(
                [*COMMAND, "--home", str(home.root), "--ready-fd", str(writable)],
                pass_fds=(writable,),
                stderr=subprocess.PIPE,
            )
        finally:
            os.close(writable)
        with os.fdopen(readable, "rb") as ready:
            self.is_listening = ready.read() == b"ready\n"

    def workers(self) -> list[psutil.Process]:
        """The worker processes under this host."""
        return psutil.Process(self.process.pid).children()

    @property
    def pid(self) -> int:
        """The host's process id."""
        return self.process.pid

    def stop(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """Send a signal and wait: exit status and what was logged."""
        if not self._log:
            self.process.send_signal(number)
            _, log = self.process.communicate(timeout=DEADLINE_S)
            self._log.append(log.decode())
        return self.process.returncode, self._log[0]
