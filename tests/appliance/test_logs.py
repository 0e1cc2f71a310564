"""Log lines are JSON, carry the request's id, and never what somebody wrote."""

import io
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from appliance import logs
from appliance.errors import StoreError

SECRET = "the patient's name is Ayşe"


@pytest.fixture(autouse=True)
def root_logger_as_before() -> Iterator[None]:
    root = logging.getLogger()
    before = (list(root.handlers), root.level, logging.raiseExceptions)
    # The root's handlers belong to pytest: `configure` must not close them.
    root.handlers = []
    yield
    for handler in root.handlers:
        handler.close()
    root.handlers, root.level, logging.raiseExceptions = before
    logging.captureWarnings(capture=False)


@pytest.fixture
def stream() -> io.StringIO:
    stream = io.StringIO()
    logs.configure("info", "gateway", stream)
    return stream


def fail_over_a_secret() -> None:
    try:
        int(SECRET)
    except ValueError as error:
        raise StoreError("store.failed", "the database refused") from error


def lines_in(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_line_says_when_how_bad_who_and_what(stream: io.StringIO) -> None:
    logging.getLogger("gateway.app").info("ready", extra={"port": 8080, "code": "x.y"})
    (line,) = lines_in(stream)
    assert line.pop("time").endswith("+00:00")
    assert line == {
        "level": "info",
        "process": "gateway",
        "logger": "gateway.app",
        "message": "ready",
        "port": 8080,
        "code": "x.y",
    }


def test_the_request_id_is_on_every_line_of_a_request(stream: io.StringIO) -> None:
    token = logs.request_id.set("req-1")
    logging.getLogger("gateway").warning("slow")
    logs.request_id.reset(token)
    logging.getLogger("gateway").warning("calm")
    assert [line.get("request_id") for line in lines_in(stream)] == ["req-1", None]


def test_an_exception_is_told_without_its_message(stream: io.StringIO) -> None:
    try:
        fail_over_a_secret()
    except StoreError:
        logging.getLogger("gateway").exception("not recorded")
    (line,) = lines_in(stream)
    assert SECRET not in stream.getvalue()
    assert line["exception"]["code"] == "store.failed"
    assert line["exception"]["cause"]["type"] == "builtins.ValueError"
    assert "test_logs.py" in line["exception"]["cause"]["where"][0]


def test_text_in_extra_fields_is_left_out_unless_it_names_something(stream: io.StringIO) -> None:
    logging.getLogger("gateway").info("asked", extra={"prompt": SECRET, "model": "m", "num": 3})
    (line,) = lines_in(stream)
    assert (line["model"], line["num"], "prompt" in line) == ("m", 3, False)


def test_other_libraries_are_heard_from_warning_on_and_in_one_short_line(
    stream: io.StringIO,
) -> None:
    logging.getLogger("httpx").info("GET http://x/%s", SECRET)
    logging.getLogger("asyncio").error("Task exception was never retrieved\nfuture: %r", SECRET)
    (line,) = lines_in(stream)
    assert line["message"] == "Task exception was never retrieved"


def test_any_character_makes_one_valid_line(stream: io.StringIO) -> None:
    logging.getLogger("gateway").info("odd \ud800 \n \0 ğ %s", "\udfff")
    assert len(stream.getvalue().splitlines()) == 1
    assert "ğ" in lines_in(stream)[0]["message"]


def test_levels_below_the_chosen_one_are_left_out(stream: io.StringIO) -> None:
    logging.getLogger("gateway").debug("detail")
    assert lines_in(stream) == []


def test_a_log_file_is_appended_to_and_found_again_after_rotation(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "gateway.log"
    logs.configure("info", "gateway", path)
    logging.getLogger("gateway").info("one")
    path.rename(tmp_path / "old.log")
    logging.getLogger("gateway").info("two")
    assert "two" in path.read_text()
    assert "two" not in (tmp_path / "old.log").read_text()
