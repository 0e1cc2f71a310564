"""Everything a request can ask of an engine, through the step loop with the torch engine and the
small real model, whatever else is computed beside it.
"""

import json
import math
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
import torch

from appliance.generation import (
    ChatPrompt,
    FinishReason,
    GenerationRequest,
    Message,
    OutputFormat,
    SamplingParams,
    StopConditions,
    TextPrompt,
    Tool,
    ToolChoice,
)
from engines.prompting import PromptEncoder, start_prompt_encoder
from engines.pytorch.runner import TorchRunner, start
from engines.runner import RunnerOptions
from tests import small_model
from tests.engines.echo_engine import Engine
from tests.engines.situations import SITUATIONS, Ask, twice

pytestmark = pytest.mark.model

PARAGRAPH = "The capital of France is Paris, and the capital of Spain is Madrid. " * 4
GREEDY = SamplingParams(temperature=0.0)
DRAWN = SamplingParams(temperature=1.0, top_p=0.9, seed=11)
SCHEMA = {
    "type": "object",
    "properties": {"age": {"type": "integer", "minimum": 0, "maximum": 150}},
    "required": ["age"],
    "additionalProperties": False,
}
FIND = Tool(
    name="find",
    parameters=json.dumps(
        {
            "type": "object",
            "properties": {"no": {"type": "integer", "minimum": 0, "maximum": 999}},
            "required": ["no"],
            "additionalProperties": False,
        }
    ),
)


@pytest.fixture(scope="module")
def runner() -> Iterator[TorchRunner]:
    options = RunnerOptions(
        model="smollm2", path=small_model.PATH, context_tokens=512, num_slots=8, num_threads=2
    )
    runner = start(options)
    yield runner
    runner.close()


@pytest.fixture(scope="module")
def encoder(runner: TorchRunner) -> Iterator[PromptEncoder]:
    encoder = start_prompt_encoder(runner.tokenizer)
    yield encoder
    encoder.close()


@pytest.fixture
def engine(runner: TorchRunner, encoder: PromptEncoder) -> Engine:
    runner.kv.forget_all()
    return Engine(runner, encoder)


def text(prompt: str, *, id: str = "r", max_tokens: int = 12, **fields: Any) -> GenerationRequest:  # noqa: A002
    fields.setdefault("stopping", StopConditions(max_tokens=max_tokens))
    fields.setdefault("sampling", GREEDY)
    return GenerationRequest(id=id, model="smollm2", prompts=(TextPrompt(text=prompt),), **fields)


def chat(question: str, *, id: str = "r", **fields: Any) -> GenerationRequest:  # noqa: A002
    tools = fields.pop("tools", ())
    prompt = ChatPrompt(
        messages=(Message(role="user", content=question),),
        tools=tools,
        tool_choice=fields.pop("tool_choice", ToolChoice()),
        parallel_tool_calls=False,
    )
    return GenerationRequest(id=id, model="smollm2", prompts=(prompt,), **fields)


def run(engine: Engine, *requests: GenerationRequest) -> list[str]:
    for request in requests:
        engine.send(request)
    engine.run()
    assert engine.is_empty()
    return [engine.text(request.id) for request in requests]


def test_it_knows_the_capital_of_france(engine: Engine) -> None:
    stopping = StopConditions(max_tokens=10)
    (answer,) = run(
        engine, chat("What is the capital of France?", sampling=GREEDY, stopping=stopping)
    )
    assert "Paris" in answer


@pytest.fixture(scope="module")
def asks(runner: TorchRunner) -> list[Ask]:
    prompts = (PARAGRAPH, "Once upon a time", "The three colours are", "1 2 3 4 5 6 7 8")
    samplings = (GREEDY, DRAWN, GREEDY, DRAWN)
    return [
        Ask(
            token_ids=runner.tokenizer.encode(prompt, markers=False),
            max_tokens=10,
            sampling=sampling,
        )
        for prompt, sampling in zip(prompts, samplings, strict=True)
    ]


def test_answers_are_the_same_in_every_situation(runner: TorchRunner, asks: list[Ask]) -> None:
    """ggml-org/llama.cpp#7052: the same seed gave other answers under load."""
    expected, from_cache = twice(runner, asks)
    assert from_cache == expected
    for name, situation in SITUATIONS.items():
        assert situation(runner, asks, expected) == expected, name


def test_choices_of_one_seed_differ_and_share_their_prompt(engine: Engine) -> None:
    """vllm#10852, vllm#39647: n=4 gave four equal answers, or held the prompt four times."""
    request = text(PARAGRAPH, n=4, sampling=SamplingParams(temperature=1.3, seed=5))
    engine.send(request)
    most_used = 0
    while engine.encoded or engine.loop.has_work:
        engine.step()
        most_used = max(most_used, engine.loop.stats().kv_used_tokens)
    answers = {engine.text("r", index) for index in range(4)}
    assert len(answers) == 4
    assert most_used < 3 * engine.finished("r").usage.prompt_tokens
    again = text(PARAGRAPH, id="again", n=4, sampling=SamplingParams(temperature=1.3, seed=5))
    run(engine, again)
    assert {engine.text("again", index) for index in range(4)} == answers


def test_a_prompt_is_found_again_within_a_salt_and_never_across(engine: Engine) -> None:
    """vllm#16016 (CVE-2025-46570)."""
    salts = (b"a", b"b", b"a")
    answers = [
        run(engine, text(PARAGRAPH, id=str(number), cache_salt=salt))[0]
        for number, salt in enumerate(salts)
    ]
    cached = [engine.finished(str(number)).usage.cached_tokens for number in range(3)]
    assert cached[:2] == [0, 0]
    assert 0 < engine.finished("2").usage.prompt_tokens - cached[2] <= 16
    assert len(set(answers)) == 1


def test_logprobs_are_those_of_the_raw_row(engine: Engine) -> None:
    sampling = SamplingParams(temperature=0.0, logprobs=True, num_top_logprobs=3)
    run(engine, text("One, two, three,", sampling=sampling))
    told = [entry for delta in engine.deltas("r") for entry in delta.logprobs]
    assert len(told) == 12
    for entry in told:
        assert entry.chosen.token == entry.top[0].token
        logprobs = [top.logprob for top in entry.top]
        assert logprobs == sorted(logprobs, reverse=True)
        assert sum(map(math.exp, logprobs)) <= 1.0 + 1e-5


def test_a_prompt_has_the_same_logprobs_each_time(engine: Engine) -> None:
    """vllm#8268, vllm#13105, vllm#42245: the second request got what the cache had left."""
    told = []
    for request_id in ("once", "again"):
        sampling = SamplingParams(temperature=0.0, logprobs=True, num_top_logprobs=2)
        request = text(
            PARAGRAPH, id=request_id, max_tokens=0, sampling=sampling, echoes_prompt=True
        )
        run(engine, request)
        assert engine.finished(request_id).usage.completion_tokens == 0
        told.append(engine.deltas(request_id)[0])
    first, second = told
    assert first.text == second.text == PARAGRAPH
    assert len(first.logprobs) == engine.finished("once").usage.prompt_tokens
    assert first.logprobs[1:] == second.logprobs[1:]
    assert all(-2.0 < entry.chosen.logprob <= 0.0 for entry in first.logprobs[-6:-2])


@pytest.mark.parametrize("temperature", [0.0, 1.5])
def test_an_answer_is_held_to_its_schema_and_its_neighbour_is_free(
    engine: Engine, temperature: float
) -> None:
    held = chat(
        "How old are you? As JSON.",
        id="held",
        output_format=OutputFormat(kind="json_schema", text=json.dumps(SCHEMA)),
        sampling=SamplingParams(temperature=temperature, seed=3),
    )
    free = text("Hello", id="free", max_tokens=4)
    run(engine, held, free)
    jsonschema.validate(json.loads(engine.text("held")), SCHEMA)
    assert engine.reasons("free") == {0: FinishReason.LENGTH}


def test_a_call_can_be_required(engine: Engine) -> None:
    request = chat(
        "Find customer 417.",
        tools=(FIND,),
        tool_choice=ToolChoice(mode="required"),
        sampling=GREEDY,
    )
    run(engine, request)
    assert engine.reasons("r") == {0: FinishReason.TOOL_CALLS}
    (call,) = engine.calls("r")
    assert call.name == "find"
    assert set(json.loads(call.arguments)) == {"no"}


def test_answers_end_where_they_shall(engine: Engine) -> None:
    counting = "1 2 3 4 5 6 7 8 9 1 2 3 4 5 6 7 8 9 1 2 3 4"
    stopped = text(counting, id="stop", stopping=StopConditions(max_tokens=30, stop=("8",)))
    longer = text(
        counting, id="min", stopping=StopConditions(max_tokens=9, min_tokens=9, ignores_eos=True)
    )
    run(engine, stopped, longer)
    assert engine.text("stop") == " 5 6 7 "
    assert engine.reasons("stop") == {0: FinishReason.STOP}
    assert engine.finished("min").usage.completion_tokens == 9


def test_penalties_and_biases_change_what_is_said(engine: Engine) -> None:
    loops = "again and again and again and again and again and"
    (again, other) = run(
        engine,
        text(loops, id="again"),
        text(loops, id="other", sampling=SamplingParams(temperature=0.0, frequency_penalty=2.0)),
    )
    assert again.count("again") > other.count("again")


def test_guessing_changes_no_text(runner: TorchRunner, encoder: PromptEncoder) -> None:
    request = text(PARAGRAPH, max_tokens=40)
    runner.kv.forget_all()
    plain = Engine(runner, encoder)
    run(plain, request)
    runner.kv.forget_all()
    guessing = Engine(runner, encoder, speculates=True)
    run(guessing, request)
    assert guessing.loop.stats().num_accepted > 0
    assert guessing.text("r") == plain.text("r")
    assert guessing.loop.stats().num_steps < plain.loop.stats().num_steps


def test_a_row_without_numbers_fails_alone(
    runner: TorchRunner, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """vllm#2484: one request's NaN ended all that ran beside it."""
    forward = runner._model.forward

    def poisoned(inputs: Any, cache: Any) -> torch.Tensor:
        logits = forward(inputs, cache)
        logits[inputs.token_ids[inputs.output_rows] == poison] = torch.nan
        return logits

    (poison,) = runner.tokenizer.encode("!", markers=False)
    monkeypatch.setattr(runner._model, "forward", poisoned)
    engine.send(text("Oh no!", id="poisoned"))
    run(engine, text("Oh well.", id="well"))
    assert engine.failure("poisoned").code == "engine.row_not_finite"
    assert engine.finished("well").usage.completion_tokens > 0


def test_a_step_without_memory_drops_the_largest_and_goes_on(
    runner: TorchRunner, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    forward = runner._model.forward

    def cramped(inputs: Any, cache: Any) -> torch.Tensor:
        if inputs.max_query_length > 40:
            raise torch.OutOfMemoryError
        return forward(inputs, cache)

    monkeypatch.setattr(runner._model, "forward", cramped)
    engine.send(text(PARAGRAPH, id="large"))
    run(engine, text("One, two,", id="small"))
    assert engine.failure("large").code == "engine.step_out_of_memory"
    assert engine.finished("small").usage.completion_tokens == 12
