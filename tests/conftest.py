"""What all tests share: where a real model is missing, the tests that need one say so."""

import pytest

from tests import small_model


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out tests marked `model` where the small model is not on disk."""
    needing = [item for item in items if item.get_closest_marker("model")]
    if needing and not small_model.is_here():
        reason = f"the small model is not at {small_model.PATH}; `make test` fetches it"
        for item in needing:
            item.add_marker(pytest.mark.skip(reason=reason))
