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


def test_token_ids_cannot_be_screened_and_are_refused(box: RunningBox) -> None:
    status, text = ask(box, "/v1/completions", prompt=[1, 2, 3])
    assert status == 400
    assert json.loads(text)["error"]["code"] == "content_policy_violation"


def test_what_is_allowed_passes(box: RunningBox) -> None:
    assert ask(box, "/v1/completions", prompt="zeytin burnu")[0] == 200
