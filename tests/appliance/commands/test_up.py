"""`hisar up` and the verbs that speak to a running box, with the weightless model."""

import json
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.appliance.commands.conftest import Box, Hisar, free_port
from tests.appliance.sources.gguf import tiny_gguf

_DEADLINE_S = 60.0


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def children_of(process: subprocess.Popen[str]) -> list[psutil.Process]:
    return psutil.Process(process.pid).children(recursive=True)


def is_over(process: psutil.Process) -> bool:
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


def module_of(process: psutil.Process) -> str:
    command = process.cmdline()
    return command[command.index("-m") + 1] if "-m" in command else ""


@pytest.fixture
def own_box(hisar: Hisar) -> Iterator[Box]:
    """A box that a test may ill-treat."""
    box = Box(hisar)
    yield box
    if box.process.poll() is None:
        box.stop()
    else:
        box.process.communicate()


def test_the_ready_line_says_where_box_and_key_are(box: Box) -> None:
    assert box.ready == {
        "event": "ready",
        "base_url": f"http://127.0.0.1:{box.port}/v1",
        "key_file": str(box.hisar.home / "keys" / "local.key"),
        "models": ["echo"],
    }
    assert Path(box.ready["key_file"]).stat().st_mode & 0o777 == 0o600


def test_run_answers_once(box: Box) -> None:
    done = box.hisar("run", "echo", "merhaba", "dünya")
    assert (done.returncode, done.stdout) == (0, "merhaba dünya\n")


@pytest.mark.parametrize(
    ("arguments", "stdin", "answer"),
    [
        (["-"], "ğüşİı\n", "ğüşİı\n"),
        ([], "ğüşİı\n", "ğüşİı\n"),
        (["özetle:"], "uzun metin\n", "özetle:\n\nuzun metin\n"),
    ],
)
def test_run_reads_what_is_piped_in(
    box: Box, arguments: list[str], stdin: str, answer: str
) -> None:
    assert box.hisar("run", "echo", *arguments, stdin=stdin).stdout == answer


def test_run_prints_json(box: Box) -> None:
    done = box.hisar.json("run", "echo", "selam")
    assert done["text"] == "selam"
    assert done["model"] == "echo"
    assert done["finish_reason"] == "stop"
    assert done["usage"]["completion_tokens"] > 0


def test_run_without_a_question_is_a_usage_error(box: Box) -> None:
    assert box.hisar("run", "echo").returncode == 2


def test_run_of_an_unknown_model_says_so(box: Box) -> None:
    done = box.hisar("run", "yok", "selam")
    assert done.returncode == 66
    assert "yok" in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["echo", "selam", "--max-tokens", "9" * 30],
        ["echo", "selam", "--seed", "9" * 30],
        ["echo", "selam \udcff"],
        ["echo\udcff", "selam"],
    ],
)
def test_the_callers_own_faults_are_not_the_engines(box: Box, arguments: list[str]) -> None:
    done = box.hisar("run", *arguments)
    assert done.returncode in {2, 66}
    assert done.stderr.startswith("error: ")
    assert "Traceback" not in done.stderr


def test_a_wrong_key_is_refused(box: Box) -> None:
    done = box.hisar("run", "echo", "selam", HISAR_API_KEY="wrong")
    assert done.returncode == 2
    assert "error: " in done.stderr
    assert "Traceback" not in done.stderr


def test_chat_answers_line_by_line_without_a_terminal(box: Box) -> None:
    done = box.hisar("chat", stdin='bir\n"""iki\nüç"""\n/exit\nsonra\n')
    assert done.returncode == 0
    assert done.stdout.splitlines()[0] == "bir"
    assert "üç" in done.stdout
    assert "sonra" not in done.stdout


def test_status_shows_the_running_box(box: Box) -> None:
    standing = box.hisar.json("status")
    assert standing["running"]
    assert standing["ready"]
    assert standing["base_url"] == f"http://127.0.0.1:{box.port}"
    assert standing["available_models"] == ["echo"]
    assert [model["name"] for model in standing["loaded_models"]] == ["echo"]
    assert box.hisar("status").returncode == 0


def test_a_model_that_cannot_be_loaded_is_told_with_the_reason_until_it_is_removed(
    box: Box, tmp_path: Path
) -> None:
    (tmp_path / "odd.gguf").write_bytes(tiny_gguf())
    box.hisar("models", "import", str(tmp_path / "odd.gguf"))
    done = box.hisar("run", "odd", "selam")
    assert done.returncode == 66
    assert "odd.gguf" in done.stderr
    assert "[model.file_refused]" in done.stderr
    assert str(box.hisar.home) not in done.stderr
    standing = box.hisar.json("status")
    assert [model["name"] for model in standing["loaded_models"]] == ["echo"]
    assert standing["unready_models"] == [
        {"name": "odd", "state": "failed", "reason": "model.file_refused"}
    ]
    said = box.hisar("status").stdout
    assert "odd is failed, model.file_refused: The engine's library refuses" in said
    states = {model["name"]: model["state"] for model in box.hisar.json("models", "list")["models"]}
    assert states == {"echo": "ready", "odd": "failed model.file_refused"}
    box.hisar("models", "rm", "odd")
    until(lambda: box.hisar.json("status")["unready_models"] == [])


def test_doctor_finds_nothing_wrong_with_it(box: Box) -> None:
    found = box.hisar.json("doctor")
    assert found["ok"], found
    assert all(check.keys() == {"name", "ok", "found", "hint"} for check in found["checks"])
    names = {check["name"] for check in found["checks"]}
    assert names >= {"config", "python", "disk", "memory", "store", "models", "port", "gateway"}


def test_a_second_box_on_one_home_is_refused(box: Box) -> None:
    done = box.hisar("up", "--port", str(free_port()), "--model", "echo")
    assert done.returncode == 69
    assert "home.in_use" in done.stderr
    assert str(box.process.pid) in done.stderr


def test_a_taken_port_is_one_clear_line(hisar: Hisar) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        done = hisar("up", "--model", "echo", "--port", str(port))
    assert done.returncode == 69
    assert "machine.port_taken" in done.stderr
    assert f"--port {port + 1}" in done.stderr


def test_a_model_that_nobody_knows_is_said_before_anything_starts(hisar: Hisar) -> None:
    done = hisar("up", "--port", str(free_port()), "--model", "yok")
    assert done.returncode == 66
    assert "yok" in done.stderr


def test_without_a_box_the_verbs_say_how_to_start_one(hisar: Hisar) -> None:
    done = hisar("run", "echo", "selam")
    assert done.returncode == 2
    assert "hisar up" in done.stderr
    assert not hisar.json("status")["running"]
    assert hisar("status").returncode == 1


def test_a_wrong_configuration_is_found_by_up_and_doctor(hisar: Hisar) -> None:
    hisar.home.mkdir()
    (hisar.home / "config.toml").write_text("[gateway]\nprot = 1\n")
    done = hisar("up")
    assert done.returncode == 78
    assert "port" in done.stderr
    found = hisar("doctor", "--json")
    assert found.returncode == 1
    config = json.loads(found.stdout)["checks"][0]
    assert (config["name"], config["ok"]) == ("config", False)


def test_told_to_stop_the_box_leaves_nothing_behind(own_box: Box) -> None:
    children = children_of(own_box.process)
    assert {"engines", "gateway"} <= {module_of(child) for child in children}
    exit_code, errors = own_box.stop()
    assert (exit_code, errors) == (0, "")
    assert all(is_over(child) for child in children)
    assert not (own_box.hisar.home / "run" / "base_url").exists()


def test_a_killed_gateway_comes_back_to_the_same_engines(own_box: Box) -> None:
    children = {module_of(child): child for child in children_of(own_box.process)}
    children["gateway"].send_signal(signal.SIGKILL)
    until(lambda: is_over(children["gateway"]))
    until(lambda: own_box.hisar("run", "echo", "selam").stdout == "selam\n")
    assert children["engines"].is_running()
    exit_code, errors = own_box.stop()
    assert exit_code == 0
    assert "gateway was ended by SIGKILL; starting it again" in errors


def test_the_children_of_a_killed_box_leave_and_the_next_one_starts(own_box: Box) -> None:
    children = children_of(own_box.process)
    own_box.process.kill()
    until(lambda: all(is_over(child) for child in children))
    again = Box(own_box.hisar)
    assert again.ready["event"] == "ready"
    assert again.stop()[0] == 0


def test_a_program_that_cannot_start_ends_the_box_with_its_words_and_exit_code(
    hisar: Hisar,
) -> None:
    hisar("models", "import", "echo:")
    hisar.home.joinpath("hisar.db").write_bytes(b"not a database" * 100)
    hisar.home.joinpath("keys").mkdir()
    hisar.home.joinpath("keys", "local.key").write_text("hsr_x")
    done = hisar("up", "--model", "echo", "--port", str(free_port()))
    assert done.returncode == 74
    assert "box.not_started" in done.stderr
    assert "store." in done.stderr
    again = hisar("up", "--model", "echo", "--port", str(free_port()))
    assert again.stderr.count("store.") == done.stderr.count("store.")
    assert str(hisar.home / "logs" / "gateway.log") in done.stderr


def test_a_model_to_load_may_be_named_by_its_alias(hisar: Hisar) -> None:
    hisar.home.mkdir()
    (hisar.home / "config.toml").write_text(
        '[aliases]\n"yankı" = "echo"\n[engine]\npreload = ["yankı"]\n',
        encoding="utf-8",
    )
    with hisar.start("up", "--port", str(free_port()), "--json") as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["models"] == ["echo"]
        assert hisar("run", "yankı", "selam").stdout == "selam\n"
        process.terminate()
        process.communicate(timeout=60)


def test_a_box_that_goes_by_another_name_only_is_still_found(hisar: Hisar) -> None:
    hisar.home.mkdir()
    (hisar.home / "config.toml").write_text('[gateway]\nallowed_hosts = ["box.example"]\n')
    box = Box(hisar)
    try:
        assert hisar("run", "echo", "selam").stdout == "selam\n"
    finally:
        box.stop()
