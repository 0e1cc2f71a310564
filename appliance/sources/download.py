"""How bytes come over HTTP: resumed where an earlier try stopped, counted, hashed, then renamed.

Beside an unfinished `<file>` lie `<file>.partial` and `<file>.partial.json`, which says of which
document those bytes are. They survive `kill -9`; the next try asks for the rest only
(RFC 9110, sections 13.1.5 and 14), and starts afresh when the document has changed meanwhile.
"""

import hashlib
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit, urlunsplit

import msgspec
from msgspec import Struct

from appliance.catalogue import ModelFile
from appliance.errors import CatalogueError
from appliance.sources.fetching import Fetching, described, digest_of, megabytes, sync

if TYPE_CHECKING:
    import httpx

_ATTEMPTS: Final = 3
_CONTENT_RANGE: Final = re.compile(r"bytes (\d+)-\d+/(\d+)")
_CHUNK_BYTES: Final = 1024 * 1024


class Remote(Struct, frozen=True, kw_only=True):
    """A document on a server. 0 and empty where size and digest are not known beforehand."""

    url: str
    size_bytes: int = 0
    sha256: str = ""
    headers: Mapping[str, str] = {}


class _Partial(Struct, frozen=True, kw_only=True):
    """Which document the bytes of a `.partial` file belong to."""

    origin: str
    validator: str
    size_bytes: int


class _ChangedError(Exception):
    """The server no longer has the document that the partial file is a part of."""


def without_secrets(url: str) -> str:
    """The URL without user, password, query and fragment: fit for a message or a manifest.

    Of what is no URL nothing is left but its scheme.
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        return url.partition(":")[0] + ":"
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def download(client: "httpx.Client", remote: Remote, target: Path, fetching: Fetching) -> ModelFile:
    """Bring `remote` to `target`, which is inside `fetching.folder`.

    Raises CatalogueError `model.source_not_found`, `model.source_refused`,
    `model.source_unreachable` or `model.digest_mismatch`.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.is_file() and remote.sha256 and digest_of(target) == remote.sha256:
        return described(target, fetching.folder)
    digest = _with_patience(client, remote, target, fetching)
    partial = _partial_of(target)
    if remote.sha256 and digest != remote.sha256:
        _forget(target)
        raise CatalogueError(
            "model.digest_mismatch",
            f"{without_secrets(remote.url)} is not the expected file:"
            f" its sha256 is {digest}, not {remote.sha256}",
            hint="nothing was kept; fetch it again, or ask whoever serves it",
        )
    size_bytes = partial.stat().st_size
    sync(partial)
    partial.rename(target)
    _forget(target)
    path = target.relative_to(fetching.folder).as_posix()
    return ModelFile(path=path, size_bytes=size_bytes, sha256=digest)


def _with_patience(client: "httpx.Client", remote: Remote, target: Path, fetching: Fetching) -> str:
    """Fetch to the partial file, taking a broken connection up again. The sha256 of the whole.

    Raises CatalogueError `model.source_invalid` or `model.source_unreachable`.
    """
    import httpx

    problem = ""
    for attempt in range(_ATTEMPTS):
        time.sleep(attempt)
        try:
            return _fetch(client, remote, target, fetching)
        except _ChangedError:
            _forget(target)
        except httpx.InvalidURL as error:
            raise CatalogueError(
                "model.source_invalid", f"{without_secrets(remote.url)} is no web address: {error}"
            ) from error
        except (httpx.TransportError, httpx.TooManyRedirects) as error:
            problem = f": {error}" if str(error) else f": {type(error).__name__}"
    raise CatalogueError(
        "model.source_unreachable",
        f"{without_secrets(remote.url)} cannot be fetched{problem}",
        hint="check the network, proxy and certificate settings; what has arrived is kept",
    )


def _fetch(client: "httpx.Client", remote: Remote, target: Path, fetching: Fetching) -> str:
    partial = _partial_of(target)
    state = _state_of(target, remote)
    have = partial.stat().st_size if state else 0
    if state and have == state.size_bytes:
        return digest_of(partial)
    with client.stream("GET", remote.url, headers=_headers(remote, state, have)) as response:
        begin, total = _span(response, state, have)
        if begin == 0:
            _begin(target, remote, response, total)
        digest = _digest_so_far(partial, begin)
        fetching.reserve(max(0, total - begin))
        fetching.progress.start(target.name, total, begin)
        # Unbuffered: what has arrived is on disk, whenever the process dies.
        with partial.open("ab", buffering=0) as file:
            for chunk in response.iter_raw():
                file.write(chunk)
                digest.update(chunk)
                fetching.progress.advance(len(chunk))
        fetching.progress.finish()
    _check_length(partial, total)
    return digest.hexdigest()


def _headers(remote: Remote, state: _Partial | None, have: int) -> dict[str, str]:
    headers = {**remote.headers, "Accept-Encoding": "identity"}
    if state and have:
        headers["Range"] = f"bytes={have}-"
        if state.validator:
            headers["If-Range"] = state.validator
    return headers


def _span(response: "httpx.Response", state: _Partial | None, have: int) -> tuple[int, int]:
    """Where the body begins in the document, and the document's size (0: not known)."""
    if response.status_code == 206:
        span = _CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", ""))
        if not (state and span and int(span[1]) == have and int(span[2]) == state.size_bytes):
            raise _ChangedError
        return have, state.size_bytes
    if response.status_code == 416:
        raise _ChangedError
    if response.status_code != 200:
        raise _refusal(response)
    return 0, int(response.headers.get("Content-Length", 0))


def _refusal(response: "httpx.Response") -> CatalogueError:
    url, status = without_secrets(str(response.url)), response.status_code
    if status in {404, 410}:
        return CatalogueError("model.source_not_found", f"{url} does not exist ({status})")
    if status in {401, 403, 407}:
        return CatalogueError(
            "model.source_refused",
            f"{url} may not be fetched from here ({status})",
            hint="it asks for credentials, or for accepting a licence",
        )
    return CatalogueError("model.source_unreachable", f"{url} answered {status}")


def _begin(target: Path, remote: Remote, response: "httpx.Response", total: int) -> None:
    _partial_of(target).write_bytes(b"")
    etag = response.headers.get("ETag", "")
    strong = etag if etag.startswith('"') else response.headers.get("Last-Modified", "")
    state = _Partial(origin=_origin(remote), validator=strong, size_bytes=total)
    _state_file_of(target).write_bytes(msgspec.json.encode(state))


def _digest_so_far(partial: Path, num_bytes: int) -> "hashlib._Hash":
    digest = hashlib.sha256()
    with partial.open("rb") as file:
        while num_bytes and (chunk := file.read(min(num_bytes, _CHUNK_BYTES))):
            digest.update(chunk)
            num_bytes -= len(chunk)
    return digest


def _check_length(partial: Path, total: int) -> None:
    size_bytes = partial.stat().st_size
    if total and size_bytes != total:
        raise CatalogueError(
            "model.source_unreachable",
            f"the server sent {megabytes(size_bytes)} of {megabytes(total)}",
            hint="fetch it again; what has arrived is kept",
        )


def _state_of(target: Path, remote: Remote) -> _Partial | None:
    """What the partial file is a part of; None where there is none that fits."""
    try:
        state = msgspec.json.decode(_state_file_of(target).read_bytes(), type=_Partial)
        have = _partial_of(target).stat().st_size
    except (OSError, ValueError):
        return None
    return state if state.origin == _origin(remote) and have <= state.size_bytes else None


def _origin(remote: Remote) -> str:
    """The document's address as a digest, so that no secret in it is written down."""
    return hashlib.sha256(f"{without_secrets(remote.url)} {remote.sha256}".encode()).hexdigest()


def _partial_of(target: Path) -> Path:
    return target.with_name(target.name + ".partial")


def _state_file_of(target: Path) -> Path:
    return target.with_name(target.name + ".partial.json")


def _forget(target: Path) -> None:
    _partial_of(target).unlink(missing_ok=True)
    _state_file_of(target).unlink(missing_ok=True)
