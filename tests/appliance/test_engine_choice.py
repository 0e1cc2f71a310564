"""Which engine runs a model, and what is said where its libraries are missing."""

from pathlib import Path

import pytest

from appliance.catalogue import ModelFile, ModelSpec
from appliance.config import EngineConfig
from appliance.engine_choice import choose_runner
from appliance.errors import EngineError
from appliance.footprint import GPU_WORKER_BYTES, measure
from engines import runner as runners
from engines.runner import RunnerOptions

FILE = ModelFile(path="x", size_bytes=1000, sha256="")


def spec(runner: str, num_weights: int = 2000) -> ModelSpec:
    return ModelSpec(
        name="m", runner=runner, files=(FILE,), kv_bytes_per_token=10, num_weights=num_weights
    )


@pytest.mark.parametrize(
    ("own", "configured", "chosen"),
    [
        ("llamacpp", "auto", "llamacpp"),
        ("llamacpp", "llamacpp", "llamacpp"),
        ("llamacpp", "pytorch", "pytorch"),
        ("pytorch", "auto", "pytorch"),
        ("pytorch", "llamacpp", "pytorch"),
        ("echo", "pytorch", "echo"),
    ],
)
def test_the_configuration_decides_where_there_is_a_choice(
    own: str, configured: str, chosen: str
) -> None:
    engine = EngineConfig(runner=configured)  # type: ignore[arg-type]
    assert choose_runner(spec(own), engine) == chosen


def test_torch_takes_four_bytes_a_weight_on_a_processor() -> None:
    on_llama = measure(spec("llamacpp"), context_tokens=256)
    on_torch = measure(spec("llamacpp"), runner="pytorch", context_tokens=256)
    assert (on_llama.weights_bytes, on_llama.kv_bytes) == (1000, 2560)
    assert (on_torch.weights_bytes, on_torch.kv_bytes) == (8000, 5120)
    assert measure(spec("pytorch", num_weights=0)).weights_bytes == 8000


def test_weights_on_a_gpu_take_nothing_of_the_machines_memory() -> None:
    need = measure(spec("pytorch"), has_gpu=True, context_tokens=256)
    assert (need.worker_bytes, need.weights_bytes) == (GPU_WORKER_BYTES, 0)


def test_an_engine_that_is_not_installed_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(runners, "is_installed", lambda name: name != "pytorch")
    with pytest.raises(EngineError, match=r"-m pip install 'hisar\[pytorch\]'") as refused:
        runners.RUNNERS["pytorch"](RunnerOptions(model="m", path=Path("m")))
    assert refused.value.code == "engine.not_installed"
