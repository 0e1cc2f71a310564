"""Tokens made by hand, good and bad: a realm's keys, and whatever a token may claim to be."""

import hashlib
import hmac
import json
import time
from base64 import urlsafe_b64encode
from functools import cache
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

ISSUER = "https://sso.bank.example/realms/bank"
AUDIENCE = "hisar"

_P256_BYTES = 32


@cache
def rsa_key(kid: str) -> rsa.RSAPrivateKey:
    """The private key of that name, always the same one; that of `short` is a short one."""
    return rsa.generate_private_key(65537, key_size=1024 if kid == "short" else 2048)


@cache
def ec_key(kid: str) -> ec.EllipticCurvePrivateKey:  # noqa: ARG001 one for each name
    """The private key of that name, always the same one."""
    return ec.generate_private_key(ec.SECP256R1())


def jwk(kid: str, alg: str = "RS256", **more: str) -> dict[str, Any]:
    """A key as a realm publishes it."""
    if alg == "ES256":
        public: dict[str, Any] = ECAlgorithm.to_jwk(ec_key(kid).public_key(), as_dict=True)
    else:
        public = RSAAlgorithm.to_jwk(rsa_key(kid).public_key(), as_dict=True)
    public.pop("key_ops", None)
    return {**public, "kid": kid, "alg": alg, "use": "sig", **more}


def public_pem(kid: str) -> bytes:
    """A realm's key as its console shows it."""
    return rsa_key(kid).public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def public_der(kid: str) -> bytes:
    """The same, without the armour."""
    return rsa_key(kid).public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def claims(**changes: Any) -> dict[str, Any]:
    """The claims of a good token with some changed; None takes one out.

    Times are given relative to now.
    """
    now = int(time.time())
    good = {
        "iss": ISSUER,
        "aud": [AUDIENCE, "account"],
        "azp": "hisar-cli",
        "sub": "11111111-2222-3333-4444-555555555555",
        "typ": "Bearer",
        "exp": 300,
        "nbf": 0,
        "iat": 0,
        "groups": ["/bank/treasury"],
        "realm_access": {"roles": ["offline_access", "user"]},
    }
    merged = {key: value for key, value in {**good, **changes}.items() if value is not None}
    for key in ("exp", "nbf", "iat"):
        if type(merged.get(key)) is int:
            merged[key] += now
    return merged


def sign(
    payload: Any, key: str = "one", alg: str = "RS256", secret: bytes = b"", **header: Any
) -> str:
    """A token. RS256, PS256, ES256 use the key of that name, HS256 the secret; others sign not.

    `header` replaces what stands in the token's; None takes it out.
    """
    whole = {"alg": alg, "typ": "JWT", "kid": key, **header}
    head = {name: value for name, value in whole.items() if value is not None}
    text = b".".join(encode(json.dumps(part).encode()) for part in (head, payload))
    return (text + b"." + encode(_signature(text, key, alg, secret))).decode()


def encode(data: bytes) -> bytes:
    """Base 64 as tokens have it."""
    return urlsafe_b64encode(data).rstrip(b"=")


def _signature(text: bytes, key: str, alg: str, secret: bytes) -> bytes:
    if alg == "RS256":
        return rsa_key(key).sign(text, padding.PKCS1v15(), SHA256())
    if alg == "PS256":
        pss = padding.PSS(padding.MGF1(SHA256()), padding.PSS.DIGEST_LENGTH)
        return rsa_key(key).sign(text, pss, SHA256())
    if alg == "ES256":
        numbers = decode_dss_signature(ec_key(key).sign(text, ec.ECDSA(SHA256())))
        return b"".join(number.to_bytes(_P256_BYTES, "big") for number in numbers)
    return hmac.digest(secret, text, hashlib.sha256) if secret else b""
