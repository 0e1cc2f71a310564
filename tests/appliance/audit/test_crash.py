"""What was acknowledged is in the database after `kill -9`, and what was open is closed."""

import asyncio
import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

from appliance.audit.record import Completed, Received
from appliance.home import Home
from appliance.store.store import open_store

_GATEWAY = """
import asyncio, pathlib, sys
from appliance.audit.record import Completed, Outcome, Received
from appliance.audit.writer import GroupCommitLog
from appliance.clock import utc_now
from appliance.home import Home
from appliance.metrics import Metrics
from appliance.store.store import open_store

async def serve(log, worker):
    for number in range(1_000_000):
        name = f"{worker}-{number}"
        await log.append(Received(request_id=name, at=utc_now(), tenant_id="t",
                                  principal_id="p", route="/", model="m"))
        print(name, flush=True)
        log.append_soon(Completed(request_id=name, at=utc_now(), outcome=Outcome.OK))

async def main():
    store = await open_store("", Home(root=pathlib.Path(sys.argv[1])))
    log = GroupCommitLog(store.requests, Metrics(), utc_now)
    await asyncio.gather(*(serve(log, worker) for worker in range(8)))

asyncio.run(main())
"""


async def test_no_acknowledged_request_is_without_a_record_after_a_kill(tmp_path: Path) -> None:
    home = Home(root=tmp_path)
    acknowledged = await asyncio.to_thread(_serve_and_be_killed, home, 300)
    store = await open_store("", home)
    num_lost = await store.requests.close_lost(datetime.now(UTC))
    # Each of the 8 workers may have had one request open, and one completion on its way.
    assert 1 <= num_lost <= 16
    for request_id in acknowledged:
        records = await store.requests.find(request_id)
        assert [type(record) for record in records] == [Received, Completed]
    await store.close()


def _serve_and_be_killed(home: Home, num_requests: int) -> list[str]:
    """The ids that a process acknowledged before it was killed."""
    with subprocess.Popen(
        [sys.executable, "-c", _GATEWAY, str(home.root)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    ) as process:
        assert process.stdout is not None
        acknowledged = [process.stdout.readline().strip() for _ in range(num_requests)]
        process.kill()
        # Only whole lines: the last one may have been cut.
        rest = process.stdout.read()
    return acknowledged + rest.split("\n")[:-1]
