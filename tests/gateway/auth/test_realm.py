"""What a realm publishes, over real HTTP, and answers that no realm would give."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from appliance.errors import ConfigError, MachineError
from gateway.auth.realm import Realm
from tests.gateway.auth.signing import jwk

_DISCOVERY = "/realms/bank/.well-known/openid-configuration"


class Pages(BaseHTTPRequestHandler):
    """Answers a path with what `server.pages` has for it: a status and a body."""

    def do_GET(self) -> None:
        status, body = self.server.pages.get(self.path, (404, b""))  # type: ignore[attr-defined]
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing."""


@contextmanager
def published(pages: dict[str, tuple[int, bytes]]) -> Iterator[str]:
    """The issuer of a realm whose server has these pages."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Pages) as server:
        server.pages = pages  # type: ignore[attr-defined]
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/realms/bank"
        finally:
            server.shutdown()
            thread.join()


async def kids_of(keys: list[Any], **metadata: str) -> list[str]:
    """Which of these keys are taken from a realm that publishes them."""
    pages: dict[str, tuple[int, bytes]] = {"/keys": (200, json.dumps({"keys": keys}).encode())}
    with published(pages) as issuer:
        where = {"issuer": issuer, "jwks_uri": issuer.removesuffix("/realms/bank") + "/keys"}
        pages[_DISCOVERY] = (200, json.dumps({**where, **metadata, "other": []}).encode())
        return sorted(await Realm(issuer, "").fetch_keys())


async def refusal_of(pages: dict[str, tuple[int, bytes]]) -> str:
    with published(pages) as issuer, pytest.raises(MachineError) as refused:
        await Realm(issuer, "").fetch_keys()
    assert refused.value.code == "identity.provider_unusable"
    return refused.value.message


async def test_keys_that_may_sign_are_taken() -> None:
    keys = [jwk("rsa"), jwk("pss", "PS256"), jwk("curve", "ES256")]
    assert await kids_of(keys) == ["curve", "pss", "rsa"]


async def test_other_keys_are_left() -> None:
    secret = {"kty": "oct", "k": "c2VjcmV0", "kid": "secret", "alg": "HS256", "use": "sig"}
    unnamed = {key: value for key, value in jwk("rsa").items() if key != "kid"}
    others = [
        jwk("for-encryption", use="enc"),
        jwk("oaep", alg="RSA-OAEP"),
        jwk("short"),
        jwk("shared", alg="HS256"),
        {**jwk("unknown"), "kty": "Lattice", "alg": "ML-DSA-44"},
        {"kid": "empty"},
        secret,
        unnamed,
    ]
    assert await kids_of([*others, jwk("rsa")]) == ["rsa"]


async def test_a_realm_of_another_name_is_not_the_one() -> None:
    for issuer in ("https://sso.bank.example/realms/bank", "http://127.0.0.1/realms/bank/"):
        with pytest.raises(MachineError) as refused:
            await kids_of([jwk("rsa")], issuer=issuer)
        assert "another issuer" in refused.value.message


async def test_a_set_without_a_usable_key_is_no_set() -> None:
    for keys in ([], [jwk("enc", use="enc")]):
        with pytest.raises(MachineError) as refused:
            await kids_of(keys)
        assert "no key" in refused.value.message


@pytest.mark.parametrize(
    "body",
    [b"", b"<html>maintenance</html>", b"null", b"[]", b"{}", b"[" * 100_000, b"\xff\xfe"],
)
async def test_what_is_no_realm_is_said(body: bytes) -> None:
    assert "does not answer as a realm" in await refusal_of({_DISCOVERY: (200, body)})


async def test_an_answer_without_end_is_not_read_to_its_end() -> None:
    assert "more than a realm" in await refusal_of({_DISCOVERY: (200, b" " * 2_000_000)})


@pytest.mark.parametrize("status", [302, 404, 500, 503])
async def test_an_error_is_no_answer(status: int) -> None:
    assert "cannot be reached" in await refusal_of({_DISCOVERY: (status, b"{}")})


async def test_nobody_there_is_said_without_the_address() -> None:
    with published({}) as issuer:
        pass
    with pytest.raises(MachineError) as refused:
        await Realm(issuer, "").fetch_keys()
    assert refused.value.message == "the identity provider cannot be reached (ConnectError)"


@pytest.mark.parametrize("text", [None, "", "no certificate"])
def test_certificates_that_are_none_are_refused_at_the_start(
    tmp_path: Path, text: str | None
) -> None:
    path = tmp_path / "ca ğ.pem"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigError) as refused:
        Realm("https://sso.bank.example/realms/bank", str(path))
    assert refused.value.code == "identity.ca_unreadable"
