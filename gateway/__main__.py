"""`python -m gateway`: the gateway process, from plain arguments to its exit status.

Exit status: 0 after a drain, else the error's own (see `appliance.errors`).
"""

import argparse
import gc
import sys
from pathlib import Path

import msgspec
import uvloop

from appliance import config_file, logs
from appliance.config import Config
from appliance.environment import configured
from appliance.errors import HisarError
from appliance.home import Home
from gateway.app import build_app, open_box
from gateway.server import listen, serve


def parse(arguments: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m gateway", description="The gateway.")
    parser.add_argument("--home", type=Path, required=True, help="folder of the box's state")
    parser.add_argument("--port", type=int, help="where to listen, instead of as configured")
    return parser.parse_args(arguments)


async def run(home: Home, config: Config) -> None:
    """Serve until told to stop."""
    async with open_box(home, config) as box:
        with listen(config.gateway) as listener:
            # What is there now stays; looking through it again would stop every stream for 17 ms.
            gc.freeze()
            await serve(build_app(box), box, listener)


def main(arguments: list[str]) -> int:
    """Run the gateway."""
    options = parse(arguments)
    home = Home(root=options.home)
    try:
        config = _with_port(configured(config_file.load(home.config)), options.port)
        logs.configure(config.logs.level, process="gateway")
        uvloop.run(run(home, config))
    except HisarError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


def _with_port(config: Config, port: int | None) -> Config:
    if port is None:
        return config
    return msgspec.structs.replace(
        config, gateway=msgspec.structs.replace(config.gateway, port=port)
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
