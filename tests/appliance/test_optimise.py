"""A model's name stands for its best format only when all is done, and can always go back."""

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec import structs

from appliance.catalogue import Library, ModelFile, ModelSpec
from appliance.errors import CatalogueError, UsageError
from appliance.footprint import measure
from appliance.locks import hold
from appliance.optimise import optimise, restore
from appliance.optimise_records import Effort, Optimisation
from appliance.pull import Order, order_known, pull, verify
from tests import small_model
from tests.appliance.sources.gguf import tiny_gguf

NAME = "küçük/model:1"
LITTLE = Effort(num_rounds=1, num_tokens=2, num_samples=1, max_sequences=1, formats=("Q8_0",))
ANY_LOSS = 100.0


@pytest.fixture
def library(tmp_path: Path) -> Library:
    return Library(tmp_path / "modeller ğüşİı" / "models")


@pytest.fixture
def real(library: Library) -> ModelSpec:
    return pull(library, Order(name=NAME, source=f"file:{small_model.PATH}"))


def files_of(library: Library) -> set[Path]:
    """Every file of the library, but for locks."""
    found = (path for path in library.root.rglob("*") if path.is_file())
    return {path for path in found if ".locks" not in path.parts}


@pytest.mark.model
def test_a_model_is_measured_its_figures_are_kept_and_it_goes_back(
    library: Library, real: ModelSpec
) -> None:
    before, told = files_of(library), list[str]()
    spec = optimise(
        library, NAME, profile="latency", max_loss=ANY_LOSS, effort=LITTLE, tell=told.append
    )
    note = spec.optimisation
    assert note is not None
    assert library.get(NAME) == spec
    assert [result.format for result in note.results] == ["Q4_1", "Q8_0"]
    assert note.is_requantised
    assert note.results[1].perplexity < 1.1 * note.results[0].perplexity
    assert "round 1 of 1: speed of Q8_0" in told
    assert set(real.files) <= set(spec.files)
    verify(library, spec, in_full=True)
    again = Order(name=NAME, source="file:/nowhere.gguf", expected=real.files)
    assert pull(library, again) == spec
    assert restore(library, NAME) == real
    assert files_of(library) == before


@pytest.mark.model
def test_a_copy_that_is_in_use_can_be_measured_again(library: Library, real: ModelSpec) -> None:
    spec = with_copy(library, real)
    assert measure(spec, context_tokens=1, num_slots=1).weights_bytes == 100
    second = optimise(library, NAME, profile="latency", max_loss=0, effort=LITTLE, tell=print)
    assert second.optimisation is not None
    assert second.optimisation.original_file == real.main_file
    # Which format wins depends on how busy the machine is; the old copy is gone either way.
    assert library.list() == (second,)
    assert set(real.files) <= set(second.files)
    assert not (library.folder(NAME) / "copy.gguf").exists()
    verify(library, second, in_full=True)


def with_copy(library: Library, real: ModelSpec) -> ModelSpec:
    """The model as an earlier run left it: on a copy, here of a hundred bytes."""
    (library.folder(NAME) / "copy.gguf").write_bytes(bytes(100))
    spec = structs.replace(
        real,
        main_file="copy.gguf",
        files=(*real.files, ModelFile(path="copy.gguf", size_bytes=100, sha256="")),
        optimisation=Optimisation(
            format="Q4_0",
            profile="latency",
            max_loss=0.05,
            original_file=real.main_file,
            measured_at=1,
            results=(),
        ),
    )
    library.replace(spec)
    return spec


@pytest.mark.model
@pytest.mark.parametrize("signal_name", ["SIGINT", "SIGKILL"])
def test_an_interrupted_run_leaves_the_model_as_it_was(
    library: Library, real: ModelSpec, signal_name: str
) -> None:
    before = files_of(library)
    script = f"""
        import os, signal
        from pathlib import Path
        from appliance.catalogue import Library
        from appliance.optimise import optimise
        from appliance.optimise_records import Effort

        # Whoever runs tests in the background may have had them ignore it.
        signal.signal(signal.SIGINT, signal.default_int_handler)

        def tell(doing):
            if "speed" in doing:
                os.kill(os.getpid(), signal.{signal_name})

        effort = Effort(num_rounds=1, num_tokens=2, num_samples=1, formats=("Q8_0",))
        library = Library(Path(os.environ["LIBRARY"]))
        optimise(library, {NAME!r}, profile="latency", effort=effort, tell=tell)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        env={**os.environ, "LIBRARY": str(library.root)},
        capture_output=True,
        check=False,
    )
    assert done.returncode != 0
    assert library.list() == (real,)
    verify(library, real, in_full=True)
    seen = {path for path in files_of(library) if ".optimise" not in path.parts}
    assert seen == before
    if signal_name == "SIGINT":
        assert files_of(library) == before


def test_a_model_without_a_file_has_no_formats(library: Library) -> None:
    pull(library, order_known("echo"))
    with pytest.raises(CatalogueError) as refused:
        optimise(library, "echo", profile="latency", effort=LITTLE, tell=print)
    assert refused.value.code == "model.not_optimisable"


def test_a_file_that_llama_cpp_refuses_is_an_error_and_nothing_changes(
    library: Library, tmp_path: Path
) -> None:
    (tmp_path / "x.gguf").write_bytes(tiny_gguf())
    spec = pull(library, Order(name=NAME, source=f"file:{tmp_path / 'x.gguf'}"))
    before = files_of(library)
    with pytest.raises(CatalogueError) as refused:
        optimise(library, NAME, profile="latency", effort=LITTLE, tell=print)
    assert refused.value.code == "model.file_refused"
    assert library.get(NAME) == spec
    assert files_of(library) == before


@pytest.mark.parametrize(
    "change",
    [
        lambda library: optimise(library, NAME, profile="latency", effort=LITTLE, tell=print),
        lambda library: restore(library, NAME),
    ],
)
def test_a_model_that_another_process_changes_is_busy(
    library: Library, tmp_path: Path, change: Callable[[Library], ModelSpec]
) -> None:
    (tmp_path / "x.gguf").write_bytes(tiny_gguf())
    pull(library, Order(name=NAME, source=f"file:{tmp_path / 'x.gguf'}"))
    with hold(library.lock(NAME)), pytest.raises(CatalogueError) as refused:
        change(library)
    assert refused.value.code == "model.busy"


def test_a_model_that_was_never_optimised_cannot_be_restored(library: Library) -> None:
    pull(library, order_known("echo"))
    with pytest.raises(UsageError) as refused:
        restore(library, "echo")
    assert refused.value.code == "usage.not_optimised"
