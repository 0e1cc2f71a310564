"""What a client sees when something goes wrong."""

import json

import pytest
from litestar.exceptions import (
    ClientException,
    HTTPException,
    InternalServerException,
    MethodNotAllowedException,
    NotFoundException,
    ValidationException,
)
from litestar.exceptions.http_exceptions import RequestEntityTooLarge

from appliance.errors import CatalogueError, EngineError, HisarError, RequestError, StoreError
from gateway.wire.errors import ErrorAnswer
from gateway.wire.openai_errors import to_answer

LEAK = "/var/lib/hisar postgresql://user:pass@db Traceback"


def envelope(answer: ErrorAnswer) -> dict[str, str | None]:
    assert answer.headers["content-type"] == "application/json"
    (error,) = json.loads(answer.body).values()
    assert set(error) == {"message", "type", "param", "code"}
    return dict(error)


@pytest.mark.parametrize(
    ("error", "status", "kind", "code"),
    [
        (
            RequestError("request.context_length_exceeded", "9 of 8", status=400),
            400,
            "invalid_request_error",
            "context_length_exceeded",
        ),
        (
            RequestError("request.invalid_json", "cut", status=400),
            400,
            "invalid_request_error",
            "request.invalid_json",
        ),
        (
            RequestError("model.not_found", "no such model", status=404),
            404,
            "invalid_request_error",
            "model_not_found",
        ),
        (
            RequestError("auth.key_unknown", "the key is not valid", status=401),
            401,
            "invalid_request_error",
            "invalid_api_key",
        ),
        (
            RequestError("limits.tokens_per_minute", "later", status=429),
            429,
            "tokens",
            "rate_limit_exceeded",
        ),
        (
            RequestError("limits.requests_in_flight", "later", status=429),
            429,
            "requests",
            "rate_limit_exceeded",
        ),
        (
            RequestError("limits.queue_full", "busy", status=503),
            503,
            "server_error",
            "limits.queue_full",
        ),
        (
            RequestError("gateway.draining", "going down", status=503),
            503,
            "server_error",
            "gateway.draining",
        ),
        (
            RequestError("guardrails.denied_word", "no", status=400),
            400,
            "invalid_request_error",
            "content_policy_violation",
        ),
        (
            RequestError("residency.zone", "no", status=403),
            403,
            "invalid_request_error",
            "data_residency_mismatch",
        ),
        (
            EngineError("engine.replica_lost", "lost", retry_after_s=1.0),
            503,
            "server_error",
            "engine.replica_lost",
        ),
        (EngineError("engine.timeout", "slow"), 504, "server_error", "engine.timeout"),
        (EngineError("engine.row_failed", LEAK), 500, "server_error", "engine.row_failed"),
        (StoreError("audit.unavailable", LEAK), 503, "server_error", "audit.unavailable"),
        (StoreError("store.unreachable", LEAK), 503, "server_error", "store.unreachable"),
        (CatalogueError("model.file_broken", LEAK), 503, "server_error", "model.file_broken"),
        (EngineError("model.file_refused", "no"), 503, "server_error", "model.file_refused"),
        (EngineError("engine.does_not_fit", "9 of 8"), 503, "server_error", "engine.does_not_fit"),
        (HisarError("gateway.internal_error", LEAK), 500, "server_error", "gateway.internal_error"),
    ],
)
def test_each_error_has_openais_status_type_and_code(
    error: HisarError, status: int, kind: str, code: str
) -> None:
    answer = to_answer(error)
    seen = envelope(answer)
    assert (answer.status, seen["type"], seen["code"]) == (status, kind, code)
    assert LEAK not in (seen["message"] or "")


def test_param_is_the_errors_own_or_the_tables() -> None:
    own = RequestError("request.invalid_parameter", "x", status=400, param="messages[0].role")
    assert envelope(to_answer(own))["param"] == "messages[0].role"
    missing = RequestError("model.not_found", "no such model", status=404)
    assert envelope(to_answer(missing))["param"] == "model"


def test_a_hint_is_part_of_the_message() -> None:
    error = RequestError("request.unsupported_media_type", "must be JSON", status=415, hint="do x")
    assert envelope(to_answer(error))["message"] == "must be JSON (do x)"


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (NotFoundException(LEAK), 404, "request.route_not_found"),
        (MethodNotAllowedException(LEAK), 405, "request.method_not_allowed"),
        (RequestEntityTooLarge(LEAK), 413, "request.body_too_large"),
        (HTTPException(LEAK, status_code=415), 415, "request.unsupported_media_type"),
        (HTTPException(LEAK, status_code=422), 422, "request.malformed"),
        (ValidationException(LEAK), 400, "request.malformed"),
        (ClientException(LEAK), 400, "request.malformed"),
        (InternalServerException(LEAK), 500, "gateway.internal_error"),
        (RuntimeError(LEAK), 500, "gateway.internal_error"),
        (RecursionError(LEAK), 500, "gateway.internal_error"),
    ],
)
def test_errors_of_the_web_framework_wear_the_same_envelope(
    error: Exception, status: int, code: str
) -> None:
    answer = to_answer(error)
    seen = envelope(answer)
    assert (answer.status, seen["code"]) == (status, code)
    assert LEAK not in (seen["message"] or "")


def test_a_wrong_method_is_told_the_right_ones() -> None:
    error = MethodNotAllowedException(headers={"allow": "POST"})
    assert to_answer(error).headers["allow"] == "POST"


def test_a_missing_key_is_asked_for() -> None:
    error = RequestError("auth.key_missing", "send a key", status=401)
    assert to_answer(error).headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize("code", ["auth.invalid_token", "auth.token_expired"])
def test_a_bad_token_is_told_to_be_one(code: str) -> None:
    """RFC 6750, section 3.1"""
    answer = to_answer(RequestError(code, "the token has expired", status=401))
    assert answer.headers["www-authenticate"] == 'Bearer error="invalid_token"'
    assert envelope(answer)["code"] == code


@pytest.mark.parametrize(
    ("retry_after_s", "seconds", "milliseconds"), [(0.25, "1", "250"), (1.2, "2", "1200")]
)
def test_when_to_come_back_is_said_in_both_units(
    retry_after_s: float, seconds: str, milliseconds: str
) -> None:
    error = RequestError("limits.x", "later", status=429, retry_after_s=retry_after_s)
    headers = to_answer(error).headers
    assert headers["retry-after"] == seconds
    assert headers["retry-after-ms"] == milliseconds


def test_503_always_says_when_to_come_back_and_400_never() -> None:
    assert "retry-after" in to_answer(StoreError("audit.unavailable", "x")).headers
    assert "retry-after" not in to_answer(RequestError("request.x", "x", status=400)).headers


def test_a_client_that_must_not_guess_is_told_whether_to_retry() -> None:
    hopeless = RequestError("limits.x", "x", status=429, should_retry=False)
    assert to_answer(hopeless).headers["x-should-retry"] == "false"
    assert "x-should-retry" not in to_answer(RequestError("limits.x", "x", status=429)).headers


def test_a_model_that_cannot_be_loaded_is_not_to_be_asked_for_again_and_again() -> None:
    told = to_answer(EngineError("model.file_refused", "x.gguf is no model"))
    assert told.headers["x-should-retry"] == "false"
    assert envelope(told)["message"] == "x.gguf is no model"
    passing = EngineError("engine.replica_lost", "lost", retry_after_s=1.0)
    assert "x-should-retry" not in to_answer(passing).headers


def test_a_name_in_any_script_breaks_no_header() -> None:
    """BerriAI/litellm#34633: a non-Latin model name in a header became a 500."""
    error = RequestError("model.not_found", "there is no model 中文模型", status=404)
    answer = to_answer(error)
    assert "中文模型" in (envelope(answer)["message"] or "")
    for value in answer.headers.values():
        value.encode("ascii")


def test_a_name_that_is_no_text_can_still_be_refused() -> None:
    answer = to_answer(RequestError("model.not_found", "there is no model \udcff", status=404))
    assert envelope(answer)["message"] == "there is no model ?"


def test_a_model_the_library_does_not_know_is_404_without_a_hint_at_others() -> None:
    answer = to_answer(CatalogueError("model.not_found", "no model 'a'", hint="did you mean 'b'?"))
    assert (answer.status, envelope(answer)["message"]) == (404, "no model 'a'")
