"""What the machine must offer before the box starts: a folder to write to, a free port."""

import errno
import socket
import tempfile
from pathlib import Path

from appliance.errors import MachineError


def require_writable(folder: Path) -> None:
    """Make the folder, private to its owner, and write to it. Raises `home.unwritable`."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise MachineError(
            "home.unwritable",
            f"{folder} cannot be written to: {error.strerror}",
            hint="run as the owner of that folder, or name another one with HISAR_HOME",
        ) from error


def require_free_port(host: str, port: int) -> None:
    """See that nobody listens there. Raises MachineError `machine.port_taken`, naming who does."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host.strip("[]"), port))
        except OSError as error:
            raise _port_error(host, port, error) from error


def _port_error(host: str, port: int, error: OSError) -> MachineError:
    if error.errno == errno.EADDRINUSE:
        return MachineError(
            "machine.port_taken",
            f"port {port} on {host} is taken by {_holder(port)}",
            hint=f"stop it, or choose another port: `hisar up --port {port + 1}`",
        )
    if error.errno == errno.EACCES:
        return MachineError(
            "machine.port_unusable",
            f"port {port} on {host} may not be opened by this user",
            hint="choose a port from 1024 on: `hisar up --port 8080`",
        )
    return MachineError(
        "machine.port_unusable",
        f"port {port} on {host} cannot be opened: {error.strerror or error}",
        hint="look at gateway.host in the configuration",
    )


def _holder(port: int) -> str:
    """Who listens on a port, as far as this user may know."""
    import psutil

    try:
        for connection in psutil.net_connections("tcp"):
            if (
                connection.status == psutil.CONN_LISTEN
                and connection.laddr
                and connection.laddr.port == port
            ):
                name = psutil.Process(connection.pid).name() if connection.pid else ""
                return f"process {connection.pid} ({name})" if name else "another process"
    except psutil.Error:
        pass
    return "another process"
