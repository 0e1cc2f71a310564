"""How much a key may use, and what it is told when that is used up."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from appliance.identity import Limits
from tests.walk.raw import connect, post, reset
from tests.walk.running_box import CONFIG, RunningBox, running_box, wait_until

CHAT = {"model": "echo", "messages": [{"role": "user", "content": "hello world"}]}
LONG = {"model": "echo", "messages": [{"role": "user", "content": "x" * 200_000}], "stream": True}


def test_a_key_without_limits_sees_no_limit_headers(box: RunningBox) -> None:
    answer = box.chat("hello")
    assert not [name for name in answer.headers if name.startswith("x-ratelimit-")]


def test_what_is_left_falls_by_exactly_what_was_used(box: RunningBox) -> None:
    """envoyproxy/ai-gateway#2248: a use of 5,000 tokens moved the counter by one."""
    key = box.make_key("metered", limits=Limits(tokens_per_minute=60_000))
    with box.client(key) as client:
        first = client.post("/v1/chat/completions", json={**CHAT, "max_tokens": 100})
        second = client.post("/v1/chat/completions", json={**CHAT, "max_tokens": 100})
    used = first.json()["usage"]["total_tokens"]
    assert first.headers["x-ratelimit-limit-tokens"] == "60000"
    left = [int(answer.headers["x-ratelimit-remaining-tokens"]) for answer in (first, second)]
    # A thousand tokens come back each second; what was used is small beside that.
    assert left[0] - used <= left[1] <= left[0]
    assert first.headers["x-ratelimit-reset-tokens"].endswith("s")


def test_parallel_calls_are_admitted_up_to_the_limit_and_no_further(box: RunningBox) -> None:
    """BerriAI/litellm#18730: a limit of 100 let 663 through."""
    key = box.make_key("tight", limits=Limits(tokens_per_minute=100))

    def call(_: int) -> int:
        with box.client(key) as client:
            answer = client.post("/v1/chat/completions", json={**CHAT, "max_tokens": 40})
        if answer.status_code == 429:
            assert int(answer.headers["retry-after"]) >= 1
            assert int(answer.headers["retry-after-ms"]) >= 1
            assert answer.json()["error"]["code"] == "rate_limit_exceeded"
            assert answer.json()["error"]["type"] == "tokens"
            return 0
        assert answer.status_code == 200
        used: int = answer.json()["usage"]["total_tokens"]
        return used

    with ThreadPoolExecutor(5) as pool:
        assert 0 < sum(pool.map(call, range(5))) <= 100


def test_a_request_larger_than_the_limit_is_told_so(box: RunningBox) -> None:
    key = box.make_key("small", limits=Limits(tokens_per_minute=50))
    with box.client(key) as client:
        answer = client.post("/v1/chat/completions", json={**CHAT, "max_tokens": 500})
        assert client.post("/v1/chat/completions", json=CHAT).status_code == 200
    assert answer.status_code == 429
    assert answer.headers["x-should-retry"] == "false"
    assert "50 a minute" in answer.json()["error"]["message"]


def test_a_key_at_its_bound_of_requests_is_429_and_free_again_after(box: RunningBox) -> None:
    key = box.make_key("single", limits=Limits(requests_in_flight=1))
    running = connect(box.port)
    running.sendall(post(json.dumps(LONG).encode(), key))
    running.recv(100)
    with box.client(key) as client:
        refused = client.post("/v1/chat/completions", json=CHAT)
        assert refused.status_code == 429
        assert refused.json()["error"]["type"] == "requests"
        assert box.chat("another key").status_code == 200
        reset(running)
        wait_until(
            lambda: client.post("/v1/chat/completions", json=CHAT).status_code == 200,
            "the key to be free",
            2,
        )


@pytest.mark.parametrize("num_refused", [30])
def test_after_many_refusals_no_place_is_taken(box: RunningBox, num_refused: int) -> None:
    """BerriAI/litellm#20256, #27955: failed requests kept their slots for an hour."""
    key = box.make_key("failing", limits=Limits(requests_in_flight=1))
    bad = [{**CHAT, "model": "none"}, {**CHAT, "n": 0}, {**CHAT, "messages": []}]
    with box.client(key) as client:
        for number in range(num_refused):
            client.post("/v1/chat/completions", json=bad[number % len(bad)])
        assert client.post("/v1/chat/completions", json=CHAT).status_code == 200
    wait_until(box.is_idle, "the box to be idle", 2)


def test_a_busy_box_queues_then_refuses_with_503() -> None:
    config = CONFIG.replace("max_in_flight = 16", "max_in_flight = 1")
    config = config.replace("max_queued = 64", "max_queued = 1\nqueue_timeout_s = 0.3")
    with running_box(config) as box:
        running = connect(box.port)
        running.sendall(post(json.dumps(LONG).encode(), box.key))
        running.recv(100)
        timed_out = box.chat("waits in vain")
        assert timed_out.status_code == 503
        assert timed_out.json()["error"]["code"] == "limits.queue_timeout"
        assert timed_out.headers["retry-after"] == "1"
        with ThreadPoolExecutor(3) as pool:
            codes = {
                answer.json()["error"]["code"]
                for answer in pool.map(box.chat, ["a", "b", "c"])
                if answer.status_code == 503
            }
        assert "limits.queue_full" in codes
        reset(running)
        wait_until(lambda: box.chat("hello").status_code == 200, "the box to serve again", 5)
