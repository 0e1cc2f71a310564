"""Drafts on the real model: the same tokens, true logprobs, and what was wrong is forgotten.

In deterministic mode, where a token is computed alike whatever is computed beside it. Without it
one that was drafted is rounded in another way than one that comes alone.
"""

import json
from collections.abc import Iterator
from contextlib import closing
from itertools import count
from pathlib import Path

import pytest

from appliance.generation import FinishReason, OutputFormat, SamplingParams
from engines.constraint import Constraint
from engines.grammar import GrammarCompiler
from engines.grammar_text import AnswerShape
from engines.llamacpp.runner import LlamaRunner, start
from engines.runner import Chunk, RunnerOptions, Sampled, StepPlan
from engines.scheduler import Scheduler
from engines.sequence import Sequence
from engines.speculation import Speculation
from engines.vocabulary import Vocabulary

pytestmark = pytest.mark.model

# What is found in the cache is not computed in the same rows: nothing is found here.
_salts: Iterator[int] = count()


@pytest.fixture(scope="module")
def runner(model_path: Path) -> Iterator[LlamaRunner]:
    options = RunnerOptions(
        model="smollm2:135m", path=model_path, context_tokens=512, num_slots=8, deterministic=True
    )
    with closing(start(options)) as runner:
        assert isinstance(runner, LlamaRunner)
        yield runner


POEM = "Roses are red, violets are blue, sugar is sweet, and so are you."
GREEDY = SamplingParams(temperature=0.0, logprobs=True, num_top_logprobs=2)
PENALISED = SamplingParams(temperature=0.0, frequency_penalty=0.3, repetition_penalty=1.05)
DRAWN = SamplingParams(temperature=0.8, top_p=0.95, seed=11)


def make_sequence(
    runner: LlamaRunner,
    text: str,
    *,
    sampling: SamplingParams = GREEDY,
    max_tokens: int = 40,
    constraint: Constraint | None = None,
) -> Sequence:
    token_ids = runner.tokenizer.encode(text, markers=True)
    return Sequence(
        request_id=text,
        index=0,
        num_prompt_tokens=len(token_ids),
        token_ids=token_ids,
        max_tokens=max_tokens,
        sampling=sampling,
        seed=11,
        cache_salt=b"%d" % next(_salts),
        constraint=constraint,
    )


def turn(question: str) -> str:
    return f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"


def write(
    runner: LlamaRunner, *sequences: Sequence, speculates: bool
) -> tuple[list[list[Sampled]], Scheduler]:
    """What each is given until it ends. A drafted token seems to cost nothing."""
    scheduler = Scheduler(
        runner.kv,
        step_tokens=runner.step_tokens,
        max_running=8,
        speculation=Speculation(runner.kv) if speculates else None,
    )
    given: dict[str, list[Sampled]] = {sequence.request_id: [] for sequence in sequences}
    for sequence in sequences:
        scheduler.add(sequence)
    while (plan := scheduler.plan(0.0)) is not None:
        for sequence, sampled in scheduler.commit(plan, runner.execute(plan), seconds=1.0):
            assert isinstance(sampled, Sampled)
            given[sequence.request_id].append(sampled)
            is_last = sequence.num_output_tokens == sequence.max_tokens
            is_ended = runner.tokenizer.ends_generation(sampled.token_id)
            if not is_ended and sequence.constraint is not None:
                sequence.constraint.accept(sampled.token_id)
                is_ended = sequence.constraint.is_complete
            if is_last or is_ended:
                scheduler.finish(sequence, FinishReason.STOP)
    return list(given.values()), scheduler


@pytest.mark.parametrize(
    ("text", "sampling"),
    [
        ("serving" * 48, GREEDY),
        (turn(f"Repeat this text exactly: {POEM}"), GREEDY),
        (turn(f"Repeat this text exactly: {POEM}"), PENALISED),
        (turn(f"Repeat this text exactly: {POEM}"), DRAWN),
        (turn("Name three fruits."), DRAWN),
    ],
    ids=["one word over and over", "copied", "penalised", "drawn", "not copied"],
)
def test_tokens_and_logprobs_are_those_without_drafts(
    runner: LlamaRunner, text: str, sampling: SamplingParams
) -> None:
    """vllm#41758, vllm#17876: with n-gram drafts the text changed and logprobs were 0.0."""
    plain, _ = write(runner, make_sequence(runner, text, sampling=sampling), speculates=False)
    drafted, _ = write(runner, make_sequence(runner, text, sampling=sampling), speculates=True)
    assert drafted == plain


def test_a_copy_takes_a_fraction_of_the_steps(runner: LlamaRunner) -> None:
    sequence = make_sequence(runner, "one, two, three, four, five. " * 6)
    (given,), scheduler = write(runner, sequence, speculates=True)
    stats = scheduler.stats()
    assert len(given) == stats.generation_tokens
    assert stats.num_steps < len(given) / 2
    assert stats.num_drafted >= stats.num_accepted > len(given) / 2


def test_sequences_that_copy_beside_others_write_the_same(runner: LlamaRunner) -> None:
    texts = [turn(f"Repeat this text exactly: {POEM}"), turn("Say hello."), turn(f"Repeat: {POEM}")]
    plain, _ = write(runner, *(make_sequence(runner, t) for t in texts), speculates=False)
    drafted, scheduler = write(runner, *(make_sequence(runner, t) for t in texts), speculates=True)
    assert scheduler.stats().num_accepted > 10
    assert [ids(each) for each in drafted] == [ids(each) for each in plain]


def test_what_was_guessed_wrong_is_forgotten(runner: LlamaRunner) -> None:
    sequence = make_sequence(runner, turn("What is the capital of France?"))
    assert runner.kv.admit(sequence)
    length = sequence.num_uncomputed
    (first,) = execute(runner, sequence, length)
    sequence.token_ids.append(first.token_id)
    wrong = (first.token_id,) * 5
    (second, *_) = execute(runner, sequence, 1, wrong)
    sequence.token_ids.append(second.token_id)
    (third,) = execute(runner, sequence, 1)
    runner.kv.release(sequence, reusable=False)
    plain, _ = write(
        runner, make_sequence(runner, sequence.request_id, max_tokens=3), speculates=False
    )
    assert [first, second, third] == plain[0]


def test_guided_output_stays_valid(runner: LlamaRunner) -> None:
    """vllm#9423, vllm#40875: speculation with guided output gave broken JSON."""
    schema = {
        "type": "array",
        "minItems": 4,
        "maxItems": 4,
        "items": {
            "type": "object",
            "properties": {"name": {"enum": ["Ada", "Alan"]}, "born": {"enum": [1815, 1912]}},
            "required": ["name", "born"],
            "additionalProperties": False,
        },
    }
    shape = AnswerShape(output_format=OutputFormat(kind="json_schema", text=json.dumps(schema)))
    grammar = GrammarCompiler(Vocabulary(runner.tokenizer)).compile(shape)
    answers = []
    for speculates in (False, True):
        sequence = make_sequence(
            runner, turn("List four people."), constraint=grammar.begin(), max_tokens=150
        )
        (given,), scheduler = write(runner, sequence, speculates=speculates)
        answers.append(b"".join(map(runner.tokenizer.piece, ids(given))))
    assert answers[0] == answers[1]
    assert len(json.loads(answers[1])) == 4
    assert scheduler.stats().num_accepted > 10


def execute(
    runner: LlamaRunner, sequence: Sequence, length: int, drafts: tuple[int, ...] = ()
) -> tuple[Sampled, ...]:
    """One step of one sequence, by hand."""
    start = sequence.num_computed
    chunk = Chunk(sequence=sequence, start=start, length=length, samples=True, drafts=drafts)
    (answer,) = runner.execute(StepPlan(chunks=(chunk,)))
    sequence.num_computed += length
    assert isinstance(answer, Sampled | tuple)
    return answer if isinstance(answer, tuple) else (answer,)


def ids(results: list[Sampled]) -> list[int]:
    return [result.token_id for result in results]
