"""The library on disk: names and folders, whole models only, broken ones apart."""

from pathlib import Path
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.catalogue import Library, ModelFile, ModelSpec, folder_name
from appliance.errors import CatalogueError

NAMES = ["smollm2:135m", "org/name:tag", "ğüşİı", "Qwen2.5-0.5B", "a/b/c@v1+x", "模型:一"]
_PART = st.text(st.sampled_from("abzAZ09_ğüşİıÇÖ模"), min_size=1, max_size=8)
NAME = st.lists(_PART, min_size=1, max_size=4).map("/".join)


@pytest.fixture
def library(tmp_path: Path) -> Library:
    return Library(tmp_path / "modeller ğüşİı")


def add(library: Library, name: str, content: bytes = b"weights") -> ModelSpec:
    folder = library.staging(name)
    folder.mkdir(parents=True)
    (folder / "m.gguf").write_bytes(content)
    file = ModelFile(path="m.gguf", size_bytes=len(content), sha256="")
    spec = ModelSpec(name=name, runner="llamacpp", files=(file,), main_file="m.gguf")
    library.add(spec)
    return spec


@given(NAME)
def test_a_name_and_its_folder_are_one_to_one(name: str) -> None:
    folder = folder_name(name)
    assert unquote(folder) == name
    assert "/" not in folder
    assert ":" not in folder


@pytest.mark.parametrize("name", NAMES)
def test_a_model_is_found_under_the_name_it_was_added_with(library: Library, name: str) -> None:
    spec = add(library, name)
    assert library.get(name) == spec
    assert library.list() == (spec,)
    assert library.path_of(spec).read_bytes() == b"weights"
    assert library.path_of(spec).is_absolute()


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "../x", "/x", "x/", "a//b", ":x", "a b", "a\0b", ".x", "-x", "a\nb", "x" * 300],
)
def test_a_name_that_could_leave_the_library_is_refused(library: Library, name: str) -> None:
    with pytest.raises(CatalogueError) as refused:
        folder_name(name)
    assert refused.value.code == "model.name_invalid"
    with pytest.raises(CatalogueError) as missing:
        library.get(name)
    assert missing.value.code == "model.not_found"


def test_both_unicode_forms_of_a_name_mean_the_same_model(library: Library) -> None:
    """ollama/ollama#16493: paths outside ASCII were mangled."""
    spec = add(library, "ğüş")
    assert library.get("g\u0306u\u0308s\u0327") == spec


def test_a_missing_model_is_answered_with_the_nearest_name(library: Library) -> None:
    add(library, "smollm2:135m")
    with pytest.raises(CatalogueError) as missing:
        library.get("smolm2:135m")
    assert missing.value.code == "model.not_found"
    assert "smollm2:135m" in missing.value.hint


def test_an_empty_library_has_no_models(library: Library) -> None:
    assert library.list() == ()
    assert library.broken() == ()


@pytest.mark.parametrize(
    "manifest",
    [
        b"",
        b"{",
        b"[]",
        b'{"name":"kirik"}',
        b'{"name":"other","runner":"echo"}',
        b'{"name":"kirik","runner":"x","files":[{"path":"../../etc/passwd","size_bytes":1,"sha256":""}]}',
        b'{"name":"kirik","runner":"x","main_file":"m.gguf"}',
        b"\xff\xfe",
    ],
)
def test_a_broken_manifest_is_reported_and_hides_no_other_model(
    library: Library, manifest: bytes
) -> None:
    good = add(library, "smollm2:135m")
    add(library, "kirik")
    (library.folder("kirik") / "manifest.json").write_bytes(manifest)
    assert library.list() == (good,)
    assert [broken.folder for broken in library.broken()] == [library.folder("kirik")]
    with pytest.raises(CatalogueError) as refused:
        library.get("kirik")
    assert refused.value.code == "model.manifest_broken"


def test_a_folder_without_a_manifest_is_reported(library: Library) -> None:
    library.folder("x").mkdir(parents=True)
    assert "manifest.json is missing" in library.broken()[0].reason


def test_a_model_that_is_being_fetched_is_not_seen(library: Library) -> None:
    library.staging("x").mkdir(parents=True)
    assert library.list() == ()
    assert library.broken() == ()


def test_adding_again_replaces_the_older_model(library: Library) -> None:
    add(library, "x", b"old")
    spec = add(library, "x", b"newer")
    assert library.path_of(library.get("x")).read_bytes() == b"newer"
    assert library.list() == (spec,)


def test_a_removed_model_is_gone_with_what_an_unfinished_pull_left(library: Library) -> None:
    add(library, "x")
    library.staging("x").mkdir(parents=True)
    library.remove("x")
    assert library.list() == ()
    assert not library.staging("x").exists()
    with pytest.raises(CatalogueError):
        library.remove("x")
