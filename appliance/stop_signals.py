"""The signals that tell a process to stop, at its very end."""

import asyncio
import signal
from typing import Final

STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


def ignore_stop_signals(loop: asyncio.AbstractEventLoop) -> None:
    """Let no later signal end a process that is on its way out with a status of its own.

    A loop that closes takes its handlers with it, and a second SIGTERM then kills at once.
    """
    for number in STOP_SIGNALS:
        loop.remove_signal_handler(number)
        signal.signal(number, signal.SIG_IGN)
