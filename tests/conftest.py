"""What all tests share: where a real model is missing, the tests that need one say so."""

import os

import pytest

from tests import embedding_model, small_model

# Read when llama.cpp is loaded. Threads that spin for longer fight for the cores of a busy machine,
# where a test of the real model then takes ten times as long.
os.environ.setdefault("GOMP_SPINCOUNT", "1000")

_MODELS = {"model": small_model, "embedding_model": embedding_model}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out tests marked `model` or `embedding_model` where that model is not on disk."""
    for mark, model in _MODELS.items():
        needing = [item for item in items if item.get_closest_marker(mark)]
        if needing and not model.is_here():
            reason = f"the model is not at {model.PATH}; `make test` fetches it"
            for item in needing:
                item.add_marker(pytest.mark.skip(reason=reason))
