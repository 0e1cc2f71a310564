"""`python -m engines`: the engine host process, from plain arguments to its exit status.

Exit status: 0 after a drain, 75 when another host has the socket, else the error's own.
"""

import argparse
import asyncio
import os
import socket
import sys
from pathlib import Path
from typing import get_args

import msgspec
import uvloop

from appliance import config_file, logs
from appliance.catalogue import Library
from appliance.config import Config, EngineName
from appliance.environment import configured
from appliance.errors import HisarError
from appliance.home import Home
from appliance.stop_signals import STOP_SIGNALS, ignore_stop_signals
from engines.host import Host
from engines.keeper import Patience
from engines.listening import listening
from engines.memory import Memory


def parse(arguments: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m engines", description="The engine host.")
    parser.add_argument("--home", type=Path, required=True, help="folder of the box's state")
    parser.add_argument("--socket", type=Path, help="where to listen, instead of in the home")
    parser.add_argument(
        "--preload", action="append", help="model to load at the start, instead of as configured"
    )
    parser.add_argument(
        "--runner",
        choices=get_args(EngineName),
        help="who runs GGUF files, instead of as configured",
    )
    parser.add_argument("--ready-fd", type=int, help="written to, and closed, once listening")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    """Run the host until it is told to stop."""
    options = parse(arguments)
    home = Home(root=options.home)
    try:
        config = _with_options(configured(config_file.load(home.config)), options)
        logs.configure(config.logs.level, process="host")
        with listening(options.socket or home.engine_socket) as listener:
            memory = Memory(Library(home.models), config, Patience())
            uvloop.run(serve(Host(memory), listener, config, options.ready_fd))
    except HisarError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


def _with_options(config: Config, options: argparse.Namespace) -> Config:
    engine = config.engine
    if options.preload is not None:
        engine = msgspec.structs.replace(engine, preload=tuple(options.preload))
    if options.runner is not None:
        engine = msgspec.structs.replace(engine, runner=options.runner)
    return msgspec.structs.replace(config, engine=engine)


async def serve(host: Host, listener: socket.socket, config: Config, ready_fd: int | None) -> None:
    """Listen, preload, and drain on SIGTERM or Ctrl-C."""
    told_to_stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in STOP_SIGNALS:
        loop.add_signal_handler(number, told_to_stop.set)
    server = await host.listen(listener)
    if ready_fd is not None:
        os.write(ready_fd, b"ready\n")
        os.close(ready_fd)
    preloading = loop.create_task(host.preload(config.engine.preload))
    following = loop.create_task(host.follow_library())
    await told_to_stop.wait()
    following.cancel()
    await host.drain(server, within_s=config.gateway.drain_s)
    await preloading
    ignore_stop_signals(loop)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
