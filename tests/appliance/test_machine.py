"""What the machine refuses is said in one line: what, where, what to do."""

import os
import socket
from pathlib import Path

import pytest

from appliance.errors import MachineError
from appliance.machine import require_free_port, require_writable


def test_a_folder_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    folder = tmp_path / "yeni ğüşİı" / "home"
    require_writable(folder)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert list(folder.iterdir()) == []


def test_a_folder_below_a_file_cannot_be_written_to(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(MachineError) as refused:
        require_writable(tmp_path / "file" / "home")
    assert refused.value.code == "home.unwritable"
    assert str(tmp_path / "file" / "home") in refused.value.message
    assert "HISAR_HOME" in refused.value.hint


def test_a_port_that_is_taken_is_named_with_its_holder() -> None:
    """ollama/ollama#707: a bare bind error."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(MachineError) as refused:
            require_free_port("127.0.0.1", port)
    assert refused.value.code == "machine.port_taken"
    assert str(port) in refused.value.message
    assert f"process {os.getpid()}" in refused.value.message
    assert "--port" in refused.value.hint
    require_free_port("127.0.0.1", port)


def test_an_address_that_is_not_this_machine_s_is_said_so() -> None:
    with pytest.raises(MachineError) as refused:
        require_free_port("192.0.2.1", 8080)
    assert refused.value.code == "machine.port_unusable"
    assert "192.0.2.1" in refused.value.message


def test_a_host_that_cannot_be_resolved_is_said_in_words() -> None:
    with pytest.raises(MachineError) as refused:
        require_free_port("fe80::1%no-such-link", 8080)
    assert refused.value.code == "machine.port_unusable"
    assert "Unknown error" not in refused.value.message
