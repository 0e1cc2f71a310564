"""A worker as an operating system process: how it is started, spoken to and ended.

The command line is `python -m engines.worker --fd N ...` (see `arguments`). `--fd` is the worker's
end of a socket pair; when the host's end closes, for whatever reason, the worker leaves. A worker
says `Ready` once, or `Refused` with `call_id` 0 and leaves where its model can never be loaded.
"""

import asyncio
import contextlib
import ctypes
import functools
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from appliance.environment import worker_environment
from engines.channel import Channel
from engines.protocol import FrameError, FromWorker, ToWorker

# -P: a folder named like one of ours, where the operator happens to stand, is not imported.
COMMAND: Final = (sys.executable, "-P", "-m", "engines.worker")

_PR_SET_PDEATHSIG: Final = 1

_decoder: Final = msgspec.msgpack.Decoder(FromWorker)


class WorkerOptions(Struct, frozen=True, kw_only=True):
    """What a worker is told at its start. 0 means: choose by the machine and the model."""

    model: str
    runner: str
    path: Path
    context_tokens: int = 0
    num_slots: int = 0
    num_threads: int = 0
    step_tokens: int = 0
    kv_room_bytes: int = 0
    prefix_bytes: int = 0
    log_level: str = "info"
    speculation: bool = False
    deterministic: bool = False


def arguments(options: WorkerOptions, fd: int) -> tuple[str, ...]:
    """What follows the command on a worker's command line."""
    named: dict[str, object] = {
        "--fd": fd,
        "--runner": options.runner,
        "--model": options.model,
        "--path": options.path,
        "--context-tokens": options.context_tokens,
        "--num-slots": options.num_slots,
        "--num-threads": options.num_threads,
        "--step-tokens": options.step_tokens,
        "--kv-room-bytes": options.kv_room_bytes,
        "--prefix-bytes": options.prefix_bytes,
        "--log-level": options.log_level,
        "--speculation": int(options.speculation),
        "--deterministic": int(options.deterministic),
    }
    return tuple(str(word) for pair in named.items() for word in pair)


def _die_with_parent() -> Callable[[], object] | None:
    """What a new process does before anything else, where the system offers it (prctl(2)).

    A worker that is busy loading does not look at its socket; the kernel ends it all the same.
    """
    if sys.platform != "linux":
        return None
    return functools.partial(ctypes.CDLL(None).prctl, _PR_SET_PDEATHSIG, signal.SIGKILL.value)


class WorkerProcess:
    """One worker and the channel to it. `closed` is done when either side has hung up."""

    def __init__(
        self,
        *,
        on_message: Callable[[FromWorker], None],
        on_broken: Callable[[FrameError], None],
        on_closed: Callable[[], None],
    ) -> None:
        self._channel = Channel(
            _decoder, on_message=on_message, on_broken=on_broken, on_closed=on_closed
        )
        self._process: asyncio.subprocess.Process | None = None
        self.closed = self._channel.closed

    @property
    def pid(self) -> int:
        """The process id; 0 before it is started."""
        return 0 if self._process is None else self._process.pid

    @property
    def unsent_bytes(self) -> int:
        """What the worker has not taken yet."""
        return self._channel.unsent_bytes

    async def start(self, options: WorkerOptions, command: tuple[str, ...]) -> None:
        """Start the process. Raises OSError where the system cannot."""
        ours, theirs = socket.socketpair()
        with theirs:
            await asyncio.get_running_loop().create_unix_connection(
                lambda: self._channel, sock=ours
            )
            self._process = await asyncio.create_subprocess_exec(
                *command,
                *arguments(options, theirs.fileno()),
                stdin=asyncio.subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                env=worker_environment(deterministic=options.deterministic),
                preexec_fn=_die_with_parent(),
                # Ctrl-C in a terminal reaches the host alone, which then drains.
                start_new_session=True,
            )

    def send(self, message: ToWorker) -> None:
        """Put a message on its way. Raises FrameError."""
        self._channel.send(message)

    def pause(self) -> None:
        """Let its events wait in the worker, which stops computing when its socket is full."""
        self._channel.pause_reading()

    def resume(self) -> None:
        """Take its events again."""
        self._channel.resume_reading()

    async def end(self, *, grace_s: float) -> int:
        """Make the worker leave, by force after `grace_s`; its exit status, 0 if never started."""
        self._channel.close()
        if self._process is None:
            return 0
        with contextlib.suppress(asyncio.TimeoutError):
            return await asyncio.wait_for(self._process.wait(), grace_s)
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        return await self._process.wait()
