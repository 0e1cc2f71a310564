"""Boxes for the walk's tests."""

from collections.abc import Iterator

import pytest

from tests.walk.running_box import RunningBox, running_box


@pytest.fixture(scope="session")
def box() -> Iterator[RunningBox]:
    """A box shared by all tests that leave it as it was."""
    with running_box() as running:
        yield running


@pytest.fixture
def own_box() -> Iterator[RunningBox]:
    """A box for a test that breaks it."""
    with running_box() as running:
        yield running
