"""A real box: host and gateway as processes, the echo engine, real sockets."""

import asyncio
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path

import httpx
import psutil

from appliance.api_keys import KeyGrant, issue
from appliance.audit.record import AuditRecord
from appliance.catalogue import Library, ModelSpec
from appliance.clock import utc_now
from appliance.home import Home
from appliance.identity import Limits, Scope, Tenant
from appliance.secrets import load_secrets
from appliance.store.store import open_store

MODEL = "echo"
CONTEXT_TOKENS = 450_000
PATIENCE_S = 30.0
CONFIG = """\
[aliases]
house = "echo"
gone = "removed-model"

[engine]
preload = ["echo"]

[gateway]
body_timeout_s = 1.5
drain_s = 1.0

[limits]
max_in_flight = 16
max_queued = 64

[guardrails]
denied_words = ["zeytinburnu"]
"""


def wait_until(holds: Callable[[], object], what: str, at_most_s: float = PATIENCE_S) -> None:
    """Poll until `holds()` is true; fail with `what` when that takes too long."""
    deadline = time.monotonic() + at_most_s
    while not holds():
        assert time.monotonic() < deadline, f"waited in vain for: {what}"
        time.sleep(0.01)


class RunningBox:
    """A home, a host and a gateway on a free port."""

    def __init__(self, root: Path, config: str) -> None:
        self.home = Home(root=root)
        root.mkdir(parents=True, exist_ok=True)
        self.home.config.write_text(config)
        library = Library(self.home.models)
        for name in (MODEL, "org/echo-two"):
            library.add(ModelSpec(name=name, runner="echo", context_tokens=CONTEXT_TOKENS))
        self.key = self.make_key("all", (Scope.GENERATE, Scope.ADMIN))
        self.port = free_port()
        self.host: subprocess.Popen[bytes] | None = None
        self.gateway: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def make_key(
        self,
        name: str,
        scopes: tuple[Scope, ...] = (Scope.GENERATE,),
        models: tuple[str, ...] = (),
        limits: Limits | None = None,
    ) -> str:
        """A new API key, as its owner sees it."""
        return asyncio.run(self._make_key(name, scopes, models, limits or Limits()))

    async def _make_key(
        self, name: str, scopes: tuple[Scope, ...], models: tuple[str, ...], limits: Limits
    ) -> str:
        pepper = load_secrets(self.home).pepper
        grant = KeyGrant(tenant_id="t", name=name, scopes=scopes, models=models, limits=limits)
        key, text = issue(grant, pepper, utc_now())
        store = await open_store("", self.home)
        try:
            await store.tenants.ensure(Tenant(id="t", name="Tests"))
            await store.keys.add(key)
        finally:
            await store.close()
        return text

    def revoke(self, key: str) -> None:
        """End a key."""

        async def revoke() -> None:
            store = await open_store("", self.home)
            try:
                await store.keys.revoke(key.split("_")[1], utc_now())
            finally:
                await store.close()

        asyncio.run(revoke())

    def records_of(self, request_id: str) -> tuple[AuditRecord, ...]:
        """What is recorded of a request."""

        async def find() -> tuple[AuditRecord, ...]:
            store = await open_store("", self.home)
            try:
                return await store.requests.find(request_id)
            finally:
                await store.close()

        return asyncio.run(find())

    def start_host(self) -> None:
        self.host = self._spawn("engines", "--home", str(self.home.root))

    def start_gateway(self) -> None:
        where = ("--home", str(self.home.root), "--port", str(self.port))
        self.gateway = self._spawn("gateway", *where)

    def _spawn(self, package: str, *arguments: str) -> subprocess.Popen[bytes]:
        self.home.logs.mkdir(parents=True, exist_ok=True)
        with (self.home.logs / f"{package}.log").open("ab") as log:
            command = [sys.executable, "-m", package, *arguments]
            return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def worker(self) -> psutil.Process:
        """The process that holds the model `echo`."""
        assert self.host is not None
        children = psutil.Process(self.host.pid).children(recursive=True)
        return next(child for child in children if MODEL in child.cmdline())

    def log(self, package: str) -> str:
        """Everything a process has logged so far."""
        return (self.home.logs / f"{package}.log").read_text()

    def wait_until_ready(self) -> None:
        wait_until(self.is_ready, "the box to be ready")

    def is_ready(self) -> bool:
        return self.answers("/health/ready") == 200

    def is_live(self) -> bool:
        return self.answers("/health/live") == 200

    def answers(self, path: str) -> int:
        """The status of a GET, 0 where nobody answers."""
        try:
            return httpx.get(self.url + path, timeout=5).status_code
        except httpx.TransportError:
            return 0

    def client(self, key: str | None = None) -> httpx.Client:
        """An HTTP client with a key."""
        headers = {"authorization": f"Bearer {key or self.key}"}
        return httpx.Client(base_url=self.url, headers=headers, timeout=PATIENCE_S)

    def chat(self, text: str = "hello", **more: object) -> httpx.Response:
        """One chat call with the box's own key."""
        body = {"model": MODEL, "messages": [{"role": "user", "content": text}], **more}
        with self.client() as client:
            return client.post("/v1/chat/completions", json=body)

    def metric(self, name: str, **labels: str) -> float:
        """The sum of a metric's samples that have these labels."""
        wanted = [f'{label}="{value}"' for label, value in labels.items()]
        return sum(
            float(line.rpartition(" ")[2])
            for line in self.metrics().splitlines()
            if line.partition("{")[0].partition(" ")[0] == name
            and all(pair in line for pair in wanted)
        )

    def metrics(self) -> str:
        """All metrics, over a connection of its own, which is quicker made than a client."""
        with closing(HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)) as connection:
            connection.request("GET", "/metrics", headers={"authorization": f"Bearer {self.key}"})
            answer = connection.getresponse()
            assert answer.status == 200
            return answer.read().decode()

    def is_idle(self) -> bool:
        """Nothing runs, here or in the engines."""
        busy = (
            "requests_in_flight",
            "num_requests_running",
            "num_requests_waiting",
            "kv_cache_usage_perc",
        )
        samples = [line.split(" ") for line in self.metrics().splitlines() if line[0] != "#"]
        return not any(
            float(value)
            for name, value in samples
            if name.startswith(tuple(f"hisar_{it}" for it in busy))
        )

    def revive(self) -> None:
        """Start what is not running."""
        if self.host is None or self.host.poll() is not None:
            self.start_host()
        if self.gateway is None or self.gateway.poll() is not None:
            self.start_gateway()
        self.wait_until_ready()

    def stop(self) -> None:
        for process in (self.gateway, self.host):
            if process is not None and process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in (self.gateway, self.host):
            if process is not None:
                try:
                    process.wait(PATIENCE_S)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()


def free_port() -> int:
    """A port nobody listens at."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def running_box(config: str = CONFIG) -> Iterator[RunningBox]:
    """A box that is ready, and is stopped in the end. Its home has a short path, for its socket."""
    with tempfile.TemporaryDirectory(prefix="hisar-") as root:
        box = RunningBox(Path(root), config)
        try:
            box.revive()
            yield box
        finally:
            box.stop()
