"""Boxes for the walk's tests."""

from collections.abc import Iterator

import pytest

from tests.walk.running_box import RunningBox, running_box


@pytest.fixture(scope="session")
def box() -> Iterator[RunningBox]:
    """A box shared by all tests that leave it as it was."""
    with running_box() as running:
        yield running


@pytest.fixture(scope="session")
def _mortal() -> Iterator[RunningBox]:
    with running_box() as running:
        yield running


@pytest.fixture
def mortal_box(_mortal: RunningBox) -> RunningBox:
    """A box for a test that kills something; what the last one killed is started anew."""
    _mortal.revive()
    return _mortal
