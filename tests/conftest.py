"""What all tests share: where a model or a server is missing, the tests that need it say so."""

import os

import pytest

from tests import embedding_model, keycloak_server, small_model

# Read when llama.cpp is loaded. Threads that spin for longer fight for the cores of a busy machine,
# where a test of the real model then takes ten times as long.
os.environ.setdefault("GOMP_SPINCOUNT", "1000")

_NEEDED = {
    "model": small_model,
    "embedding_model": embedding_model,
    "keycloak": keycloak_server,
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out tests by their mark where what they need is not on disk."""
    for mark, needed in _NEEDED.items():
        needing = [item for item in items if item.get_closest_marker(mark)]
        if needing and not needed.is_here():
            reason = f"nothing usable at {needed.PATH}; `make test` fetches it"
            for item in needing:
                item.add_marker(pytest.mark.skip(reason=reason))
