"""The model without weights: it repeats what it is told, for smoke checks and tests."""

from appliance.sources.fetching import Fetched, Fetching


def fetch(_reference: str, _fetching: Fetching) -> Fetched:
    """Nothing to bring in: the `echo` runner needs no file."""
    return Fetched(runner="echo")
