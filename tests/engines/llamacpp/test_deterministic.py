"""In deterministic mode an answer is the same whoever else is asking, and whatever is cached."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import llama_cpp.llama_cpp as llama
import pytest
from gguf import GGMLQuantizationType

from appliance.environment import worker_environment
from appliance.errors import EngineError
from appliance.generation import SamplingParams
from engines.batch_invariance import is_batch_invariant
from engines.llamacpp.runner import LlamaRunner, start
from engines.runner import RunnerOptions
from tests.engines.llamacpp.llama_file import write_llama
from tests.engines.situations import SITUATIONS, Ask, next_turns, twice

TOPICS = ["the sea", "old maps", "bread", "a lost key", "two friends", "snow"]
SENTENCE = "The harbour was quiet and the boats lay side by side. "
# Sentences before a question: kernels change at 64 tokens, and llama.cpp's memory at 256.
NUM_SENTENCES = {3: 6, 6: 6, 9: 19}
DRAWN = SamplingParams(temperature=0.9, top_p=0.95)


@pytest.fixture(scope="module")
def steady(model_path: Path) -> Iterator[LlamaRunner]:
    options = RunnerOptions(
        model="smollm2:135m", path=model_path, context_tokens=512, num_slots=8, deterministic=True
    )
    runner = start(options)
    assert isinstance(runner, LlamaRunner)
    with closing(runner):
        yield runner


def a_dozen(runner: LlamaRunner) -> list[Ask]:
    """Greedy and drawn answers to short and long prompts."""
    asks = []
    for number, topic in enumerate(TOPICS * 2):
        text = SENTENCE * NUM_SENTENCES.get(number, 0) + f"Write about {topic}."
        prompt = f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n"
        sampling = DRAWN if number % 2 else SamplingParams(temperature=0.0)
        token_ids = runner.tokenizer.encode(prompt, markers=True)
        asks.append(Ask(token_ids=token_ids, max_tokens=8, sampling=sampling))
    return asks


@pytest.mark.model
def test_the_same_request_gets_the_same_answer_in_every_situation(steady: LlamaRunner) -> None:
    """ggml-org/llama.cpp#7052: the same seed gave other answers under load."""
    asks = a_dozen(steady)
    expected, again = twice(steady, asks)
    assert again == expected
    for name, answers in SITUATIONS.items():
        assert answers(steady, asks, expected) == expected, name


@pytest.mark.model
def test_a_conversation_goes_on_as_if_it_were_read_anew(steady: LlamaRunner) -> None:
    cold, warm = next_turns(steady, a_dozen(steady)[:4])
    assert warm == cold


@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"])
def test_quantised_formats_are_deterministic(tmp_path: Path, kind: str) -> None:
    runner = start_tiny(tmp_path, GGMLQuantizationType[kind])
    with closing(runner):
        assert runner.kv.used_tokens == runner.kv.cached_tokens == 0


def test_a_format_that_cannot_be_deterministic_is_refused(tmp_path: Path) -> None:
    with pytest.raises(EngineError) as caught:
        start_tiny(tmp_path, GGMLQuantizationType.F16)
    assert caught.value.code == "engine.not_deterministic"


def test_k_quants_do_without_kernels_that_round_in_another_way(tmp_path: Path) -> None:
    """In a process of its own: which kernels there are is settled by the first that is used."""
    plain = write_llama(tmp_path / "plain.gguf", GGMLQuantizationType.F32)
    path = tmp_path / "k.gguf"
    params = llama.llama_model_quantize_default_params()
    params.ftype = llama.LLAMA_FTYPE_MOSTLY_Q4_K_M
    assert not llama.llama_model_quantize(bytes(plain), bytes(path), params)
    program = (
        "import sys; from pathlib import Path; from engines.runner import RunnerOptions;"
        "from engines.llamacpp.runner import start;"
        "start(RunnerOptions(model='k', path=Path(sys.argv[1]), num_threads=1,"
        " deterministic=True)).close()"
    )
    command = [sys.executable, "-c", program, str(path)]
    subprocess.run(command, env=worker_environment(deterministic=True), check=True)


def test_without_the_mode_the_shape_of_a_batch_may_matter(tmp_path: Path) -> None:
    """What makes the check at the start worth its time."""
    with closing(start_tiny(tmp_path, GGMLQuantizationType.F16, deterministic=False)) as runner:
        assert not is_batch_invariant(runner)


def start_tiny(
    folder: Path, kind: GGMLQuantizationType, *, deterministic: bool = True
) -> LlamaRunner:
    options = RunnerOptions(
        model="tiny",
        path=write_llama(folder / "tiny.gguf", kind),
        num_slots=4,
        num_threads=1,
        deterministic=deterministic,
    )
    runner = start(options)
    assert isinstance(runner, LlamaRunner)
    return runner
