"""How an error crosses from one process to another: as `Refused`, and back again."""

from appliance.errors import EngineError, HisarError, RequestError
from appliance.generation import Failed
from engines.protocol import Refused

_BAD_REQUEST = 400


def to_refused(call_id: int, error: HisarError) -> Refused:
    """What is said of a call that ran into this error."""
    return Refused(
        call_id=call_id,
        code=error.code,
        message=error.message,
        retry_after_s=getattr(error, "retry_after_s", None),
        param=getattr(error, "param", None),
    )


def to_error(said: Refused | Failed) -> EngineError | RequestError:
    """The error that this stands for; the caller's own fault where it names a field."""
    if said.param is not None:
        return RequestError(said.code, said.message, status=_BAD_REQUEST, param=said.param)
    return EngineError(said.code, said.message, retry_after_s=said.retry_after_s)
