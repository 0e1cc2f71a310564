"""The real model under the real scheduler: the same answers alone, together, cached or copied."""

import logging
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from appliance.generation import FinishReason, SamplingParams
from engines.llamacpp.runner import LlamaRunner
from engines.runner import Chunk, RowError, Sampled, StepPlan
from engines.scheduler import Scheduler
from engines.sequence import Sequence

pytestmark = pytest.mark.model

QUESTIONS = [
    "What is the capital of France?",
    "Name three fruits.",
    "What is two plus two?",
    "Who wrote Hamlet?",
    "What colour is the sky?",
    "Where is Ankara?",
    "Say hello in Spanish.",
    "What do bees make?",
]


def make_sequence(
    runner: LlamaRunner,
    question: str,
    *,
    salt: bytes = b"",
    max_tokens: int = 24,
    sampling: SamplingParams | None = None,
) -> Sequence:
    prompt = f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n"
    token_ids = runner.tokenizer.encode(prompt, markers=True)
    return Sequence(
        request_id=question,
        index=0,
        num_prompt_tokens=len(token_ids),
        token_ids=token_ids,
        max_tokens=max_tokens,
        sampling=sampling or SamplingParams(temperature=0.0),
        seed=7,
        cache_salt=salt,
    )


def answer(runner: LlamaRunner, *sequences: Sequence) -> list[list[Sampled]]:
    """What each sequence is given, until it has `max_tokens` or the model ends its answer."""
    scheduler = Scheduler(runner.kv, step_tokens=runner.step_tokens, max_running=8)
    given: dict[int, list[Sampled]] = {id(sequence): [] for sequence in sequences}
    for sequence in sequences:
        scheduler.add(sequence)
    while (plan := scheduler.plan(0.0)) is not None:
        for sequence, result in scheduler.commit(plan, runner.execute(plan)):
            assert isinstance(result, Sampled)
            given[id(sequence)].append(result)
            is_last = sequence.num_output_tokens == sequence.max_tokens
            if is_last or runner.tokenizer.ends_generation(result.token_id):
                scheduler.finish(sequence, FinishReason.STOP)
    return [given[id(sequence)] for sequence in sequences]


def ids(results: list[Sampled]) -> list[int]:
    return [result.token_id for result in results]


def compute(runner: LlamaRunner, sequence: Sequence, length: int) -> Sampled | RowError | None:
    """One step of one sequence, by hand."""
    start = sequence.num_computed
    samples = start + length == len(sequence.token_ids)
    chunk = Chunk(sequence=sequence, start=start, length=length, samples=samples)
    (result,) = runner.execute(StepPlan(chunks=(chunk,)))
    sequence.num_computed += length
    return result


def test_it_knows_the_capital_of_france(runner: LlamaRunner) -> None:
    (results,) = answer(runner, make_sequence(runner, QUESTIONS[0]))
    assert b"Paris" in b"".join(map(runner.tokenizer.piece, ids(results)))


@pytest.mark.parametrize(
    "sampling",
    [SamplingParams(temperature=0.0), SamplingParams(temperature=1.0, top_p=0.9)],
    ids=["greedy", "drawn"],
)
def test_answers_are_the_same_alone_and_in_a_full_batch(
    runner: LlamaRunner, sampling: SamplingParams
) -> None:
    """ggml-org/llama.cpp#7052: the same seed gave other answers under load."""

    def make(number: int, question: str, salt: bytes) -> Sequence:
        return make_sequence(runner, question, salt=salt + b"%d" % number, sampling=sampling)

    alone = [
        answer(runner, make(number, question, b"alone"))[0]
        for number, question in enumerate(QUESTIONS)
    ]
    together = answer(runner, *(make(n, q, b"together") for n, q in enumerate(QUESTIONS)))
    assert [ids(results) for results in together] == [ids(results) for results in alone]


def test_a_prompt_is_cached_within_a_salt_and_never_across(runner: LlamaRunner) -> None:
    """vllm-project/vllm#16016 (CVE-2025-46570)."""
    salts = (b"tenant a", b"tenant b", b"tenant a")
    sequences = [make_sequence(runner, "Who was Atatürk?", salt=salt) for salt in salts]
    answers = [ids(answer(runner, sequence)[0]) for sequence in sequences]
    prompt = sequences[0].num_prompt_tokens
    assert [sequence.num_cached for sequence in sequences] == [0, 0, prompt - 2]
    assert answers[0] == answers[1] == answers[2]


def test_a_copied_and_trimmed_prefix_gives_equal_logits(runner: LlamaRunner) -> None:
    sampling = SamplingParams(temperature=0.0, logprobs=True, num_top_logprobs=20)
    fresh, holder, copied = (
        make_sequence(runner, "a b c d e f g h i j k l m n o p q r", salt=salt, sampling=sampling)
        for salt in (b"fresh", b"shared", b"shared")
    )
    copied.token_ids[-4:] = fresh.token_ids[-4:] = (
        runner.tokenizer.encode("cats purr", markers=False)[:1] * 4
    )
    num_shared = len(fresh.token_ids) - 4
    assert runner.kv.admit(fresh)
    compute(runner, fresh, num_shared)
    expected = compute(runner, fresh, 4)
    assert runner.kv.admit(holder)
    compute(runner, holder, num_shared)
    compute(runner, holder, 4)
    assert runner.kv.admit(copied)
    assert copied.num_cached == num_shared
    assert compute(runner, copied, 4) == expected
    for sequence in (fresh, holder, copied):
        runner.kv.release(sequence)


def test_the_end_of_a_long_prompt_is_computed_in_steps(runner: LlamaRunner) -> None:
    question = "Repeat: " + "one two three four five six seven eight nine ten " * 25
    sequence = make_sequence(runner, question, max_tokens=2)
    assert sequence.num_prompt_tokens > 2 * runner.step_tokens
    assert len(answer(runner, sequence)[0]) == 2


def test_prompt_scores_are_the_logprobs_the_tokens_were_given(runner: LlamaRunner) -> None:
    sampling = SamplingParams(temperature=0.0, logprobs=True, num_top_logprobs=2)
    first = make_sequence(runner, "Count to ten.", salt=b"1", max_tokens=8, sampling=sampling)
    (given,) = answer(runner, first)
    second = make_sequence(runner, "", salt=b"2", max_tokens=1, sampling=sampling)
    second.token_ids = first.token_ids.copy()
    second.num_prompt_tokens = len(second.token_ids)
    second.prompt_scores = []
    answer(runner, second)
    assert ids(second.prompt_scores) == second.token_ids[1 : second.num_prompt_tokens]
    for scored, was in zip(second.prompt_scores[-8:], given[-8:], strict=True):
        assert scored.logprob is not None
        assert was.logprob is not None
        assert scored.logprob.logprob == pytest.approx(was.logprob.logprob, abs=0.05)
        assert len(scored.top) == 2


def test_a_chunk_that_cannot_be_computed_fails_alone_and_leaves_the_memory_whole(
    runner: LlamaRunner,
) -> None:
    sequence = make_sequence(runner, QUESTIONS[0], salt=b"steady")
    expected = ids(answer(runner, make_sequence(runner, QUESTIONS[0], salt=b"before"))[0])
    assert runner.kv.admit(sequence)
    broken = make_sequence(runner, QUESTIONS[1], salt=b"broken")
    assert runner.kv.admit(broken)
    compute(runner, sequence, len(sequence.token_ids) - 1)
    compute(runner, broken, 3)
    leap = Chunk(sequence=broken, start=5, length=2, samples=False)
    last = Chunk(sequence=sequence, start=sequence.num_computed, length=1, samples=True)
    given, failed = runner.execute(StepPlan(chunks=(last, leap)))
    assert isinstance(given, Sampled)
    assert given.token_id == expected[0]
    assert isinstance(failed, RowError)
    assert failed.code == "engine.decode_failed"
    for ended in (broken, sequence):
        runner.kv.release(ended)
    (after,) = answer(runner, make_sequence(runner, QUESTIONS[0], salt=b"steady"))
    assert ids(after) == expected


def test_eight_sequences_are_computed_in_one_graph(
    start_runner: Callable[..., LlamaRunner],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("LLAMA_BATCH_DEBUG", "1")
    runner = start_runner(context_tokens=256)
    sequences = [make_sequence(runner, q, max_tokens=12) for q in QUESTIONS]
    with caplog.at_level(logging.DEBUG, logger="engines.llamacpp"):
        answer(runner, *sequences)
    text = caplog.text
    widths = [int(width) for width in re.findall(r"n_seqs +=\s+(\d+)", text)]
    per_sequence = [int(width) for width in re.findall(r"n_seq_tokens\s+=\s+(\d+)", text)]
    decodes = [width for width, n in zip(widths, per_sequence, strict=True) if n == 1]
    assert decodes.count(8) >= 10


def test_starting_and_computing_writes_nothing_to_stderr(model_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from engines.runner import RunnerOptions;"
        "from engines.llamacpp.runner import start;"
        "start(RunnerOptions(model='m', path=Path(sys.argv[1]), num_slots=1,"
        " context_tokens=256)).close()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(model_path)], capture_output=True, check=True
    )
    assert (done.stdout, done.stderr) == (b"", b"")
