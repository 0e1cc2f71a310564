"""The HTTP server: its socket, its signals, and the order in which it goes down.

SIGTERM or SIGINT: readiness off, new requests refused; what runs may finish until `drain_s` is over
or a second signal hurries; what is left is told so in its stream; then connections are closed.
Whoever called `serve` closes records and store after that.
"""

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from typing import Final

import uvicorn
from litestar.types import ASGIApp

from appliance.config import GatewayConfig
from appliance.errors import EngineError
from appliance.machine import require_free_port
from appliance.stop_signals import STOP_SIGNALS, ignore_stop_signals
from gateway.box import Box
from gateway.http1 import IDLE_TIMEOUT_S, Http1
from gateway.limits.admission import RETRY_AFTER_S

BACKLOG: Final = 1024
# How long calls may take to end once they are told to, and connections to be read to their end.
FAREWELL_S: Final = 2


class Server(uvicorn.Server):
    """uvicorn, with signals left to us."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """uvicorn would stop at once."""
        yield


def listen(config: GatewayConfig) -> socket.socket:
    """A socket at the configured address. Raises MachineError `machine.port_taken` and others."""
    require_free_port(config.host, config.port)
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((config.host.strip("[]"), config.port))
    listener.listen(BACKLOG)
    return listener


async def serve(app: ASGIApp, box: Box, listener: socket.socket) -> None:
    """Serve until told to stop, then go down in order."""
    server = Server(
        uvicorn.Config(
            app,
            http=Http1,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_keep_alive=int(IDLE_TIMEOUT_S),
            timeout_graceful_shutdown=FAREWELL_S,
        )
    )
    loop = asyncio.get_running_loop()
    for number in STOP_SIGNALS:
        loop.add_signal_handler(number, box.drain.begin)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    draining = asyncio.create_task(_drain(box))
    await asyncio.wait({serving, draining}, return_when=asyncio.FIRST_COMPLETED)
    server.should_exit = True
    await serving
    draining.cancel()
    ignore_stop_signals(loop)


async def _drain(box: Box) -> None:
    """Return when the box was told to stop and no call is left."""
    await box.drain.wait_until_on()
    box.limiter.admission.close()
    settled = asyncio.create_task(box.settlement.wait_until_none_open())
    hurried = asyncio.create_task(box.drain.wait_until_hurried(box.config.gateway.drain_s))
    await asyncio.wait({settled, hurried}, return_when=asyncio.FIRST_COMPLETED)
    hurried.cancel()
    box.settlement.stop_all(_stopping())
    await asyncio.wait({settled}, timeout=FAREWELL_S)
    settled.cancel()


def _stopping() -> EngineError:
    return EngineError("gateway.draining", "the box is shutting down", retry_after_s=RETRY_AFTER_S)
