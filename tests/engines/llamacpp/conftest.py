"""The small real model, and a runner on it."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from engines.llamacpp.runner import LlamaRunner, start
from engines.runner import RunnerOptions
from tests import small_model


@pytest.fixture(scope="session")
def model_path() -> Path:
    """SmolLM2 135M, which tests marked `model` may count on."""
    return small_model.PATH


@pytest.fixture(scope="session")
def start_runner(model_path: Path) -> Iterator[Callable[..., LlamaRunner]]:
    """Starts small runners on the model; each is closed at the end."""
    started: list[LlamaRunner] = []

    def start_one(
        *, num_slots: int = 8, context_tokens: int = 512, prefix_bytes: int = 0
    ) -> LlamaRunner:
        options = RunnerOptions(
            model="smollm2:135m",
            path=model_path,
            context_tokens=context_tokens,
            num_slots=num_slots,
            step_tokens=128,
            prefix_bytes=prefix_bytes,
        )
        started.append(start(options))
        return started[-1]

    yield start_one
    for runner in started:
        runner.close()


@pytest.fixture(scope="session")
def runner(start_runner: Callable[..., LlamaRunner]) -> LlamaRunner:
    """One runner for all tests that leave nothing running in it."""
    return start_runner()
