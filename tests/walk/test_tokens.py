"""Tokens through the whole box: what a prompt becomes, and back."""

import pytest

from tests.walk.running_box import CONFIG, CONTEXT_TOKENS, RunningBox, running_box

TALK = [{"role": "user", "content": "hello world"}]


def test_a_prompt_has_as_many_tokens_as_its_answer_says(box: RunningBox) -> None:
    with box.client() as client:
        text = client.post("/tokenize", json={"model": "house", "prompt": "hello world"}).json()
        chat = client.post("/tokenize", json={"model": "echo", "messages": TALK}).json()
        bare = {"model": "echo", "prompt": "hello world", "add_special_tokens": False}
        without = client.post("/tokenize", json=bare).json()
        completion = {"model": "echo", "prompt": "hello world"}
        usage = client.post("/v1/completions", json=completion).json()["usage"]
    assert text["count"] == len(text["tokens"]) == usage["prompt_tokens"]
    assert text["max_model_len"] == CONTEXT_TOKENS
    assert text["tokens"][1:] == without["tokens"]
    assert chat["count"] == box.chat("hello world").json()["usage"]["prompt_tokens"]


def test_a_word_that_may_not_enter_is_not_counted_either(box: RunningBox) -> None:
    with box.client() as client:
        answers = [
            client.post("/tokenize", json={"model": "echo", "prompt": "Zeytinburnu"}),
            client.post("/detokenize", json={"model": "echo", "tokens": [104, 105]}),
        ]
    for answer in answers:
        assert answer.status_code == 400
        assert answer.json()["error"]["code"] == "content_policy_violation"


def test_tokens_become_their_text_again() -> None:
    with running_box(CONFIG.partition("[guardrails]")[0]) as box, box.client() as client:
        body = {"model": "echo", "prompt": "Merhaba dünya 🙂", "add_special_tokens": False}
        tokens = client.post("/tokenize", json=body).json()["tokens"]
        answer = client.post("/detokenize", json={"model": "echo", "tokens": tokens})
        assert answer.json() == {"prompt": "Merhaba dünya 🙂"}
        beyond = client.post("/detokenize", json={"model": "echo", "tokens": [2**30]})
        assert (beyond.status_code, beyond.json()["error"]["param"]) == (400, "tokens")


@pytest.mark.parametrize("path", ["/tokenize", "/detokenize", "/v1/embeddings"])
def test_strangers_and_unknown_models_are_refused(box: RunningBox, path: str) -> None:
    body = {"model": "nothing", "prompt": "hi", "tokens": [1], "input": "hi"}
    wanted = {"/tokenize": "prompt", "/detokenize": "tokens", "/v1/embeddings": "input"}[path]
    sent = {"model": body["model"], wanted: body[wanted]}
    with box.client() as client, box.client("wrong") as stranger:
        assert client.post(path, json=sent).status_code == 404
        assert stranger.post(path, json=sent).status_code == 401
