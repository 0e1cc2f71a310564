"""A model comes into the library whole and checked, or not at all."""

import hashlib
import os
from pathlib import Path

import pytest

from appliance.catalogue import Library, ModelFile
from appliance.errors import CatalogueError, MachineError
from appliance.locks import hold
from appliance.pull import Order, order_known, pull, verify
from tests.appliance.sources.gguf import tiny_gguf

TINY = tiny_gguf()
DIGEST = hashlib.sha256(TINY).hexdigest()


@pytest.fixture
def library(tmp_path: Path) -> Library:
    return Library(tmp_path / "modeller ğüşİı" / "models")


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    path = tmp_path / "küçük.gguf"
    path.write_bytes(TINY)
    return path


def order(path: Path, *, replaces: bool = False, sha256: str = "") -> Order:
    return Order(name="ğüşİı/model:1", source=f"file:{path}", replaces=replaces, sha256=sha256)


def test_a_model_is_added_under_its_name_with_its_digest(library: Library, weights: Path) -> None:
    spec = pull(library, order(weights))
    assert spec.files == (ModelFile(path=weights.name, size_bytes=len(TINY), sha256=DIGEST),)
    assert library.get("ğüşİı/model:1") == spec
    assert library.path_of(spec).read_bytes() == TINY


def test_a_known_model_without_weights_needs_no_file(library: Library) -> None:
    spec = pull(library, order_known("echo"))
    assert (spec.runner, spec.files, spec.main_file) == ("echo", (), "")
    assert library.path_of(spec) == library.folder("echo").absolute()


@pytest.mark.parametrize("content", [b"", b"GGUF", b"<html>not found</html>", TINY[:-8], TINY[:60]])
def test_a_broken_file_is_refused_and_nothing_is_added(
    library: Library, weights: Path, content: bytes
) -> None:
    weights.write_bytes(content)
    with pytest.raises(CatalogueError) as refused:
        pull(library, order(weights))
    assert refused.value.code == "model.file_broken"
    assert library.list() == ()
    assert weights.read_bytes() == content


def test_a_file_of_another_digest_is_refused(library: Library, weights: Path) -> None:
    with pytest.raises(CatalogueError) as refused:
        pull(library, order(weights, sha256="0" * 64))
    assert refused.value.code == "model.digest_mismatch"
    assert library.list() == ()
    assert pull(library, order(weights, sha256=DIGEST.upper())) == library.list()[0]


def test_a_failed_pull_leaves_the_older_model_as_it_was(library: Library, weights: Path) -> None:
    spec = pull(library, order(weights))
    weights.unlink()
    with pytest.raises(CatalogueError) as refused:
        pull(library, order(weights, replaces=True))
    assert refused.value.code == "model.source_not_found"
    assert library.get(spec.name) == spec
    verify(library, spec, in_full=True)


def test_a_model_is_only_replaced_when_that_is_asked_for(
    library: Library, weights: Path, tmp_path: Path
) -> None:
    spec = pull(library, order(weights))
    other = tmp_path / "other.gguf"
    other.write_bytes(tiny_gguf(num_values=96))
    for path in (other, weights):
        with pytest.raises(CatalogueError) as refused:
            pull(library, order(path))
        assert refused.value.code == "model.exists"
        assert "--replace" in refused.value.hint
    assert library.get(spec.name) == spec
    pull(library, order(other, replaces=True))
    assert library.path_of(library.get(spec.name)).read_bytes() == other.read_bytes()


def test_a_model_of_a_known_name_from_elsewhere_is_not_replaced(
    library: Library, weights: Path
) -> None:
    spec = pull(library, Order(name="smollm2:135m", source=f"file:{weights}"))
    with pytest.raises(CatalogueError) as refused:
        pull(library, order_known("smollm2:135m"))
    assert refused.value.code == "model.exists"
    assert library.list() == (spec,)


def test_a_broken_model_is_replaced(library: Library, weights: Path) -> None:
    spec = pull(library, order(weights))
    library.path_of(spec).unlink()
    assert pull(library, order(weights)).files == spec.files
    (library.folder(spec.name) / "manifest.json").write_bytes(b"{")
    assert pull(library, order(weights)).files == spec.files


def test_a_failed_import_leaves_nothing_behind(library: Library, weights: Path) -> None:
    broken = weights.with_name("broken.gguf")
    broken.write_bytes(b"GGUF")
    for bad in (
        order(weights.with_name("gone.gguf")),
        order(broken),
        order(weights, sha256="0" * 64),
        order(weights.parent / "empty" / "folder"),
        Order(name="x", source="pypi:no-version"),
    ):
        with pytest.raises(CatalogueError):
            pull(library, bad)
        assert not list((library.root / ".pulls").iterdir())


def test_a_pinned_model_that_is_here_is_not_fetched_again(library: Library, weights: Path) -> None:
    spec = pull(library, order(weights))
    nowhere = Order(name=spec.name, source="file:/nowhere.gguf", expected=spec.files)
    assert pull(library, nowhere) == spec
    library.path_of(spec).unlink()
    with pytest.raises(CatalogueError) as refused:
        pull(library, nowhere)
    assert refused.value.code == "model.source_not_found"


def test_two_pulls_of_one_model_do_not_meet(library: Library, weights: Path) -> None:
    with hold(library.lock("ğüşİı/model:1")), pytest.raises(CatalogueError) as refused:
        pull(library, order(weights))
    assert refused.value.code == "model.busy"
    assert str(os.getpid()) in refused.value.message


def test_a_full_disk_is_not_tried_again(library: Library) -> None:
    """ollama/ollama#911: a full disk was taken for a passing fault."""
    known = order_known("smollm2:135m")
    with pytest.raises(MachineError) as refused:
        pull(library, Order(name="x", source="pypi:a==1", expected=known.expected),
             free_space=lambda _: 0)  # fmt: skip
    assert refused.value.code == "machine.disk_full"


def test_a_library_that_cannot_be_made_is_said_with_its_path(tmp_path: Path) -> None:
    (tmp_path / "models").write_text("")
    with pytest.raises(MachineError) as refused:
        pull(Library(tmp_path / "models"), order_known("echo"))
    assert str(tmp_path / "models") in refused.value.message


def test_an_unknown_name_is_answered_with_the_known_ones() -> None:
    with pytest.raises(CatalogueError) as refused:
        order_known("gpt-9")
    assert refused.value.code == "model.unknown"
    assert "smollm2:135m" in refused.value.hint


@pytest.mark.parametrize("damage", ["shorter", "changed", "gone"])
def test_damage_on_disk_is_found(library: Library, weights: Path, damage: str) -> None:
    spec = pull(library, order(weights))
    path = library.path_of(spec)
    path.unlink()
    if damage != "gone":
        path.write_bytes(TINY[:-1] if damage == "shorter" else TINY[:-1] + b"x")
    with pytest.raises(CatalogueError) as found:
        verify(library, spec, in_full=True)
    assert found.value.code == "model.file_broken"
    assert str(path) in found.value.message
