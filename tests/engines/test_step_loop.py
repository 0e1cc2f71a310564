"""Requests through the step loop with the echo engine: what each is told, and how each ends."""

import random
from collections.abc import Callable
from collections.abc import Sequence as Seq

import msgspec
import pytest

from appliance.generation import (
    Failed,
    FinishReason,
    Prompt,
    SamplingParams,
    TokenPrompt,
)
from engines.echo.runner import EchoRunner
from engines.echo.tokenizer import EchoTokenizer
from engines.protocol import Abort, Drain
from engines.runner import OutOfKvError, RowError, Sampled, StepPlan
from engines.sequence import Sequence
from engines.step_loop import MAX_LIVE_REQUESTS
from tests.engines.echo_engine import CONTEXT_TOKENS, Engine, make_runner


@pytest.fixture
def engine() -> Engine:
    return Engine(make_runner())


@pytest.mark.parametrize("text", ["hello world", "ğüşİı 👩‍👩‍👧‍👦 聪明", "line\n\nline  and tabs\t"])
def test_an_answer_arrives_whole_and_ends_once(engine: Engine, text: str) -> None:
    """vllm-mlx#628: exactly one finish_reason per choice, then the ending with the usage."""
    engine.ask(text)
    engine.run()
    assert engine.text("r") == text
    assert engine.reasons("r") == {0: FinishReason.STOP}
    usage = engine.finished("r").usage
    assert usage.completion_tokens == usage.prompt_tokens  # BOS there, the end of turn here.
    assert sum(d.num_tokens for d in engine.deltas("r")) == usage.completion_tokens - 1
    assert engine.is_empty()


def test_a_model_that_only_embeds_is_asked_for_no_text() -> None:
    runner = make_runner()
    runner.facts = msgspec.structs.replace(runner.facts, generates=False)
    engine = Engine(runner)
    engine.ask("hello")
    engine.run()
    failed = engine.failure("r")
    assert (failed.code, failed.param) == ("request.model_cannot_generate", "model")


def test_no_delta_ever_holds_half_a_character(engine: Engine) -> None:
    """llama.cpp#4036, TensorRT-LLM#2595."""
    engine.ask("聪ğ👩‍👧")
    engine.run()
    assert all(delta.text and "\ufffd" not in delta.text for delta in engine.deltas("r"))
    assert [delta.num_tokens for delta in engine.deltas("r")] == [3, 2, 4, 3, 4]


def test_a_character_cut_by_max_tokens_is_dropped_and_its_tokens_counted(engine: Engine) -> None:
    """imp#1310: max_tokens=3 cuts an emoji."""
    engine.ask("👩", max_tokens=3)
    engine.run()
    assert engine.text("r") == ""
    assert [delta.num_tokens for delta in engine.deltas("r")] == [3]
    assert engine.reasons("r") == {0: FinishReason.LENGTH}


def test_nothing_of_a_stop_string_is_shown(engine: Engine) -> None:
    """vllm#3574: stop "DEFGHIJ" after "ABC"; the start of the stop string leaked."""
    engine.ask("xABCDEFGHIJKL", stop=("DEFGHIJ",))
    engine.run()
    assert engine.text("r") == "xABC"
    assert all(not delta.text.startswith("D") for delta in engine.deltas("r"))
    assert engine.reasons("r") == {0: FinishReason.STOP}


def test_only_what_may_become_a_stop_string_is_held_back(engine: Engine) -> None:
    """smg#2203: holding back as much as the longest stop delays text; vllm#45636 cut markers."""
    engine.ask("abstep|> endst", stop=("stop",))
    engine.run()
    texts = [delta.text for delta in engine.deltas("r")]
    assert texts == ["a", "b", "ste", "p", "|", ">", " ", "e", "n", "d", "st"]
    assert [delta.num_tokens for delta in engine.deltas("r")][2] == 3


def test_a_stop_string_inside_one_token_cuts_it(engine: Engine) -> None:
    engine.ask("oh assistant", stop=("sist",))
    engine.run()
    assert engine.text("r") == "oh as"


def test_max_tokens_none_fills_the_context_and_a_larger_one_ends_with_it(engine: Engine) -> None:
    """vllm#19862: max_tokens null is as many as there is room for."""
    prompt = TokenPrompt(token_ids=(97,) * (CONTEXT_TOKENS - 5))
    engine.ask(prompt, id="none")
    engine.ask(prompt, id="larger", max_tokens=10_000)
    engine.run()
    for request_id in ("none", "larger"):
        assert engine.finished(request_id).usage.completion_tokens == 5
        assert engine.reasons(request_id) == {0: FinishReason.LENGTH}


def test_max_tokens_zero_counts_the_prompt_and_says_nothing(engine: Engine) -> None:
    """vllm#6521, llama.cpp#4047: 0 new tokens, not a crash and not three."""
    engine.ask("hello", max_tokens=0, n=2)
    engine.run()
    assert engine.deltas("r") == []
    assert engine.reasons("r") == {0: FinishReason.LENGTH, 1: FinishReason.LENGTH}
    usage = engine.finished("r").usage
    assert (usage.prompt_tokens, usage.completion_tokens) == (2, 0)
    assert engine.is_empty()


@pytest.mark.parametrize("num_tokens", [CONTEXT_TOKENS, 160_689])
def test_a_prompt_that_leaves_no_room_is_refused_with_both_numbers(
    engine: Engine, num_tokens: int
) -> None:
    """ollama#4967, ollama#3839, ollama#17427, ollama#17889: all was cut without a word."""
    engine.ask(TokenPrompt(token_ids=(97,) * num_tokens))
    engine.run()
    failure = engine.failure("r")
    assert failure.code == "request.context_length_exceeded"
    assert str(num_tokens) in failure.message
    assert str(CONTEXT_TOKENS) in failure.message
    assert engine.is_empty()


@pytest.mark.parametrize(
    ("prompt", "code"),
    [
        (TokenPrompt(token_ids=()), "request.prompt_empty"),
        (TokenPrompt(token_ids=(EchoTokenizer.vocabulary_size,)), "request.token_out_of_range"),
        (TokenPrompt(token_ids=(-1,)), "request.token_out_of_range"),
    ],
)
def test_a_bad_prompt_fails_alone(engine: Engine, prompt: Prompt, code: str) -> None:
    """vllm#7746, vllm#7283: an empty prompt killed the engine."""
    engine.ask("hello", id="other")
    engine.ask(prompt)
    engine.run()
    assert engine.failure("r").code == code
    assert engine.text("other") == "hello"


def test_an_empty_text_is_a_prompt_of_its_bos(engine: Engine) -> None:
    """vllm#7283, for a model that has a BOS."""
    engine.ask("")
    engine.run()
    assert engine.finished("r").usage.prompt_tokens == 1
    assert engine.reasons("r") == {0: FinishReason.STOP}


def test_choices_are_numbered_by_prompt_and_a_prompt_is_counted_once(engine: Engine) -> None:
    """vllm#39647, vllm#10852: n=4 computes and counts its prompt once."""
    engine.ask("abc", "hello", n=4)
    engine.run()
    assert [engine.text("r", index) for index in range(8)] == ["abc"] * 4 + ["hello"] * 4
    assert set(engine.reasons("r")) == set(range(8))
    assert engine.finished("r").usage.prompt_tokens == 4 + 2
    assert engine.loop.stats().prompt_tokens == 4 + 2


def test_cached_tokens_are_told_within_a_salt_and_not_across(engine: Engine) -> None:
    """vllm#17045, vllm#53347, vllm#16016: cached_tokens 0 across tenants, more within."""
    for request_id, salt in (("first", b"a"), ("again", b"a"), ("other", b"b")):
        engine.ask("the same long prompt", id=request_id, salt=salt)
        engine.run()
    usages = [engine.finished(request_id).usage for request_id in ("first", "again", "other")]
    # One token at least is computed, for there must be something to sample from.
    assert [usage.cached_tokens for usage in usages] == [0, usages[0].prompt_tokens - 1, 0]


def test_logprobs_name_every_token_even_half_characters(engine: Engine) -> None:
    engine.ask("ağ", sampling=SamplingParams(logprobs=True, num_top_logprobs=2))
    engine.run()
    told = [entry for delta in engine.deltas("r") for entry in delta.logprobs]
    assert [entry.chosen.token for entry in told] == ["a", "\\xc4", "\\x9f"]
    assert [entry.chosen.token_bytes for entry in told] == [b"a", b"\xc4", b"\x9f"]
    assert all(entry.chosen.logprob == 0.0 and entry.top == (entry.chosen,) for entry in told)


def test_timings_add_up_to_the_life_of_the_request(engine: Engine) -> None:
    engine.ask("hello world")
    engine.run()
    timings = engine.finished("r").timings
    assert timings.queue_s > 0
    assert timings.prefill_s > 0
    assert timings.decode_s > 0


@pytest.mark.parametrize("num_steps", range(6))
def test_an_abort_ends_a_request_before_the_next_step(engine: Engine, num_steps: int) -> None:
    """llama.cpp#24496, llama.cpp#13262, ik_llama.cpp#1929: while tokenised, queued, prefilling or
    streaming; others go on.
    """
    engine.ask("other", id="other")
    engine.ask("x" * 150)
    for _ in range(num_steps):
        engine.step()
    engine.loop.receive(Abort(request_id="r"))
    engine.step()
    failure = engine.failure("r")
    assert failure.code == "request.cancelled"
    assert failure.usage.completion_tokens == len(engine.deltas("r"))
    engine.loop.receive(Abort(request_id="r"))
    engine.run()
    assert engine.failure("r") == failure
    assert engine.text("other") == "other"
    assert engine.is_empty()


def test_whoever_tokenises_can_see_that_a_request_was_aborted(engine: Engine) -> None:
    """Also where another request has its id by then."""
    asked: list[Callable[[], bool]] = []
    engine.submit = lambda _request, is_wanted: asked.append(is_wanted)  # type: ignore[method-assign]
    engine.ask("first")
    assert asked[0]()
    engine.loop.receive(Abort(request_id="r"))
    assert not asked[0]()
    engine.ask("second")
    assert [is_wanted() for is_wanted in asked] == [False, True]


def test_an_abort_of_an_unknown_request_is_ignored(engine: Engine) -> None:
    engine.loop.receive(Abort(request_id="nobody"))
    assert engine.loop.step() == ()


def test_a_second_request_of_a_live_id_is_ignored(engine: Engine) -> None:
    engine.ask("first")
    engine.ask("second")
    engine.run()
    assert engine.text("r") == "first"
    assert engine.is_empty()


def test_a_drained_loop_takes_no_new_request_and_ends_the_running_ones(engine: Engine) -> None:
    engine.ask("running", id="running")
    engine.step()
    engine.loop.receive(Drain())
    engine.ask("late", id="late")
    engine.run()
    assert engine.failure("late").code == "engine.draining"
    assert engine.text("running") == "running"


def test_more_requests_than_the_engine_can_hold_are_refused(engine: Engine) -> None:
    for number in range(MAX_LIVE_REQUESTS):
        engine.ask("a", id=str(number), max_tokens=1)
    engine.ask("one too many")
    engine.step()
    failure = engine.failure("r")
    assert failure.code == "engine.overloaded"
    assert failure.retry_after_s


class FailingRunner(EchoRunner):
    """An echo engine with a device that fails where a test says so."""

    bad_rows: frozenset[str] = frozenset()
    num_out_of_kv: int = 0

    def execute(self, plan: StepPlan) -> Seq[Sampled | RowError | None]:  # type: ignore[override]
        if self.num_out_of_kv:
            self.num_out_of_kv -= 1
            raise OutOfKvError("the device is full")
        results = super().execute(plan)
        return [
            self._row(chunk.sequence, result)
            for chunk, result in zip(plan.chunks, results, strict=True)
        ]

    def _row(self, sequence: Sequence, result: Sampled | None) -> Sampled | RowError | None:
        is_bad = sequence.request_id in self.bad_rows and result is not None
        return RowError(code="engine.row_failed", message="not a number") if is_bad else result


@pytest.fixture
def failing() -> FailingRunner:
    runner = make_runner()
    return FailingRunner(runner.facts, runner.kv, runner.step_tokens)


def test_a_row_that_is_not_a_number_ends_only_its_request(
    failing: FailingRunner, caplog: pytest.LogCaptureFixture
) -> None:
    """sglang#33187, flashinfer#2402: the others go on, and its keys and values are not reused."""
    failing.bad_rows = frozenset({"bad"})
    engine = Engine(failing)
    for request_id in ("good", "bad"):
        engine.ask("the text of " + request_id, id=request_id, n=2)
    engine.run()
    assert engine.failure("bad").code == "engine.row_failed"
    (logged,) = (vars(record) for record in caplog.records)
    assert (logged["request_id"], logged["code"]) == ("bad", "engine.row_failed")
    assert engine.text("good", 1) == "the text of good"
    failing.bad_rows = frozenset()
    engine.ask("the text of bad", id="again")
    engine.run()
    assert engine.text("again") == "the text of bad"
    assert engine.is_empty()


def test_a_full_device_preempts_and_loses_nothing(failing: FailingRunner) -> None:
    """llama.cpp#16736, llama.cpp#23652: the pool ran out and every generation failed."""
    engine = Engine(failing)
    for number in range(4):
        engine.ask(f"the text of {number}", id=str(number))
    engine.step()
    failing.num_out_of_kv = 3
    engine.run()
    assert [engine.text(str(number)) for number in range(4)] == [
        f"the text of {number}" for number in range(4)
    ]
    assert engine.loop.stats().num_preemptions == 3
    assert engine.is_empty()


def test_a_request_too_large_for_the_device_fails_alone(failing: FailingRunner) -> None:
    """vllm#52871: one prompt ran out of memory and took the engine with it."""
    engine = Engine(failing)
    engine.ask("too large", id="large")
    failing.num_out_of_kv = 1
    engine.step()
    assert engine.failure("large").code == "engine.row_failed"
    engine.ask("after it", id="after")
    engine.run()
    assert engine.text("after") == "after it"


def test_a_small_pool_gives_the_same_texts_as_a_large_one() -> None:
    """vllm-ascend#16315, vllm#15996: pre-emption is invisible in the text, and ends."""
    texts = {str(number): f"{number} " * 40 for number in range(12)}
    engine = Engine(make_runner(pool=CONTEXT_TOKENS + 64))
    for request_id, text in texts.items():
        engine.ask(text, id=request_id)
    engine.run()
    assert {request_id: engine.text(request_id) for request_id in texts} == texts
    assert engine.loop.stats().num_preemptions > 0
    assert engine.is_empty()


def test_a_hundred_streams_with_random_aborts_lose_and_leak_nothing() -> None:
    """vllm#31503, vllm#55634, vllm#8115: each counted once, and the running gauge back at zero."""
    chance = random.Random(7)  # noqa: S311 - a test's dice
    engine = Engine(make_runner(pool=2 * CONTEXT_TOKENS, num_slots=16))
    texts = {f"r{number}": "word " * chance.randint(1, 20) for number in range(100)}
    to_come, cancelled = list(texts), set()
    while to_come or engine.encoded or engine.loop.has_work:
        for _ in range(min(len(to_come), chance.randint(0, 3))):
            request_id = to_come.pop()
            engine.ask(texts[request_id], id=request_id, n=chance.randint(1, 2))
        if chance.random() < 0.2:
            victim = chance.choice(list(texts))
            engine.loop.receive(Abort(request_id=victim))
            cancelled.add(victim)
        engine.step()
    for request_id, text in texts.items():
        ending = engine.ending(request_id)
        if isinstance(ending, Failed):
            assert ending.code == "request.cancelled"
            assert request_id in cancelled
            assert text.startswith(engine.text(request_id))
        else:
            assert engine.text(request_id) == text
    assert engine.is_empty()
