"""Everything a request can ask of an engine, through the step loop with the echo engine, whose
answer is what the user wrote.
"""

import json
import math
import threading
from collections.abc import Iterator
from queue import SimpleQueue
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from appliance.generation import (
    ChatPrompt,
    ChoiceFinished,
    FinishReason,
    GenerationRequest,
    Message,
    OutputFormat,
    SamplingParams,
    StopConditions,
    TextDelta,
    TextPrompt,
    TokenPrompt,
    Tool,
    ToolCallDelta,
    ToolChoice,
)
from engines.echo.runner import EchoRunner
from engines.echo.tokenizer import EchoTokenizer
from engines.intake import Encoded, Intake
from engines.prompting import PromptEncoder, start_prompt_encoder
from tests.engines.echo_engine import Engine, make_runner

DEADLINE_S = 20.0
SIZE = EchoTokenizer.vocabulary_size
FIND = Tool(
    name="find",
    description="Find a customer.",
    parameters=json.dumps(
        {
            "type": "object",
            "properties": {"no": {"type": "string"}},
            "required": ["no"],
            "additionalProperties": False,
        }
    ),
)
CALL = '<tool_call>\n{"name": "find", "arguments": {"no": "417"}}\n</tool_call>'


@pytest.fixture(scope="module")
def encoder() -> Iterator[PromptEncoder]:
    encoder = start_prompt_encoder(EchoTokenizer())
    yield encoder
    encoder.close()


@pytest.fixture
def engine(encoder: PromptEncoder) -> Engine:
    return Engine(make_runner(context_tokens=1024), encoder)


def chat(
    text: str,
    *,
    tools: tuple[Tool, ...] = (),
    choice: ToolChoice | None = None,
    parallel: bool = True,
    **fields: object,
) -> GenerationRequest:
    prompt = ChatPrompt(
        messages=(Message(role="user", content=text),),
        tools=tools,
        tool_choice=choice or ToolChoice(),
        parallel_tool_calls=parallel,
    )
    return make(prompt, **fields)


def make(*prompts: object, id: str = "r", **fields: object) -> GenerationRequest:  # noqa: A002
    return GenerationRequest(id=id, model="echo", prompts=prompts, **fields)  # type: ignore[arg-type]


def ended(engine: Engine, request_id: str = "r") -> ChoiceFinished:
    (end,) = (e for e in engine.said[request_id] if isinstance(e, ChoiceFinished))
    return end


def channel(engine: Engine, name: str, request_id: str = "r") -> str:
    return "".join(d.text for d in engine.deltas(request_id) if d.channel == name)


def run(engine: Engine, request: GenerationRequest) -> ChoiceFinished:
    engine.send(request)
    engine.run()
    return ended(engine, request.id)


# Tools


def test_a_call_is_told_as_a_call_and_its_markup_not_at_all(engine: Engine) -> None:
    """vllm#10781: joined deltas are the plain call, its arguments valid JSON."""
    end = run(engine, chat(f"Let me look.\n{CALL}", tools=(FIND,)))
    assert end.finish_reason is FinishReason.TOOL_CALLS
    assert engine.text("r") == "Let me look."
    (call,) = engine.calls("r")
    assert (call.name, call.arguments) == ("find", '{"no": "417"}')
    assert call.id.startswith("call_")
    deltas = [e for e in engine.said["r"] if isinstance(e, ToolCallDelta)]
    assert len(deltas) > 3
    assert [bool(delta.id) for delta in deltas] == [True] + [False] * (len(deltas) - 1)


def test_calls_have_ids_of_their_own(engine: Engine) -> None:
    run(engine, chat(f"{CALL}\n{CALL}", tools=(FIND,)))
    first, second = engine.calls("r")
    assert first.id != second.id
    assert engine.text("r") == ""


def test_without_tools_markup_is_text(engine: Engine) -> None:
    for number, request in enumerate(
        (chat(CALL), chat(CALL, tools=(FIND,), choice=ToolChoice(mode="none"))),
    ):
        request_id = str(number)
        engine.send(GenerationRequest(id=request_id, model="echo", prompts=request.prompts))
        engine.run()
        assert engine.text(request_id) == CALL
        assert ended(engine, request_id).finish_reason is FinishReason.STOP


@pytest.mark.parametrize("max_tokens", [12, 30, 45])
def test_a_call_that_is_cut_ends_for_length(engine: Engine, max_tokens: int) -> None:
    """vllm#48702: finish_reason said tool_calls of a call that was cut."""
    stopping = StopConditions(max_tokens=max_tokens)
    end = run(engine, chat(CALL, tools=(FIND,), stopping=stopping))
    assert end.finish_reason is FinishReason.LENGTH
    assert "<tool_call>" not in engine.text("r")


@pytest.mark.parametrize(
    "choice", [ToolChoice(mode="required"), ToolChoice(mode="named", name="find")]
)
def test_a_call_can_be_required_whatever_the_model_would_say(
    engine: Engine, choice: ToolChoice
) -> None:
    end = run(engine, chat("I would rather talk.", tools=(FIND,), choice=choice))
    assert end.finish_reason is FinishReason.TOOL_CALLS
    assert engine.text("r") == ""
    call = engine.calls("r")[0]
    assert call.name == "find"
    assert isinstance(json.loads(call.arguments)["no"], str)


def test_a_named_function_must_be_offered(engine: Engine) -> None:
    engine.send(chat("x", tools=(FIND,), choice=ToolChoice(mode="named", name="send")))
    engine.run()
    assert engine.failure("r").code == "request.invalid_parameter"


def test_one_call_at_most_without_parallel_calls(engine: Engine) -> None:
    end = run(engine, chat(f"{CALL}\n{CALL}", tools=(FIND,), parallel=False))
    assert end.finish_reason is FinishReason.TOOL_CALLS
    assert len(engine.calls("r")) == 1


def test_a_call_keeps_to_its_schema_also_where_it_was_not_required(engine: Engine) -> None:
    run(engine, chat(CALL.replace('"417"', "417"), tools=(FIND,)))
    (call,) = engine.calls("r")
    assert isinstance(json.loads(call.arguments)["no"], str)


# Thoughts


def test_thoughts_are_told_on_a_channel_of_their_own(engine: Engine) -> None:
    run(
        engine,
        chat(
            "<think>\nhmm, STOP?\n</think>\n\nYes. STOP no", stopping=StopConditions(stop=("STOP",))
        ),
    )
    assert channel(engine, "reasoning") == "hmm, STOP?"
    assert channel(engine, "content") == "Yes. "
    assert ended(engine).stop == "STOP"


def test_a_call_may_follow_thoughts(engine: Engine) -> None:
    run(engine, chat(f"<think>so</think>{CALL}", tools=(FIND,)))
    assert channel(engine, "reasoning") == "so"
    assert len(engine.calls("r")) == 1


def test_logprobs_follow_their_text_and_leave_markup_out(engine: Engine) -> None:
    run(engine, chat("<think>ab</think>cd", sampling=SamplingParams(logprobs=True)))
    told = {"reasoning": "", "content": ""}
    for delta in engine.deltas("r"):
        told[delta.channel] += "".join(entry.chosen.token for entry in delta.logprobs)
    assert told["content"] == "cd"
    assert told["reasoning"].endswith("ab")


def test_a_plain_completion_has_no_thoughts(engine: Engine) -> None:
    run(engine, make(TextPrompt(text="<think>a</think>b")))
    assert channel(engine, "content") == "<think>a</think>b"


# Formats


def held(text: str, output_format: OutputFormat, **fields: object) -> GenerationRequest:
    return chat(text, output_format=output_format, **fields)


JSON_OBJECT = OutputFormat(kind="json_object")


@pytest.mark.parametrize("text", ['{"a": [1, 2]}', '{"ğ": "🏰"}'])
def test_an_answer_that_fits_is_left_as_it_is(engine: Engine, text: str) -> None:
    assert run(engine, held(text, JSON_OBJECT)).finish_reason is FinishReason.STOP
    assert engine.text("r") == text


@pytest.mark.parametrize("text", ["hello", '{"a": ', "", "[1, 2]"])
def test_an_answer_that_does_not_fit_is_made_to(engine: Engine, text: str) -> None:
    assert run(engine, held(text, JSON_OBJECT)).finish_reason is FinishReason.STOP
    assert isinstance(json.loads(engine.text("r")), dict)


def test_an_answer_cut_by_length_says_so(engine: Engine) -> None:
    request = held('{"a": 1}', JSON_OBJECT, stopping=StopConditions(max_tokens=3))
    assert run(engine, request).finish_reason is FinishReason.LENGTH


def test_every_choice_has_a_grammar_of_its_own(engine: Engine) -> None:
    engine.send(held("no 7", OutputFormat(kind="regex", text="[a-z]+ [0-9]"), n=3))
    engine.run()
    assert [engine.text("r", index) for index in range(3)] == ["no 7"] * 3


def test_what_cannot_be_held_to_fails_alone(engine: Engine) -> None:
    engine.ask("hello", id="other")
    engine.send(held("x", OutputFormat(kind="json_schema", text='{"type": "flurb"}')))
    engine.run()
    assert engine.failure("r").code == "request.grammar_refused"
    assert engine.text("other") == "hello"
    assert engine.is_empty()


def test_a_grammar_goes_on_where_a_preemption_left_it(encoder: PromptEncoder) -> None:
    engine = Engine(make_runner(pool=96, num_slots=4), encoder)
    text = '{"a": [1, 2, 3], "b": "text"}'
    for number in range(4):
        request = held(text, JSON_OBJECT, id=str(number))
        engine.send(request)
    engine.run()
    assert engine.loop.stats().num_preemptions > 0
    assert [engine.text(str(number)) for number in range(4)] == [text] * 4


class SlowVocabulary(EchoTokenizer):
    """A tokenizer whose pieces cannot be had until a test says so."""

    def __init__(self) -> None:
        self.may_go_on = threading.Event()

    def piece(self, token_id: int) -> bytes:
        assert self.may_go_on.wait(DEADLINE_S)
        return super().piece(token_id)


def test_a_grammar_being_compiled_keeps_nobody_waiting() -> None:
    tokenizer = SlowVocabulary()
    encoded: SimpleQueue[Encoded] = SimpleQueue()
    intake = Intake(PromptEncoder(tokenizer, None), encoded.put)
    for number in range(4):
        request = make(TextPrompt(text="a"), id=str(number), output_format=JSON_OBJECT)
        intake.submit(request, lambda: True)
    intake.submit(make(TextPrompt(text="b"), id="plain"), lambda: True)
    assert encoded.get(timeout=DEADLINE_S).request.id == "plain"
    tokenizer.may_go_on.set()
    ready = [encoded.get(timeout=DEADLINE_S) for _ in range(4)]
    assert all(each.prompts[0].grammar is not None for each in ready)
    intake.close()


# Endings


def test_the_stop_string_that_matched_is_named(engine: Engine) -> None:
    end = run(engine, make(TextPrompt(text="one, two"), stopping=StopConditions(stop=("x", "tw"))))
    assert (end.finish_reason, end.stop) == (FinishReason.STOP, "tw")
    assert engine.text("r") == "one, "


@pytest.mark.parametrize(
    ("sampling", "stopping", "param"),
    [
        (
            SamplingParams(logit_bias=((1, 1.0), (SIZE, 1.0))),
            StopConditions(),
            f'logit_bias["{SIZE}"]',
        ),
        (SamplingParams(), StopConditions(stop_token_ids=(1, SIZE)), "stop_token_ids[1]"),
    ],
)
def test_a_parameter_that_names_no_token_of_the_model_is_refused(
    engine: Engine, sampling: SamplingParams, stopping: StopConditions, param: str
) -> None:
    engine.send(make(TextPrompt(text="a"), sampling=sampling, stopping=stopping))
    engine.run()
    failure = engine.failure("r")
    assert (failure.code, failure.param) == ("request.token_out_of_range", param)
    assert failure.message == (
        f"{param}: token {SIZE} is outside the vocabulary of this model, which has {SIZE} tokens"
    )


def test_a_stop_token_ends_without_its_text(engine: Engine) -> None:
    stopping = StopConditions(stop_token_ids=(ord("c"),))
    end = run(engine, make(TextPrompt(text="abcd"), stopping=stopping))
    assert (end.finish_reason, end.stop) == (FinishReason.STOP, None)
    assert engine.text("r") == "ab"


def test_no_end_before_min_tokens(engine: Engine) -> None:
    stopping = StopConditions(min_tokens=6, max_tokens=20, stop_token_ids=(ord("b"),))
    end = run(engine, make(TextPrompt(text="abc"), stopping=stopping))
    assert end.finish_reason is FinishReason.STOP
    assert engine.finished("r").usage.completion_tokens == 7
    assert "b" not in engine.text("r")


def test_an_end_that_is_ignored_is_never_chosen(engine: Engine) -> None:
    stopping = StopConditions(ignores_eos=True, max_tokens=9)
    end = run(engine, make(TextPrompt(text="abc"), stopping=stopping))
    assert end.finish_reason is FinishReason.LENGTH
    assert engine.finished("r").usage.completion_tokens == 9


def test_a_complete_grammar_ends_although_the_end_is_withheld(engine: Engine) -> None:
    stopping = StopConditions(ignores_eos=True, min_tokens=50)
    regex = OutputFormat(kind="regex", text="ab?")
    end = run(engine, make(TextPrompt(text="a"), stopping=stopping, output_format=regex))
    assert end.finish_reason is FinishReason.STOP
    assert engine.text("r") in {"a", "ab"}


# Echoed prompts


def test_the_prompt_comes_first_and_costs_nothing(engine: Engine) -> None:
    request = make(TextPrompt(text="ab"), TokenPrompt(token_ids=(99,)), echoes_prompt=True, n=2)
    engine.send(request)
    engine.run()
    assert [engine.text("r", index) for index in range(4)] == ["abab"] * 2 + ["cc"] * 2
    assert all(engine.deltas("r", index)[0].num_tokens == 0 for index in range(4))
    assert engine.finished("r").usage.completion_tokens == 2 * 3 + 2 * 2


@pytest.mark.parametrize("max_tokens", [0, 2])
def test_a_prompt_is_scored_the_same_each_time(engine: Engine, max_tokens: int) -> None:
    """vllm#8268: the second time the cache answered; vllm#6521: max_tokens 0 crashed."""
    scored: list[TextDelta] = []
    for request_id in ("first", "second"):
        request = make(
            TextPrompt(text="the prompt " * 9),
            id=request_id,
            echoes_prompt=True,
            sampling=SamplingParams(logprobs=True, num_top_logprobs=1),
            stopping=StopConditions(max_tokens=max_tokens),
            n=2,
        )
        engine.send(request)
        engine.run()
        usage = engine.finished(request_id).usage
        assert usage.completion_tokens == 2 * max_tokens
        assert usage.cached_tokens == 0
        assert set(engine.reasons(request_id).values()) == {FinishReason.LENGTH}
        for index in range(2):
            scored.append(engine.deltas(request_id, index)[0])
            assert len(scored[-1].logprobs) == usage.prompt_tokens
    first = scored[0].logprobs
    assert math.isnan(first[0].chosen.logprob)
    assert "".join(entry.chosen.token for entry in first) == "the prompt " * 9
    assert all(delta.logprobs[1:] == first[1:] for delta in scored)
    assert engine.is_empty()


def test_an_engine_that_cannot_score_a_prompt_says_so() -> None:
    runner = make_runner()
    facts = type(runner.facts)(
        model="m", runner="echo", context_tokens=64, vocabulary_size=278, num_slots=1
    )
    engine = Engine(EchoRunner(facts, runner.kv, runner.step_tokens))
    scoring = SamplingParams(logprobs=True)
    engine.send(make(TextPrompt(text="a"), echoes_prompt=True, sampling=scoring))
    engine.run()
    assert engine.failure("r").code == "request.unsupported_parameter"


# Determinism


@settings(deadline=None, max_examples=25)
@given(
    st.lists(st.text('ab ğ{}"<think>\n', max_size=30), min_size=8, max_size=8),
    st.integers(64, 200),
    st.integers(),
)
def test_a_text_is_the_same_alone_in_a_batch_from_cache_and_after_preemption(
    texts: list[str], pool: int, seed: int
) -> None:
    """llama.cpp#7381, llama.cpp#7052, ollama#586, sglang#5377: another answer under load."""

    def answers(engine: Engine, order: list[int], *, at_once: bool) -> list[str]:
        for number in order:
            request = make(
                TextPrompt(text=texts[number]),
                id=str(number),
                sampling=SamplingParams(temperature=0.0, seed=1),
                stopping=StopConditions(max_tokens=25),
                output_format=OutputFormat(kind="regex", text=r"(.|\n)*") if number % 2 else None,
            )
            engine.send(request)
            if not at_once:
                engine.run()
        engine.run()
        told = [engine.text(str(number)) for number in range(8)]
        engine.said.clear()
        return told

    order = list(range(8))
    alone = [answers(Engine(make_runner()), order, at_once=False)]
    busy = Engine(make_runner(pool=pool, step_tokens=16))
    Random(seed).shuffle(order)  # noqa: S311
    together = answers(busy, order, at_once=True)
    cached = answers(busy, order, at_once=True)
    assert [together] == alone
    assert cached == together
