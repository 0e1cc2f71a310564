"""A model that does not fit is refused with both numbers."""

import pytest

from appliance.errors import EngineError
from engines.placement import WORKER_BYTES, require_room

GIB = 1024**3


def test_a_model_that_fits_exactly_with_its_worker_is_let_in() -> None:
    require_room("m", model_bytes=GIB, free_bytes=GIB + WORKER_BYTES)


def test_a_refusal_names_what_is_needed_and_what_is_free() -> None:
    with pytest.raises(EngineError, match="'m' needs 2240 MiB of memory and 1024 MiB are") as e:
        require_room("m", model_bytes=2 * GIB, free_bytes=GIB)
    assert e.value.code == "engine.does_not_fit"
