"""Models from this machine's disk come in without copying where that can be had."""

import os
from pathlib import Path

import msgspec
import pytest

from appliance.errors import CatalogueError, MachineError
from appliance.progress import Silent
from appliance.sources import local
from appliance.sources.fetching import Fetching


@pytest.fixture
def original(tmp_path: Path) -> Path:
    folder = tmp_path / "Belgelerim ğüşİı"
    folder.mkdir()
    (folder / "küçük model.gguf").write_bytes(b"weights")
    return folder / "küçük model.gguf"


def test_a_file_is_brought_in_and_the_original_stays(original: Path, fetching: Fetching) -> None:
    fetched = local.fetch(str(original), fetching)
    assert fetched.main_file == "küçük model.gguf"
    assert (fetching.folder / fetched.main_file).read_bytes() == b"weights"
    assert fetched.files[0].size_bytes == 7
    assert original.read_bytes() == b"weights"


def test_a_file_on_the_same_disk_takes_no_second_room(original: Path, fetching: Fetching) -> None:
    full = msgspec.structs.replace(fetching, free_bytes=lambda _: 0)
    assert local.fetch(str(original), full).files[0].size_bytes == 7


def test_a_file_that_must_be_copied_needs_room(
    original: Path, fetching: Fetching, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "_cloned", lambda *_: False)
    monkeypatch.setattr(local, "_linked", lambda *_: False)
    assert local.fetch(str(original), fetching).files[0].size_bytes == 7
    full = msgspec.structs.replace(fetching, free_bytes=lambda _: 0)
    with pytest.raises(MachineError) as refused:
        local.fetch(str(original), full)
    assert refused.value.code == "machine.disk_full"


def test_a_link_is_followed_to_the_file_it_names(original: Path, fetching: Fetching) -> None:
    link = original.with_name("link.gguf")
    link.symlink_to(original)
    fetched = local.fetch(str(link), fetching)
    brought = fetching.folder / fetched.main_file
    assert not brought.is_symlink()
    assert brought.read_bytes() == b"weights"


def test_a_folder_that_holds_one_gguf_is_that_model(original: Path, fetching: Fetching) -> None:
    fetched = local.fetch(str(original.parent), fetching)
    assert fetched.main_file == original.name


def test_a_hugging_face_folder_is_brought_in_whole(tmp_path: Path, fetching: Fetching) -> None:
    folder = tmp_path / "hf"
    folder.mkdir()
    for name in ("config.json", "model.safetensors", "tokenizer.json", "notes.md"):
        (folder / name).write_bytes(name.encode())
    fetched = local.fetch(str(folder), fetching)
    assert fetched.runner == "pytorch"
    assert {file.path for file in fetched.files} == {
        "config.json",
        "model.safetensors",
        "tokenizer.json",
    }


def test_a_path_that_is_not_there_is_named_as_it_was_written(
    tmp_path: Path, fetching: Fetching
) -> None:
    missing = tmp_path / "yok ğ.gguf"
    with pytest.raises(CatalogueError) as refused:
        local.fetch(str(missing), fetching)
    assert refused.value.code == "model.source_not_found"
    assert str(missing) in refused.value.message


def test_an_empty_path_is_not_the_present_folder(fetching: Fetching) -> None:
    with pytest.raises(CatalogueError) as refused:
        local.fetch("", fetching)
    assert refused.value.code == "model.source_invalid"


def test_what_could_be_read_for_ever_is_no_file(tmp_path: Path, fetching: Fetching) -> None:
    os.mkfifo(tmp_path / "pipe.gguf")
    (tmp_path / "link.gguf").symlink_to("/dev/zero")
    for source in (tmp_path / "pipe.gguf", tmp_path / "link.gguf", Path("/dev/zero")):
        with pytest.raises(CatalogueError) as refused:
            local.fetch(str(source), fetching)
        assert refused.value.code == "model.source_invalid"


def test_a_copy_ends_where_the_file_ended_when_it_was_begun(
    original: Path, fetching: Fetching, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Growing(Silent):
        """Makes the file longer with every piece that is copied of it."""

        def advance(self, num_bytes: int) -> None:
            with original.open("ab") as file:
                file.write(bytes(num_bytes))

    monkeypatch.setattr(local, "_cloned", lambda *_: False)
    monkeypatch.setattr(local, "_linked", lambda *_: False)
    slow = msgspec.structs.replace(fetching, progress=Growing())
    assert local.fetch(str(original), slow).files[0].size_bytes == 7


def test_a_name_that_is_no_text_is_refused(original: Path, fetching: Fetching) -> None:
    odd = os.fsdecode(os.fsencode(original.with_name("x")) + b"\xff.gguf")
    Path(odd).write_bytes(b"weights")
    with pytest.raises(CatalogueError) as refused:
        local.fetch(odd, fetching)
    assert refused.value.code == "model.source_invalid"
    str(refused.value).encode()


def test_a_folder_of_everything_is_not_searched_to_its_end(
    tmp_path: Path, fetching: Fetching, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "_MAX_FILES", 3)
    for number in range(4):
        (tmp_path / str(number)).write_bytes(b"")
    with pytest.raises(CatalogueError) as refused:
        local.fetch(str(tmp_path), fetching)
    assert refused.value.code == "model.source_ambiguous"


def test_the_home_of_a_user_nobody_knows_is_a_path_that_is_not_there(fetching: Fetching) -> None:
    with pytest.raises(CatalogueError) as refused:
        local.fetch("~nobody-knows-me/x.gguf", fetching)
    assert refused.value.code == "model.source_not_found"
