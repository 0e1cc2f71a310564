"""Models behind a plain HTTP or HTTPS address."""

from pathlib import PurePosixPath
from urllib.parse import SplitResult, unquote, urlsplit

from appliance.catalogue import is_inside
from appliance.errors import CatalogueError
from appliance.sources.connection import connect
from appliance.sources.download import Remote, download, without_secrets
from appliance.sources.fetching import Fetched, Fetching


def fetch(reference: str, fetching: Fetching) -> Fetched:
    """Bring in the GGUF file at the URL `reference`."""
    name = PurePosixPath(unquote(address_of(reference).path)).name
    if not name or not is_inside(name):
        raise CatalogueError(
            "model.source_invalid", f"{without_secrets(reference)} does not name a file"
        )
    pins = {file.path: file.sha256 for file in fetching.expected}
    remote = Remote(url=reference, sha256=pins.get(name, ""))
    with connect() as client:
        file = download(client, remote, fetching.folder / name, fetching)
    return Fetched(files=(file,), main_file=name)


def address_of(reference: str) -> SplitResult:
    """The parts of a web address. Raises CatalogueError `model.source_invalid`."""
    try:
        parts = urlsplit(reference)
        is_whole = bool(parts.hostname) and parts.port != 0
    except ValueError:  # also of a port that is no number
        is_whole = False
    if not is_whole:
        raise CatalogueError(
            "model.source_invalid",
            f"{without_secrets(reference)} is no web address",
            hint="write https://host/path/file.gguf",
        )
    return parts
