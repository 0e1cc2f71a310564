"""Words that may neither enter nor leave."""

import json

import pytest

from tests.walk.running_box import RunningBox


def ask(box: RunningBox, path: str, **body: object) -> tuple[int, str]:
    with box.client() as client:
        answer = client.post(path, json={"model": "echo", **body})
    return answer.status_code, answer.text


@pytest.mark.parametrize("stream", [False, True])
def test_a_denied_word_in_a_prompt_is_refused_and_told_not_to_retry(
    box: RunningBox, stream: bool
) -> None:
    answer = box.chat("shall we go to Zeytinburnu?", stream=stream)
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "content_policy_violation"
    assert answer.headers["x-should-retry"] == "false"
    assert "zeytinburnu" not in answer.text.lower()


def test_every_text_of_a_request_is_looked_at(box: RunningBox) -> None:
    system = [
        {"role": "system", "content": "Zeytinburnu"},
        {"role": "user", "content": "hi"},
    ]
    assert ask(box, "/v1/chat/completions", messages=system)[0] == 400
    assert ask(box, "/v1/completions", prompt=["fine", "ZEYTİNBURNU"])[0] == 400
    assert ask(box, "/v1/completions", prompt="x " * 10_000 + "zeytinburnu")[0] == 400


@pytest.mark.parametrize(
    "function",
    [
        {"name": "zeytinburnu"},
        {"name": "f", "description": "Where is Zeytinburnu?"},
        {"name": "f", "parameters": {"type": "object", "title": "zeytinburnu"}},
    ],
)
def test_tools_are_looked_at(box: RunningBox, function: dict[str, object]) -> None:
    tools = [{"type": "function", "function": function}]
    answer = box.chat("hi", tools=tools)
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "content_policy_violation"


def test_what_an_answer_must_look_like_is_looked_at(box: RunningBox) -> None:
    assert box.chat("hi", guided_regex="zeytinburnu").status_code == 400
    schema = {
        "type": "json_schema",
        "json_schema": {"name": "a", "schema": {"const": "Zeytinburnu"}},
    }
    assert box.chat("hi", response_format=schema).status_code == 400


def test_an_answer_that_is_cut_short_says_what_it_used(box: RunningBox) -> None:
    """The expression is no denied word, and everything that matches it is one."""
    made = {"guided_regex": "zeytin(burnu)", "max_tokens": 50}
    plain = box.chat("hi", **made)
    (choice,) = plain.json()["choices"]
    assert (choice["finish_reason"], choice["message"]["content"]) == ("content_filter", "")
    streamed = box.chat("hi", **made, stream=True, stream_options={"include_usage": True})
    frames = [line.removeprefix("data: ") for line in streamed.text.splitlines() if line]
    for usage in (plain.json()["usage"], json.loads(frames[-2])["usage"]):
        assert usage["prompt_tokens"] > 0
        assert usage["completion_tokens"] > 0
        assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]


def test_token_ids_cannot_be_screened_and_are_refused(box: RunningBox) -> None:
    status, text = ask(box, "/v1/completions", prompt=[1, 2, 3])
    assert status == 400
    assert json.loads(text)["error"]["code"] == "content_policy_violation"


def test_what_is_allowed_passes(box: RunningBox) -> None:
    assert ask(box, "/v1/completions", prompt="zeytin burnu")[0] == 200
