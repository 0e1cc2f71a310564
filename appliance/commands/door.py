"""How commands reach the running box: over HTTP, through the same door as every other client."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

from appliance.config import GatewayConfig
from appliance.config_file import load
from appliance.environment import Environment, read_environment
from appliance.errors import CatalogueError, EngineError, HisarError, MachineError, UsageError
from appliance.home import Home

if TYPE_CHECKING:
    import httpx

_CONNECT_S: Final = 5.0


class Reply(Struct, kw_only=True):
    """What an answer came to, once it is complete."""

    finish_reason: str = ""
    usage: dict[str, Any] = {}


def base_url_of(gateway: GatewayConfig, port: int = 0) -> str:
    """The address a client uses for a gateway that listens as configured."""
    host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(gateway.host, gateway.host)  # noqa: S104
    host = f"[{host}]" if ":" in host and not host.startswith("[") else host
    return f"http://{host}:{port or gateway.port}"


def host_name_of(gateway: GatewayConfig) -> str:
    """A name the gateway goes by: this machine's, unless the configuration leaves it out."""
    local = "127.0.0.1"
    return next(iter((local,) if local in gateway.allowed_hosts else gateway.allowed_hosts), local)


def base_url_file(home: Home) -> Path:
    """Where a running box says at which address it is."""
    return home.run / "base_url"


def find_base_url(home: Home) -> str:
    """Where the box of this home is, or would be, listening."""
    try:
        return base_url_file(home).read_text(encoding="utf-8").strip()
    except OSError:
        return base_url_of(load(home.config).gateway)


def find_key(environment: Environment, key_file: Path | None) -> str:
    """The API key: of the file, else of HISAR_API_KEY, else the one made for this machine's user.

    Raises UsageError `usage.no_key` or `usage.bad_key`.
    """
    if key_file is None and environment.api_key is not None:
        return _sendable(environment.api_key.reveal(), "HISAR_API_KEY")
    path = key_file or environment.home.local_key
    try:
        return _sendable(path.read_bytes(), str(path))
    except OSError as error:
        raise UsageError(
            "usage.no_key",
            f"there is no API key to be read in {path}",
            hint="start the box once with `hisar up`, or set HISAR_API_KEY",
        ) from error


def _sendable(key: bytes, where: str) -> str:
    """A key that a header can hold."""
    text = key.decode("ascii", errors="replace").strip()
    if not (text and text.isascii() and text.isprintable()):
        raise UsageError("usage.bad_key", f"what stands in {where} is no API key")
    return text


@contextmanager
def open_door(key_file: Path | None = None) -> Iterator["httpx.Client"]:
    """A client of this home's box, with the key.

    Raises MachineError `gateway.unreachable` when nobody answers.
    """
    import httpx

    environment = read_environment()
    base_url = find_base_url(environment.home)
    headers = {
        "Authorization": f"Bearer {find_key(environment, key_file)}",
        "Host": host_name_of(load(environment.home.config).gateway),
    }
    # An answer takes as long as it takes; only connecting has a limit. No proxy: this is local.
    timeout = httpx.Timeout(None, connect=_CONNECT_S)
    try:
        with httpx.Client(
            base_url=base_url, headers=headers, timeout=timeout, trust_env=False
        ) as client:
            yield client
    except httpx.ConnectError as error:
        raise MachineError(
            "gateway.unreachable",
            f"no box answers at {base_url}",
            hint="`hisar up` starts one",
        ) from error
    except httpx.TransportError as error:
        raise EngineError("gateway.lost", f"the connection to {base_url} was lost") from error


def first_model(client: "httpx.Client") -> str:
    """A model to talk to when none is named. Raises UsageError `usage.no_model`."""
    response = client.get("/v1/models")
    if response.status_code != 200:
        raise _error_of(response.content)
    names = [model["id"] for model in response.json()["data"]]
    if not names:
        raise UsageError(
            "usage.no_model", "the box has no model", hint="hisar models pull smollm2:135m"
        )
    return str(names[0])


def stream_chat(client: "httpx.Client", body: dict[str, Any], reply: Reply) -> Iterator[str]:
    """The pieces of an answer as they come; `reply` is filled in.

    Raises UsageError, CatalogueError, EngineError: whoever is at fault.
    """
    request = {**body, "stream": True, "stream_options": {"include_usage": True}}
    # In ASCII: what is no text (half a surrogate pair) is for the box to refuse.
    content = json.dumps(request).encode()
    headers = {"Content-Type": "application/json"}
    with client.stream(
        "POST", "/v1/chat/completions", content=content, headers=headers
    ) as response:
        if response.status_code != 200:
            raise _error_of(response.read())
        for line in response.iter_lines():
            if line.startswith("data: {"):
                yield from _take(json.loads(line.removeprefix("data: ")), reply)


def _take(event: dict[str, Any], reply: Reply) -> Iterator[str]:
    if "error" in event:
        raise _error_from(event["error"])
    reply.usage = event.get("usage") or reply.usage
    for choice in event.get("choices", ()):
        reply.finish_reason = choice.get("finish_reason") or reply.finish_reason
        if text := choice["delta"].get("content"):
            yield text


def _error_of(content: bytes) -> HisarError:
    try:
        return _error_from(json.loads(content)["error"])
    except (ValueError, KeyError, TypeError):
        return EngineError("gateway.strange_answer", "the box answered something unexpected")


def _error_from(error: dict[str, Any]) -> HisarError:
    code, message = str(error.get("code") or "gateway.refused"), str(error.get("message"))
    if code.startswith("model"):
        return CatalogueError(code, message)
    is_callers_fault = error.get("type") == "invalid_request_error"
    return UsageError(code, message) if is_callers_fault else EngineError(code, message)
