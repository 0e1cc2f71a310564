"""The host's socket: private, owned by one live host, left behind by none."""

import os
import socket
import stat
from pathlib import Path

import pytest

from appliance.errors import MachineError
from engines.listening import HostAlreadyRunningError, listening


def connect(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as caller:
        caller.connect(str(path))


def test_the_socket_is_private_and_gone_afterwards(tmp_path: Path) -> None:
    path = tmp_path / "run" / "engine.sock"
    with listening(path) as listener:
        listener.listen()
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        connect(path)
    assert not path.exists()


def test_a_file_left_by_a_dead_host_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "engine.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    with listening(path) as listener:
        listener.listen()
        connect(path)


def test_a_socket_of_a_live_host_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "engine.sock"
    with listening(path) as listener:
        listener.listen()
        with pytest.raises(HostAlreadyRunningError) as caught, listening(path):
            pass
        assert caught.value.code == "engine.host_running"
        assert str(os.getpid()) in caught.value.message
        connect(path)


def test_the_exit_status_of_a_second_host_is_its_own() -> None:
    assert HostAlreadyRunningError.exit_code == 75
    assert MachineError.exit_code != 75


def test_a_file_that_is_no_socket_is_not_deleted(tmp_path: Path) -> None:
    path = tmp_path / "engine.sock"
    path.write_text("mine")
    with pytest.raises(MachineError, match="no socket"), listening(path):
        pass
    assert path.read_text() == "mine"


def test_a_path_too_long_for_a_socket_is_refused_in_words(tmp_path: Path) -> None:
    with pytest.raises(MachineError) as caught, listening(tmp_path / ("x" * 120)):
        pass
    assert caught.value.code == "engine.socket_unusable"


def test_a_folder_of_another_user_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = tmp_path.stat().st_uid
    monkeypatch.setattr(os, "getuid", lambda: owner + 1)
    with (
        pytest.raises(MachineError, match=f"belongs to user {owner}"),
        listening(tmp_path / "engine.sock"),
    ):
        pass
