"""The socket the host listens on: private to its user, and owned by one live host at a time."""

import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from appliance.errors import MachineError
from appliance.locks import HeldElsewhereError, hold


class HostAlreadyRunningError(MachineError):
    """Another live host has the socket; it may be about to leave (sysexits EX_TEMPFAIL)."""

    exit_code = 75


@contextmanager
def listening(path: Path) -> Iterator[socket.socket]:
    """A listening socket, mode 0600, whose file is gone after the block.

    A file left by a dead host is replaced: whoever holds the lock beside it is the live one.
    Raises HostAlreadyRunningError `engine.host_running`, MachineError `engine.socket_unusable`.
    """
    _prepare(path)
    try:
        with hold(path.with_name(path.name + ".lock")), _bound(path) as listener:
            yield listener
    except HeldElsewhereError as error:
        raise HostAlreadyRunningError(
            "engine.host_running",
            f"another engine host (process {error.pid}) listens on {path}",
            hint="stop it first, or choose another home or socket",
        ) from None


def _prepare(path: Path) -> None:
    """Make the folder of the socket, and see that nobody else can put anything in our way."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        owner = path.parent.stat().st_uid
    except OSError as error:
        raise _unusable(path, str(error.strerror)) from None
    if owner != os.getuid():
        raise _unusable(path, f"its folder belongs to user {owner}")
    if os.path.lexists(path) and not stat.S_ISSOCK(path.lstat().st_mode):
        raise _unusable(path, "there is a file of that name that is no socket")


@contextmanager
def _bound(path: Path) -> Iterator[socket.socket]:
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        before = os.umask(0o177)
        try:
            listener.bind(os.fspath(path))
        except OSError as error:
            raise _unusable(path, str(error.strerror or error)) from None
        finally:
            os.umask(before)
        try:
            yield listener
        finally:
            path.unlink(missing_ok=True)


def _unusable(path: Path, reason: str) -> MachineError:
    return MachineError(
        "engine.socket_unusable",
        f"the engine host cannot listen on {path}: {reason}",
        hint="choose another home or socket",
    )
