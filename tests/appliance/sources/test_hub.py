"""Models on a Hugging Face Hub, played by a local server that HF_ENDPOINT names."""

import hashlib
import json
import os
import subprocess
import sys

import pytest

from appliance.errors import CatalogueError
from appliance.sources import hub
from appliance.sources.fetching import Fetching
from tests.appliance.sources.conftest import FileServer

WEIGHTS = b"GGUF" + bytes(3000)
REVISION = "0123456789abcdef0123456789abcdef01234567"

_FETCHING = """
import sys
from pathlib import Path
from appliance.errors import CatalogueError
from appliance.sources.fetching import Fetching
from appliance.sources.hub import fetch
try:
    fetched = fetch(sys.argv[1], Fetching(folder=Path(sys.argv[2])))
    print(fetched.main_file, fetched.licence, fetched.runner)
except CatalogueError as error:
    print(error.code)
"""


def serve(files: FileServer, names: tuple[str, ...], repository: str = "org/tiny") -> None:
    lfs = {"sha256": hashlib.sha256(WEIGHTS).hexdigest(), "size": len(WEIGHTS), "pointerSize": 1}
    siblings = [{"rfilename": name, "size": len(WEIGHTS), "lfs": lfs} for name in names]
    info = {"id": repository, "sha": REVISION, "private": False, "downloads": 0,
            "tags": ["license:apache-2.0"], "siblings": siblings}  # fmt: skip
    files.put(f"/api/models/{repository}", json.dumps(info).encode(), "application/json")
    for name in names:
        files.put(f"/{repository}/resolve/{REVISION}/{name}", WEIGHTS)


def fetch(files: FileServer, fetching: Fetching, reference: str, **environment: str) -> str:
    """In a process of its own: the library reads its environment when it is imported."""
    done = subprocess.run(
        [sys.executable, "-c", _FETCHING, reference, str(fetching.folder)],
        env={**os.environ, "HF_ENDPOINT": files.url, **environment},
        capture_output=True,
        encoding="utf-8",
        check=True,
    )
    return done.stdout.strip()


def test_the_only_gguf_of_a_repository_is_the_model(files: FileServer, fetching: Fetching) -> None:
    serve(files, ("README.md", "tiny.gguf"))
    assert fetch(files, fetching, "org/tiny") == "tiny.gguf apache-2.0 llamacpp"
    assert (fetching.folder / "tiny.gguf").read_bytes() == WEIGHTS


def test_a_file_of_several_is_named(files: FileServer, fetching: Fetching) -> None:
    serve(files, ("a.gguf", "b.gguf"))
    assert fetch(files, fetching, "org/tiny") == "model.source_ambiguous"
    assert fetch(files, fetching, "org/tiny/b.gguf").startswith("b.gguf ")


def test_a_token_is_sent_and_a_missing_repository_is_said(
    files: FileServer, fetching: Fetching
) -> None:
    assert fetch(files, fetching, "org/none", HF_TOKEN="hf_secret") == "model.source_not_found"
    headers = next(headers for path, headers in files.asked if path.startswith("/api/models/"))
    assert headers["authorization"] == "Bearer hf_secret"


def test_without_a_network_the_hub_is_unreachable(files: FileServer, fetching: Fetching) -> None:
    """gpustack/gpustack#2519: no network, and a model stuck for ever."""
    assert fetch(files, fetching, "org/tiny", HF_HUB_OFFLINE="1") == "model.source_unreachable"
    closed = {"HF_ENDPOINT": "http://127.0.0.1:9"}
    assert fetch(files, fetching, "org/tiny", **closed) == "model.source_unreachable"


@pytest.mark.parametrize("reference", ["", "tiny", "org/", "org/tiny name"])
def test_a_reference_that_names_no_repository_is_refused(
    reference: str, fetching: Fetching
) -> None:
    with pytest.raises(CatalogueError) as refused:
        hub.fetch(reference, fetching)
    assert refused.value.code == "model.source_invalid"
