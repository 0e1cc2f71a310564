"""Boxes for the walk's tests."""

from collections.abc import Iterator

import pytest

from tests.keycloak_server import open_server
from tests.walk.bank_realm import BankRealm
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


@pytest.fixture(scope="session")
def bank(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BankRealm]:
    """A bank's realm on a Keycloak of the tests' own."""
    server = open_server(tmp_path_factory.mktemp("keycloak"))
    try:
        server.start()
        yield BankRealm(server)
    finally:
        server.stop()
