"""A model that is here and cannot be loaded, and one that is removed while the box runs."""

import tempfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from appliance.catalogue import Library, ModelSpec
from appliance.pull import Order, pull
from tests.appliance.sources.gguf import tiny_gguf
from tests.walk.running_box import RunningBox, wait_until

ODD = "odd"
MESSAGES = [{"role": "user", "content": "hello"}]


@pytest.fixture(scope="module")
def odd_box(box: RunningBox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBox]:
    """The box with a GGUF file whose header is sound and that llama.cpp refuses."""
    library = Library(box.home.models)
    bring_odd(library, tmp_path_factory.mktemp("odd"))
    yield box
    library.remove(ODD)
    wait_until(lambda: not box.metric("hisar_model_state", model=ODD), "the model to be forgotten")


def bring_odd(library: Library, folder: Path) -> None:
    path = folder / "odd.gguf"
    path.write_bytes(tiny_gguf())
    pull(library, Order(name=ODD, source=f"file:{path}"))


def ask(box: RunningBox, route: str, **body: object) -> httpx.Response:
    with box.client() as client:
        return client.post(route, json={"model": ODD, **body})


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("route", "body"),
    [
        ("/v1/chat/completions", {"messages": MESSAGES}),
        ("/v1/completions", {"prompt": "hello"}),
        ("/v1/responses", {"input": "hello"}),
    ],
)
def test_calls_of_a_refused_file_are_503_with_the_reason(
    odd_box: RunningBox, route: str, body: dict[str, object], stream: bool
) -> None:
    answer = ask(odd_box, route, stream=stream, **body)
    assert answer.status_code == 503
    assert answer.headers["x-should-retry"] == "false"
    error = answer.json()["error"]
    assert (error["code"], error["type"]) == ("model.file_refused", "server_error")
    assert "odd.gguf" in error["message"]
    assert "context_length" in error["message"]
    assert str(odd_box.home.root) not in answer.text


@pytest.mark.parametrize(
    ("route", "body"), [("/v1/embeddings", {"input": "hello"}), ("/tokenize", {"prompt": "hello"})]
)
def test_so_are_questions(odd_box: RunningBox, route: str, body: dict[str, object]) -> None:
    answer = ask(odd_box, route, **body)
    assert answer.status_code == 503
    assert answer.json()["error"]["code"] == "model.file_refused"


def test_anthropics_clients_are_told_in_their_way(odd_box: RunningBox) -> None:
    answer = ask(odd_box, "/v1/messages", max_tokens=9, messages=MESSAGES)
    assert answer.status_code == 529
    assert answer.headers["x-should-retry"] == "false"
    assert answer.json()["error"]["type"] == "overloaded_error"


def test_it_is_shown_as_failed_and_the_box_stays_ready(odd_box: RunningBox) -> None:
    assert ask(odd_box, "/v1/chat/completions", messages=MESSAGES).status_code == 503
    labels = {"model": ODD, "state": "failed", "reason": "model.file_refused"}
    assert odd_box.metric("hisar_model_state", **labels) == 1
    assert odd_box.metric("hisar_model_state", model="echo", state="ready") == 1
    assert odd_box.metric("hisar_model_load_seconds", model="echo") > 0
    assert odd_box.is_ready()


def test_a_box_that_has_nothing_else_says_why_it_is_not_ready(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="hisar-") as root:
        box = RunningBox(Path(root) / "home", f'[engine]\npreload = ["{ODD}"]\n')
        bring_odd(Library(box.home.models), tmp_path)
        box.start_host()
        box.start_gateway()
        try:
            wait_until(box.is_live, "the gateway")
            expected = ["engine.no_model", "model.file_refused"]
            wait_until(lambda: reasons_of(box) == expected, "the reasons")
            Library(box.home.models).add(ModelSpec(name=ODD, runner="echo"))
            box.wait_until_ready()
        finally:
            box.stop()


def reasons_of(box: RunningBox) -> object:
    return httpx.get(f"{box.url}/health/ready").json().get("reasons")


def test_a_removed_model_is_served_no_more_and_leaves_memory(box: RunningBox) -> None:
    library = Library(box.home.models)
    library.add(ModelSpec(name="brief", runner="echo"))
    assert box.chat(model="brief").status_code == 200
    assert box.metric("hisar_model_state", model="brief", state="ready") == 1
    library.remove("brief")
    assert box.chat(model="brief").status_code == 404
    wait_until(lambda: not box.metric("hisar_model_state", model="brief"), "the model to leave")
