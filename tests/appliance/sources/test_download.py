"""Downloads: resumed, checked, and honest about what went wrong."""

import hashlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import msgspec
import pytest

from appliance.errors import CatalogueError, MachineError
from appliance.sources.download import Remote, download, without_secrets
from appliance.sources.fetching import Fetching
from tests.appliance.sources.conftest import FileServer

CONTENT = os.urandom(700_000)
DIGEST = hashlib.sha256(CONTENT).hexdigest()

_PULLING = """
import sys, httpx
from pathlib import Path
from appliance.sources.download import Remote, download
from appliance.sources.fetching import Fetching
from tests.appliance.sources.conftest import FileServer
url, folder, digest = sys.argv[1:]
with httpx.Client() as client:
    download(client, Remote(url=url, sha256=digest), Path(folder, "a.bin"),
             Fetching(folder=Path(folder)))
"""


def bring(fetching: Fetching, url: str, sha256: str = DIGEST) -> Path:
    with httpx.Client() as client:
        file = download(client, Remote(url=url, sha256=sha256), fetching.folder / "a.bin", fetching)
    return fetching.folder / file.path


def kill_half_way(files: FileServer, fetching: Fetching, url: str) -> None:
    """A real process downloads until the server falls silent, and is then killed."""
    files.stall_after = 300_000
    arguments = [sys.executable, "-c", _PULLING, url, str(fetching.folder), DIGEST]
    with subprocess.Popen(arguments) as process:
        assert files.stalled.wait(30)
        partial = fetching.folder / "a.bin.partial"
        while not partial.exists() or partial.stat().st_size < 200_000:
            assert process.poll() is None
        process.send_signal(signal.SIGKILL)
    files.go_on.set()
    files.stall_after = 0


def test_a_download_killed_half_way_goes_on_where_it_stopped(
    files: FileServer, fetching: Fetching
) -> None:
    """ollama/ollama#2463: a restart threw away what had been fetched."""
    url = files.put("/a.bin", CONTENT)
    kill_half_way(files, fetching, url)
    have = (fetching.folder / "a.bin.partial").stat().st_size
    assert bring(fetching, url).read_bytes() == CONTENT
    assert files.ranges() == [f"bytes={have}-"]
    assert [path.name for path in fetching.folder.iterdir()] == ["a.bin"]


def test_a_document_that_changed_meanwhile_is_fetched_afresh(
    files: FileServer, fetching: Fetching
) -> None:
    url = files.put("/a.bin", CONTENT)
    kill_half_way(files, fetching, url)
    files.etag = '"two"'
    other = os.urandom(len(CONTENT))
    files.put("/a.bin", other)
    assert bring(fetching, url, hashlib.sha256(other).hexdigest()).read_bytes() == other


def test_a_server_without_ranges_is_asked_for_the_whole(
    files: FileServer, fetching: Fetching
) -> None:
    url = files.put("/a.bin", CONTENT)
    kill_half_way(files, fetching, url)
    files.knows_ranges = False
    assert bring(fetching, url).read_bytes() == CONTENT


def test_a_broken_connection_is_taken_up_again(files: FileServer, fetching: Fetching) -> None:
    url = files.put("/a.bin", CONTENT)
    files.cut_after = 250_000
    assert bring(fetching, url).read_bytes() == CONTENT
    assert files.ranges() == ["bytes=250000-"]


def test_a_finished_download_that_was_not_renamed_yet_is_not_fetched_again(
    files: FileServer, fetching: Fetching
) -> None:
    url = files.put("/a.bin", CONTENT)
    kill_half_way(files, fetching, url)
    (fetching.folder / "a.bin.partial").write_bytes(CONTENT)
    num_asked = len(files.asked)
    assert bring(fetching, url).read_bytes() == CONTENT
    assert len(files.asked) == num_asked


def test_a_file_of_another_digest_is_refused_and_not_kept(
    files: FileServer, fetching: Fetching
) -> None:
    url = files.put("/a.bin", CONTENT)
    with pytest.raises(CatalogueError) as refused:
        bring(fetching, url, "0" * 64)
    assert refused.value.code == "model.digest_mismatch"
    assert list(fetching.folder.iterdir()) == []


def test_too_small_a_disk_is_said_before_the_first_byte(
    files: FileServer, fetching: Fetching
) -> None:
    """ollama/ollama#1731: the disk filled up in the middle of a pull."""
    url = files.put("/a.bin", CONTENT)
    small = msgspec.structs.replace(fetching, free_bytes=lambda _: 500_000)
    with pytest.raises(MachineError) as refused:
        bring(small, url)
    assert refused.value.code == "machine.disk_full"
    assert str(fetching.folder) in refused.value.message
    assert (fetching.folder / "a.bin.partial").stat().st_size == 0


def test_a_missing_document_is_named_without_the_secrets_in_its_address(
    files: FileServer, fetching: Fetching
) -> None:
    url = files.url.replace("http://", "http://ali:hunter2@") + "/no.gguf?token=hunter2"
    with pytest.raises(CatalogueError) as refused:
        bring(fetching, url)
    assert refused.value.code == "model.source_not_found"
    assert "/no.gguf" in str(refused.value)
    assert "hunter2" not in str(refused.value)


def test_a_server_that_is_not_there_is_unreachable(
    files: FileServer, fetching: Fetching, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("appliance.sources.download._ATTEMPTS", 1)
    files.close()
    with pytest.raises(CatalogueError) as refused:
        bring(fetching, files.url + "/a.bin")
    assert refused.value.code == "model.source_unreachable"


def test_the_state_of_a_partial_file_holds_no_secret(files: FileServer, fetching: Fetching) -> None:
    url = files.put("/a.bin", CONTENT) + "?token=hunter2"
    kill_half_way(files, fetching, url)
    assert b"hunter2" not in (fetching.folder / "a.bin.partial.json").read_bytes()


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://user:pw@host.example:1/a/b.gguf?x=1#y", "https://host.example:1/a/b.gguf"),
        ("http://host.example/ğ.gguf", "http://host.example/ğ.gguf"),
    ],
)
def test_an_address_is_shown_without_login_query_and_fragment(url: str, shown: str) -> None:
    assert without_secrets(url) == shown
