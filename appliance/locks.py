"""A file that one process at a time may hold; the system lets go of it when its holder dies."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class HeldElsewhereError(Exception):
    """Another process holds the lock. `pid` is that process, 0 where it is not known."""

    def __init__(self, pid: int) -> None:
        super().__init__(f"held by process {pid}")
        self.pid = pid


@contextmanager
def hold(path: Path) -> Iterator[None]:
    """Hold `path` for the length of the block. Raises HeldElsewhereError at once, never waits."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            pid = file.read(32)
            raise HeldElsewhereError(int(pid) if pid.isdigit() else 0) from None
        file.truncate(0)
        file.write(str(os.getpid()).encode())
        file.flush()
        try:
            yield
        finally:
            file.truncate(0)
