"""How the processes of a box are kept alive, and how they are let go.

    started in the order given; one that ends is started again, after a pause that doubles
    stopped in reverse order: SIGTERM, and SIGKILL when its time is over
    told to stop twice: SIGTERM once more, which means hurry, and little time is left
    one that says by its exit code that starting again cannot help ends the whole

Each runs in a session of its own, so that Ctrl-C reaches the supervisor alone and the order of
stopping is kept. On Linux they are told to end when the supervisor dies, however it dies.
"""

import asyncio
import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from msgspec import Struct

from appliance.errors import CatalogueError, ConfigError, MachineError, StoreError, UsageError

_FIRST_PAUSE_S: Final = 0.5
_LONGEST_PAUSE_S: Final = 30.0
_HURRIED_S: Final = 5.0
# After so long a life a crash is a new story, and the pause starts small again.
_STABLE_S: Final = 60.0
_MAX_LOG_BYTES: Final = 16 * 1024 * 1024
_PR_SET_PDEATHSIG: Final = 1
_FINAL: Final = {
    error.exit_code for error in (CatalogueError, ConfigError, MachineError, StoreError, UsageError)
}


class Program(Struct, frozen=True, kw_only=True):
    """A process to be kept alive. What it prints is appended to `log`."""

    name: str
    command: tuple[str, ...]
    log: Path
    stop_within_s: float


class GaveUpError(Exception):
    """A program ended in a way that starting it again cannot mend. `said`: all it printed."""

    def __init__(self, program: Program, exit_code: int, said: str) -> None:
        super().__init__(f"{program.name} ended with exit code {exit_code}")
        self.program = program
        self.exit_code = exit_code
        self.said = said


class Stop:
    """Whether the box is to stop: told once in good order, told twice in a hurry."""

    def __init__(self) -> None:
        self.wanted = asyncio.Event()
        self.hurried = asyncio.Event()

    def tell(self) -> None:
        """To be called by every signal to stop."""
        (self.hurried if self.wanted.is_set() else self.wanted).set()


async def supervise(programs: Sequence[Program], stop: Stop, tell: Callable[[str], None]) -> None:
    """Keep the programs alive until told to stop; then let them go, the last one first.

    Raises GaveUpError, with all of them let go.
    """
    keepers = [_Keeper(program, tell) for program in programs]
    lives = [asyncio.create_task(keeper.live()) for keeper in keepers]
    stopped = asyncio.create_task(stop.wanted.wait())
    try:
        await asyncio.wait([*lives, stopped], return_when=asyncio.FIRST_COMPLETED)
        for keeper in reversed(keepers):
            await keeper.let_go(stop.hurried)
        await asyncio.gather(*lives)
    finally:
        stopped.cancel()
        for keeper in keepers:
            keeper.kill()


class _Keeper:
    """One program's life: the process it is now, and whether it is still wanted."""

    def __init__(self, program: Program, tell: Callable[[str], None]) -> None:
        self._program = program
        self._tell = tell
        self._process: asyncio.subprocess.Process | None = None
        self._unwanted = asyncio.Event()

    async def live(self) -> None:
        pause_s = _FIRST_PAUSE_S
        while not self._unwanted.is_set():
            started_at = time.monotonic()
            # The log also holds what earlier runs have printed.
            log_begin = _prepare_log(self._program.log)
            self._process = await _start(self._program)
            exit_code = await self._process.wait()
            if self._unwanted.is_set():
                return
            if exit_code in _FINAL:
                said = _read_from(self._program.log, log_begin)
                raise GaveUpError(self._program, exit_code, said)
            if time.monotonic() - started_at > _STABLE_S:
                pause_s = _FIRST_PAUSE_S
            self._tell(f"{self._program.name} {_ending(exit_code)}; starting it again")
            with suppress(TimeoutError):
                await asyncio.wait_for(self._unwanted.wait(), pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    async def let_go(self, hurried: asyncio.Event) -> None:
        self._unwanted.set()
        process = self._process
        if process is None or process.returncode is not None:
            return
        process.terminate()
        ended = asyncio.create_task(process.wait())
        in_a_hurry = asyncio.create_task(hurried.wait())
        await asyncio.wait(
            {ended, in_a_hurry},
            timeout=self._program.stop_within_s,
            return_when=asyncio.FIRST_COMPLETED,
        )
        in_a_hurry.cancel()
        if not ended.done() and hurried.is_set():
            process.terminate()
            await asyncio.wait({ended}, timeout=_HURRIED_S)
        if not ended.done():
            self._tell(f"{self._program.name} did not end in time and was killed")
            self.kill()
        await ended

    def kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.kill()


async def _start(program: Program) -> asyncio.subprocess.Process:
    with program.log.open("ab") as log:
        return await asyncio.create_subprocess_exec(
            *program.command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            preexec_fn=_end_with_parent(),
        )


def _prepare_log(log: Path) -> int:
    """Make its folder, put a long one aside, and say how many bytes it holds."""
    log.parent.mkdir(parents=True, exist_ok=True)
    if not log.exists():
        return 0
    num_bytes = log.stat().st_size
    if num_bytes <= _MAX_LOG_BYTES:
        return num_bytes
    log.replace(log.with_suffix(log.suffix + ".1"))
    return 0


def _read_from(log: Path, begin: int) -> str:
    with log.open("rb") as file:
        file.seek(begin)
        return file.read().decode(errors="replace")


def _end_with_parent() -> Callable[[], None] | None:
    """What a child does before it becomes the program: ask Linux for SIGTERM at our death."""
    if sys.platform != "linux":
        return None
    prctl, parent = ctypes.CDLL(None).prctl, os.getpid()

    def ask() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # it died before we asked
            os.kill(os.getpid(), signal.SIGTERM)

    return ask


def _ending(exit_code: int) -> str:
    if exit_code >= 0:
        return f"ended with exit code {exit_code}"
    return f"was ended by {signal.Signals(-exit_code).name}"
