"""What a value of the configuration must be beyond its type: rules by key, and what to do instead.

A rule sees one value and yields what is wrong with it. No rule repeats a value, which may be a
password, and none asks the machine.
"""

import ipaddress
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

from msgspec import Struct

_LABEL: Final = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(?<!-)")
_MAX_HOST_CHARS: Final = 253
_POSTGRESQL: Final = re.compile(
    r"(?:.*@)?(?:\[[0-9A-Fa-f:.]+\]|[^:/?@\[\]]*)(?::(?P<port>\d{1,5}))?/[^/?]+(?:\?.*)?"
)
_SQLITE: Final = re.compile(r"/[^?]*[^/?][^?]*(?:\?.*)?")
_MAX_PORT: Final = 65535
_LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost"})
_ISSUER_HINT: Final = 'write "https://sso.bank.example/realms/bank"'
_GROUP: Final = re.compile(r"/[^/]+(?:/[^/]+)*")


class Complaint(Struct, frozen=True):
    """What is wrong with a value and what to write; `key` is the one inside of it, of a table."""

    problem: str
    hint: str
    key: str = ""
    code: str = "config.out_of_range"


Rule: TypeAlias = Callable[[Any], Iterator[Complaint]]


def complaints(path: tuple[str, ...], value: Any) -> Iterator[Complaint]:  # noqa: ANN401 - TOML
    """All that is wrong with a value that is of the right type."""
    rule = RULES.get(path)
    if rule is not None:
        yield from rule(value)


def _check_host(host: str) -> Iterator[Complaint]:
    if not _is_host(host.strip("[]")):
        yield Complaint("expected an address or a host name", 'write "127.0.0.1", or "0.0.0.0"')


def _check_allowed_hosts(hosts: Iterable[str]) -> Iterator[Complaint]:
    if not hosts:
        yield Complaint("without a name nobody can call the box", 'write ["127.0.0.1"]')
    for number, host in enumerate(hosts):
        is_bare_ipv6 = ":" in host and _is_address(host)
        if is_bare_ipv6 or not _is_host(_without_brackets(host)):
            yield Complaint(
                f"expected a host name (item {number})",
                "no port, no scheme, no star; an IPv6 address in brackets",
            )


def _check_denied_words(words: Iterable[str]) -> Iterator[Complaint]:
    for number, word in enumerate(words):
        if not any(c.isprintable() and not c.isspace() and c != "*" for c in word):
            yield Complaint(
                f"a denied word needs a character to look for (item {number})", "take it out"
            )


def _check_preload(models: Iterable[str]) -> Iterator[Complaint]:
    for number, model in enumerate(models):
        if not _is_name(model):
            yield Complaint(
                f"expected the name of a model (item {number})", "`hisar models list` shows them"
            )


def _check_aliases(aliases: Mapping[str, str]) -> Iterator[Complaint]:
    for alias, model in aliases.items():
        if not (_is_name(alias) and _is_name(model)):
            yield Complaint("expected the name of a model", '[aliases] fast = "model"', alias)
        elif model in aliases:
            yield Complaint("names an alias", "write the name of the model itself", alias)


def _check_store_url(url: str) -> Iterator[Complaint]:
    if url and not _is_database(url):
        yield Complaint(
            "names no database that the box can use",
            "write postgresql+psycopg://user:password@host/name, or leave it empty",
        )


def _check_identity(table: Mapping[str, Any]) -> Iterator[Complaint]:
    """What an issuer needs beside it: without an audience, tokens made for others would do."""
    if not table.get("issuer"):
        if any(value for key, value in table.items() if key != "leeway_s"):
            yield _missing("issuer", "name the realm whose tokens are taken")
        return
    if not table.get("audience"):
        yield _missing("audience", "name the client that tokens for this box are made for")
    if not (table.get("tenant_claim") or table.get("group_tenants")):
        yield _missing("tenant_claim", "name the claim with the tenant, or write group_tenants")


def _missing(key: str, hint: str) -> Complaint:
    return Complaint("must not be empty", hint, key, "config.missing_key")


def _check_issuer(issuer: str) -> Iterator[Complaint]:
    if not issuer:
        return
    try:
        url = urlsplit(issuer)
        host = (url.hostname or "") if url.port != 0 else ""
    except ValueError:  # brackets, or a port that is no number
        url, host = urlsplit(""), ""
    is_plain = not (url.query or url.fragment or url.username) and issuer.isprintable()
    realm = url.path.rpartition("/realms/")[2]
    if not (url.scheme in {"http", "https"} and _is_host(host) and is_plain):
        yield Complaint("expected an address", _ISSUER_HINT)
    elif url.scheme == "http" and host not in _LOOPBACK:
        yield Complaint("keys that come over plain HTTP can be anybody's", "write https://")
    elif issuer.endswith("/"):
        yield Complaint("a realm's issuer has no slash at its end", "take it away")
    elif "/realms/" not in url.path or not realm or "/" in realm:
        yield Complaint("expected the address of a Keycloak realm", _ISSUER_HINT)


def _check_groups(mapping: Mapping[str, str]) -> Iterator[Complaint]:
    for group, meaning in mapping.items():
        if not _GROUP.fullmatch(group):
            yield Complaint("expected a group's full path", 'write "/bank/treasury"', group)
        if not _is_name(meaning):
            yield Complaint("expected the name of a tenant", '"/bank/treasury" = "treasury"', group)


RULES: Final[Mapping[tuple[str, ...], Rule]] = {
    ("aliases",): _check_aliases,
    ("gateway", "host"): _check_host,
    ("gateway", "allowed_hosts"): _check_allowed_hosts,
    ("engine", "preload"): _check_preload,
    ("guardrails", "denied_words"): _check_denied_words,
    ("identity",): _check_identity,
    ("identity", "issuer"): _check_issuer,
    ("identity", "group_tenants"): _check_groups,
    ("identity", "group_roles"): _check_groups,
    ("store", "url"): _check_store_url,
}


def _is_name(text: str) -> bool:
    return bool(text) and text.isprintable() and text == text.strip()


def _is_host(text: str) -> bool:
    if _is_address(text):
        return True
    labels = text.removesuffix(".").split(".")
    # What ends in a number is meant to be an address (RFC 3696, section 2).
    is_name = all(map(_LABEL.fullmatch, labels)) and not labels[-1].isdigit()
    return is_name and len(text) <= _MAX_HOST_CHARS


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def _without_brackets(host: str) -> str:
    return host[1:-1] if host.startswith("[") and host.endswith("]") else host


def _is_database(url: str) -> bool:
    scheme, separator, rest = url.partition("://")
    backend = scheme.partition("+")[0]
    if not separator or not url.isprintable():
        return False
    if backend == "sqlite":
        return _SQLITE.fullmatch(rest) is not None
    found = _POSTGRESQL.fullmatch(rest)
    return backend == "postgresql" and found is not None and int(found["port"] or 0) <= _MAX_PORT
