"""`hisar fit`: what a model would take, and whether that is there."""

import json
from pathlib import Path

import pytest

from appliance.catalogue import ModelFile, ModelSpec
from appliance.commands.fit import judge
from appliance.config import EngineConfig
from appliance.errors import ConfigError
from appliance.footprint import WORKER_BYTES
from tests.appliance.commands.conftest import Hisar
from tests.engines.llamacpp.gguf_files import gguf

# One block, two heads for keys and values of eight 16-bit numbers each.
KV_BYTES = 2 * 2 * (8 + 8)


@pytest.fixture
def model(hisar: Hisar, tmp_path: Path) -> str:
    path = tmp_path / "küçük.gguf"
    path.write_bytes(gguf())
    imported = hisar.json("models", "import", str(path), "--name", "tiny")
    assert (imported["trained_tokens"], imported["kv_bytes_per_token"]) == (64, KV_BYTES)
    return "tiny"


def test_the_parts_and_the_verdict_are_told(hisar: Hisar, model: str) -> None:
    found = hisar.json("fit", model, "--ctx", "64", "--parallel", "8")
    assert found["kv_bytes"] == KV_BYTES * 256 * 8
    parts = found["weights_bytes"] + found["kv_bytes"] + found["worker_bytes"]
    assert found["total_bytes"] == parts
    assert found["spare_bytes"] == found["free_bytes"] - parts
    assert found["fits"]
    assert "it fits" in hisar("fit", model).stdout


def test_what_is_missing_is_told_with_exit_code_1(hisar: Hisar, model: str) -> None:
    done = hisar("fit", model, "--parallel", str(2**31 - 1))
    assert done.returncode == 1
    assert "are missing" in done.stdout
    done = hisar("fit", model, "--parallel", str(2**31 - 1), "--json")
    assert done.returncode == 1
    assert json.loads(done.stdout)["spare_bytes"] < 0


def test_the_configuration_is_heeded(hisar: Hisar, model: str) -> None:
    (hisar.home / "config.toml").write_text(
        'aliases = {fast = "tiny"}\n[engine]\nmemory_bytes = 1000\nnum_slots = 3\n'
    )
    found = json.loads(hisar("fit", "fast", "--json").stdout)
    assert (found["model"], found["num_slots"], found["free_bytes"]) == (model, 3, 1000)
    assert not found["fits"]


def test_an_unknown_model_and_too_long_a_context_are_refused(hisar: Hisar, model: str) -> None:
    assert hisar("fit", "nobody").returncode == 66
    done = hisar("fit", model, "--ctx", "65")
    assert done.returncode == 78
    assert "engine.context_too_long" in done.stderr
    assert "64" in done.stderr


def test_a_model_that_came_in_earlier_is_looked_at_again(hisar: Hisar, model: str) -> None:
    manifest = hisar.home / "models" / model / "manifest.json"
    noted = json.loads(manifest.read_text())
    for name in ("trained_tokens", "kv_bytes_per_token"):
        del noted[name]
    manifest.write_text(json.dumps(noted))
    assert hisar.json("fit", model)["kv_bytes"] == KV_BYTES * 256


SPEC = ModelSpec(
    name="m",
    runner="llamacpp",
    files=(ModelFile(path="x", size_bytes=1000, sha256=""),),
    kv_bytes_per_token=10,
)


def test_a_model_fits_to_the_byte() -> None:
    need = WORKER_BYTES + 1000 + 10 * 512 * 2
    for free_bytes, fits in ((need, True), (need - 1, False)):
        found = judge(
            SPEC, EngineConfig(), context_tokens=300, num_slots=2, available_bytes=free_bytes
        )
        assert (found.fits, found.total_bytes) == (fits, need)
        assert found.spare_bytes == free_bytes - need


@pytest.mark.parametrize(("share", "prefix_bytes"), [(0.125, 1000), (0.0, 0)])
def test_what_is_left_has_a_share_for_prefixes(share: float, prefix_bytes: int) -> None:
    need = WORKER_BYTES + 1000 + 10 * 256
    engine = EngineConfig(prefix_memory_share=share)
    found = judge(SPEC, engine, context_tokens=256, num_slots=1, available_bytes=need + 8000)
    assert (found.spare_bytes, found.prefix_bytes) == (8000, prefix_bytes)


def test_without_a_trained_length_any_context_may_be_asked_about() -> None:
    found = judge(SPEC, EngineConfig(), context_tokens=10**6, num_slots=1, available_bytes=1)
    assert found.context_tokens == 10**6
    with pytest.raises(ConfigError):
        judge(
            ModelSpec(name="m", runner="llamacpp", trained_tokens=10),
            EngineConfig(),
            context_tokens=11,
            num_slots=1,
            available_bytes=1,
        )
