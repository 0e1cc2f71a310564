"""Errors carry a code, a hint and an exit code, and read well."""

import pytest

from appliance.errors import (
    CatalogueError,
    ConfigError,
    EngineError,
    HisarError,
    MachineError,
    RequestError,
    StoreError,
    UsageError,
)


def test_an_error_says_what_which_code_and_what_to_do() -> None:
    error = MachineError("machine.port_taken", "port 8080 is taken", hint="choose another")
    assert str(error) == "port 8080 is taken [machine.port_taken]\n  hint: choose another"
    assert str(StoreError("store.busy", "the database is busy")).endswith("[store.busy]")


def test_each_kind_of_error_has_an_exit_code_of_its_own() -> None:
    kinds: tuple[type[HisarError], ...] = (
        *(ConfigError, UsageError, MachineError, CatalogueError, StoreError, EngineError),
        RequestError,
    )
    codes = [kind.exit_code for kind in kinds]
    assert len(set(codes)) == len(codes)
    assert 0 not in codes


def test_a_refused_request_carries_what_an_answer_needs() -> None:
    error = RequestError(
        "limits.tokens", "too many", status=429, retry_after_s=1.5, should_retry=True, param="n"
    )
    assert (error.status, error.retry_after_s, error.should_retry, error.param) == (
        *(429, 1.5, True, "n"),
    )
    with pytest.raises(HisarError):
        raise error
