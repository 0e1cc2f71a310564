"""A process on its way out keeps its own exit status, however often it is told to go."""

import subprocess
import sys

PROGRAM = """
import asyncio, signal, sys
import uvloop
from appliance.stop_signals import STOP_SIGNALS, ignore_stop_signals

async def main():
    loop = asyncio.get_running_loop()
    told = asyncio.Event()
    for number in STOP_SIGNALS:
        loop.add_signal_handler(number, told.set)
    signal.raise_signal(signal.SIGTERM)
    await told.wait()
    ignore_stop_signals(loop)

uvloop.run(main())
for number in STOP_SIGNALS:
    signal.raise_signal(number)
sys.exit(3)
"""


def test_signals_after_the_end_change_nothing() -> None:
    assert subprocess.run([sys.executable, "-c", PROGRAM], check=False).returncode == 3
