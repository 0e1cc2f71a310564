"""The README's commands, run as they are printed, against a box that `hisar up` started."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.small_model import PATH

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def block(language: str) -> str:
    """The one code block of that language."""
    (found,) = re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)
    assert isinstance(found, str)
    return found


@pytest.fixture(scope="module")
def port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        free: int = server.getsockname()[1]
    return free


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory, port: int) -> Iterator[dict[str, str]]:
    """The environment of a person whose box is running."""
    home = tmp_path_factory.mktemp("readme") / "ev ğüşİı"
    environment = {**os.environ, "HISAR_HOME": str(home)}
    hisar = [sys.executable, "-m", "appliance"]
    bring = [*hisar, "models", "import", str(PATH), "--name", "smollm2:135m"]
    subprocess.run(bring, env=environment, check=True, capture_output=True)
    with subprocess.Popen(
        [*hisar, "up", "--port", str(port)], env=environment, stdout=subprocess.PIPE
    ) as box:
        assert box.stdout is not None
        assert box.stdout.readline().startswith(b"Hisar is ready")
        environment["PRINTED"] = b"".join(box.stdout.readline() for _ in range(3)).decode()
        yield environment
        box.send_signal(signal.SIGTERM)
        assert box.wait(60) == 0


def answered(command: list[str], environment: dict[str, str]) -> str:
    done = subprocess.run(
        command, env=environment, capture_output=True, encoding="utf-8", check=True
    )
    return done.stdout


def content_of(answer: str) -> str:
    content = json.loads(answer)["choices"][0]["message"]["content"]
    assert isinstance(content, str)
    return content


@pytest.mark.model
def test_the_curl_line_answers(environment: dict[str, str], port: int) -> None:
    line = block("bash").replace("127.0.0.1:8080", f"127.0.0.1:{port}")
    assert content_of(answered(["bash", "-c", line], environment))


@pytest.mark.model
def test_the_curl_line_that_up_prints_answers(environment: dict[str, str]) -> None:
    (line,) = re.findall(r"curl .*", environment["PRINTED"])
    assert '"temperature":0,' in line
    assert content_of(answered(["bash", "-c", line], environment))


@pytest.mark.model
def test_the_openai_script_answers(environment: dict[str, str], port: int) -> None:
    script = block("python").replace("127.0.0.1:8080", f"127.0.0.1:{port}")
    assert answered([sys.executable, "-W", "error", "-c", script], environment).strip()


def test_every_folder_of_the_tree_is_named() -> None:
    for folder in ("appliance", "gateway", "engines", "guardrails", "tui", "ansible", "tests"):
        assert f"`{folder}/`" in README
        assert (ROOT / folder).is_dir()


def test_every_page_it_links_to_exists() -> None:
    for link in re.findall(r"\]\(([^)]+)\)", README):
        assert (ROOT / link).exists()
