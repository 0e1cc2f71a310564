"""A real engine host with a real worker that runs the echo engine.

`host` is shared by the tests of a file, and no test ends it; `start_host` starts others, in a home
of the test's own.
"""

import signal
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from appliance.catalogue import Library, ModelSpec
from appliance.home import Home
from engines.client import EngineClient
from tests.engines.host_process import HostProcess, connected

CONFIG = """
[engine]
preload = ["echo"]
context_tokens = 400000
num_slots = 4
[gateway]
drain_s = 60
"""


def make_home(root: Path) -> Home:
    """A home with one model, `echo`. `root` is short enough for a socket in it."""
    home = Home(root=root)
    Library(home.models).add(ModelSpec(name="echo", runner="echo"))
    home.config.write_text(CONFIG)
    return home


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostProcess]:
    """A host that listens."""
    host = HostProcess(make_home(tmp_path_factory.mktemp("home")))
    yield host
    host.stop(signal.SIGKILL)


@pytest.fixture
async def client(host: HostProcess) -> AsyncIterator[EngineClient]:
    """A client of `host`, with the model in memory."""
    async with connected(host.home.engine_socket) as client:
        await client.load("echo")
        yield client


@pytest.fixture
def home(tmp_path_factory: pytest.TempPathFactory) -> Home:
    """A home of the test's own."""
    return make_home(tmp_path_factory.mktemp("home"))


@pytest.fixture
def start_host(home: Home) -> Iterator[Callable[[], HostProcess]]:
    """Starts hosts in `home`; those still alive at the end are killed."""
    started: list[HostProcess] = []

    def start() -> HostProcess:
        started.append(HostProcess(home))
        return started[-1]

    yield start
    for host in started:
        host.stop(signal.SIGKILL)
