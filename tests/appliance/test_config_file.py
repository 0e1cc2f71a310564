"""A configuration with a fault never starts a box, and the fault is told where it stands."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from appliance.config import Config
from appliance.config_file import Fault, InvalidConfigError, key_paths, load, parse
from appliance.identity import Limits
from appliance.toml_lines import line_of

FILE = Path("config.toml")


def faults_of(text: str) -> tuple[Fault, ...]:
    with pytest.raises(InvalidConfigError) as caught:
        parse(text, FILE)
    return caught.value.faults


def fault_of(text: str) -> Fault:
    (fault,) = faults_of(text)
    return fault


def test_a_missing_file_and_an_empty_file_mean_all_defaults(tmp_path: Path) -> None:
    (tmp_path / "empty.toml").touch()
    assert load(tmp_path / "none.toml") == load(tmp_path / "empty.toml") == Config()


def test_what_is_written_is_in_force(tmp_path: Path) -> None:
    path = tmp_path / "ayarlar ğüşİı.toml"
    path.write_text(
        '\ufeffaliases = {fast = "smollm2:135m"}\n[gateway]\nport = 9000\ndrain_s = 5\n'
        '[limits.per_key]\ntokens_per_minute = 100\n[guardrails]\ndenied_words = ["GİZLİ"]\n',
        encoding="utf-8",
    )
    config = load(path)
    assert (config.gateway.port, config.gateway.drain_s) == (9000, 5.0)
    assert config.limits.per_key == Limits(tokens_per_minute=100)
    assert config.guardrails.denied_words == ("GİZLİ",)
    assert config.aliases == {"fast": "smollm2:135m"}


@pytest.mark.parametrize(
    ("text", "path", "line", "meant"),
    [
        ("guardrailz = 1", "guardrailz", 1, "guardrails"),
        ("[gaurdrails]\ndenied_words = []", "gaurdrails", 1, "guardrails"),
        ("\n[limits.per_key]\nTPM = 60", "limits.per_key.TPM", 3, "tokens_per_minute"),
        ("TPM = 60", "TPM", 1, "limits.per_key.tokens_per_minute"),
        ("tokens_per_minute = 60", "tokens_per_minute", 1, "limits.per_key.tokens_per_minute"),
        ("[gateway]\n\nmax_queued = 4", "gateway.max_queued", 3, "limits.max_queued"),
        ("[gateway]\nPort = 1", "gateway.Port", 2, "gateway.port"),
        ("[gateway]\nbody_limit_mb = 1", "gateway.body_limit_mb", 2, "body_limit_bytes"),
        ("gateway.prot = 1", "gateway.prot", 1, "gateway.port"),
        ("[engine]\nnum_thread = 1", "engine.num_thread", 2, "engine.num_threads"),
    ],
)
def test_an_unknown_key_is_refused_with_its_line_and_the_nearest_right_key(
    text: str, path: str, line: int, meant: str
) -> None:
    """blazing-Gael/dcms#35, BerriAI/litellm#31287, miracodeai/mira#312."""
    fault = fault_of(text)
    assert (fault.code, fault.path, fault.line) == ("config.unknown_key", path, line)
    assert meant in fault.hint


def test_a_wrong_unit_is_told_the_right_one() -> None:
    assert "gateway.drain_s" in (hint := fault_of("[gateway]\ndrain_ms = 3000").hint)
    assert "seconds" in hint


def test_a_key_like_no_other_is_told_what_can_stand_there() -> None:
    assert "gateway" in fault_of("zzzzzz = 1").hint


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ('[limits]\nmax_in_flight = "1O0"', "limits.max_in_flight"),
        ('[gateway]\nport = "8080"', "gateway.port"),
        ("[gateway]\nport = true", "gateway.port"),
        ("[gateway]\nport = 80.5", "gateway.port"),
        ('[gateway]\nallowed_hosts = "localhost"', "gateway.allowed_hosts"),
        ("[engine]\npreload = [1]", "engine.preload"),
        ("gateway = 1", "gateway"),
        ("[logs.level]\nx = 1", "logs.level"),
        ('[aliases]\nfast = "a"\nslow = 3', "aliases.slow"),
        ("[store]\nurl = 2026-01-01", "store.url"),
    ],
)
def test_a_wrong_type_is_refused(text: str, path: str) -> None:
    fault = fault_of(text)
    assert (fault.code, fault.path) == ("config.wrong_type", path)


@pytest.mark.parametrize(
    "text",
    [
        "[gateway]\nport = 0",
        "[gateway]\nport = 70000",
        "[gateway]\ndrain_s = 0",
        "[gateway]\ndrain_s = inf",
        "[gateway]\ndrain_s = nan",
        "[limits]\nmax_queued = -1",
        "[limits.per_key]\ntokens_per_minute = 0",
        '[logs]\nlevel = "warn"',
        'profile = "dekstop"',
    ],
)
def test_a_value_out_of_range_is_refused(text: str) -> None:
    assert fault_of(text).code == "config.out_of_range"


@pytest.mark.parametrize(
    ("table", "key"),
    [
        ("gateway", "body_limit_bytes"),
        ("gateway", "drain_s"),
        ("engine", "num_threads"),
        ("engine", "num_slots"),
        ("engine", "context_tokens"),
        ("engine", "step_tokens"),
        ("engine", "keep_alive_s"),
        ("engine", "memory_bytes"),
        ("limits", "max_in_flight"),
        ("limits", "max_queued"),
        ("limits", "queue_timeout_s"),
        ("limits.per_key", "tokens_per_minute"),
        ("limits.per_key", "requests_in_flight"),
    ],
)
@pytest.mark.parametrize("value", ["-1", "1000000000000000000", "1" + "0" * 40])
def test_a_number_beyond_any_use_is_refused(table: str, key: str, value: str) -> None:
    fault = fault_of(f"[{table}]\n{key} = {value}")
    assert (fault.code, fault.path, fault.line) == ("config.out_of_range", f"{table}.{key}", 2)
    assert re.search("expected a (whole )?number [<>]=? ?[0-9]", fault.problem)


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ('store.url = "mysql://u:s3cret@h/d"', "store.url"),
        ('store.url = "postgresql://u:s3cret@h"', "store.url"),
        ('store.url = "postgresql://u:s3cret@h:port/d"', "store.url"),
        ('store.url = "postgresql://h:99999/d"', "store.url"),
        ('store.url = "/var/lib/s3cret.db"', "store.url"),
        ('store.url = "sqlite://"', "store.url"),
        ('store.url = " "', "store.url"),
        ('gateway.host = ""', "gateway.host"),
        ('gateway.host = "127.0.0.256"', "gateway.host"),
        ('gateway.host = "http://127.0.0.1"', "gateway.host"),
        ('gateway.host = "127.0.0.1:8080"', "gateway.host"),
        ('gateway.host = "not a host"', "gateway.host"),
        ("gateway.allowed_hosts = []", "gateway.allowed_hosts"),
        ('gateway.allowed_hosts = ["*"]', "gateway.allowed_hosts"),
        ('gateway.allowed_hosts = ["localhost:8080"]', "gateway.allowed_hosts"),
        ('gateway.allowed_hosts = ["::1"]', "gateway.allowed_hosts"),
        ('gateway.allowed_hosts = ["ok", ""]', "gateway.allowed_hosts"),
        ('engine.preload = [""]', "engine.preload"),
        ('engine.preload = [" echo"]', "engine.preload"),
        ('guardrails.denied_words = [""]', "guardrails.denied_words"),
        ('guardrails.denied_words = ["ok", " * "]', "guardrails.denied_words"),
        ('guardrails.denied_words = ["\\u200b"]', "guardrails.denied_words"),
        ('aliases = {a = "a"}', "aliases.a"),
        ('aliases = {a = "b", b = "echo"}', "aliases.a"),
        ('aliases = {a = ""}', "aliases.a"),
        ('aliases = {a = "b\\n"}', "aliases.a"),
    ],
)
def test_a_value_that_cannot_work_is_refused_with_what_to_write(text: str, path: str) -> None:
    fault = fault_of(text)
    assert (fault.code, fault.path, fault.line) == ("config.out_of_range", path, 1)
    assert fault.hint
    assert "s3cret" not in fault.problem + fault.hint


def test_each_alias_of_a_ring_is_told() -> None:
    faults = faults_of('[aliases]\na = "b"\nb = "c"\nc = "a"\nd = "echo"')
    assert [(fault.path, fault.line) for fault in faults] == [
        ("aliases.a", 2), ("aliases.b", 3), ("aliases.c", 4)
    ]  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        'gateway.host = "0.0.0.0"',
        'gateway.host = "::"',
        'gateway.host = "[::1]"',
        'gateway.host = "fe80::1%eth0"',
        'gateway.host = "kasa-1.banka.local"',
        'gateway.allowed_hosts = ["[::1]", "10.0.0.7", "llm.banka.com.tr", "my_box"]',
        'guardrails.denied_words = ["hisar*", "$$$", "gizli belge", "\\u0130"]',
        'store.url = "postgresql+psycopg://u:s3c:r@et@h:5432/d?sslmode=require"',
        'store.url = "postgresql://u@[::1]:5432/d"',
        'store.url = "postgresql:///d?host=/run/postgresql"',
        'store.url = "sqlite:////var/lib/hisar/x.db"',
        'store.url = "sqlite+aiosqlite:///x.db"',
        'aliases = {"gpt 4" = "org/model:7b", fast = "org/model:7b"}',
    ],
)
def test_a_value_that_works_is_not_refused(text: str) -> None:
    assert parse(text, FILE) != Config()


def test_every_fault_is_told_at_once_with_its_line() -> None:
    faults = faults_of('typo = 1\n[gateway]\nport = "x"\ndrain_s = -1\n[nonsense]\n')
    assert [(fault.code, fault.line) for fault in faults] == [
        ("config.unknown_key", 1),
        ("config.wrong_type", 3),
        ("config.out_of_range", 4),
        ("config.unknown_key", 5),
    ]


def test_the_message_names_file_line_and_key_and_never_the_value() -> None:
    with pytest.raises(InvalidConfigError) as caught:
        parse('[store]\nurl = ["postgresql://u:s3cret@h/d"]', Path("/etc/hisar/config.toml"))
    assert str(caught.value).startswith("/etc/hisar/config.toml:2: store.url: expected text")
    assert "s3cret" not in str(caught.value)
    assert caught.value.exit_code == 78


@pytest.mark.parametrize(
    ("text", "line"), [("a = \n", 1), ("[gateway]\nport = 1\nport = 2\n", 3), ("x = 1O0", 1)]
)
def test_a_text_that_is_not_toml_is_refused_with_its_line(text: str, line: int) -> None:
    fault = fault_of(text)
    assert (fault.code, fault.line) == ("config.syntax", line)


def test_a_file_that_cannot_be_read_is_told_apart_from_a_missing_one(tmp_path: Path) -> None:
    (tmp_path / "latin5.toml").write_bytes(b"profile = '\xfe'")
    for path in (tmp_path, tmp_path / "latin5.toml"):
        with pytest.raises(InvalidConfigError) as caught:
            load(path)
        assert caught.value.code == "config.unreadable"


@given(st.text())
def test_any_text_is_a_configuration_or_a_told_fault(text: str) -> None:
    try:
        parse(text, FILE)
    except InvalidConfigError as error:
        assert error.faults


def test_each_key_is_found_on_its_line_in_every_way_of_writing_it() -> None:
    text = 'a.b = 1\nlong = """\nc = 2\n"""\n["x.y"]\n'
    text += "'q r' = 1\n  t = {u = 1}\n[[list]]\nz = 1 # e = 2"
    assert line_of(text, ("a", "b")) == 1
    assert line_of(text, ("c",)) == 0
    assert line_of(text, ("x.y", "q r")) == 6
    assert line_of(text, ("x.y", "t", "u")) == 7
    assert line_of(text, ("list", "z")) == 9


def test_every_key_path_is_listed_once() -> None:
    paths = list(key_paths())
    assert len(paths) == len(set(paths))
    assert ("limits", "per_key", "tokens_per_minute") in paths


IDENTITY = """
[identity]
issuer = "https://sso.bank.example/realms/bank"
audience = "hisar"
tenant_claim = "tenant"
"""


def test_a_realm_is_configured_by_issuer_audience_and_tenants() -> None:
    identity = parse(IDENTITY + 'group_roles = {"/bank/it" = "admin"}', FILE).identity
    assert (identity.issuer, identity.audience) == ("https://sso.bank.example/realms/bank", "hisar")
    assert identity.group_roles == {"/bank/it": "admin"}
    assert identity.leeway_s == 60


@pytest.mark.parametrize("missing", ["issuer", "audience", "tenant_claim"])
@pytest.mark.parametrize("is_empty", [True, False])
def test_a_realm_without_a_part_of_it_starts_no_box(missing: str, is_empty: bool) -> None:
    """BerriAI/litellm#27008: without an audience every token of the realm was good."""
    replacement = f'{missing} = ""' if is_empty else ""
    fault = fault_of(re.sub(rf"^{missing} = .*$", replacement, IDENTITY, flags=re.MULTILINE))
    assert (fault.code, fault.path) == ("config.missing_key", f"identity.{missing}")


@pytest.mark.parametrize(
    ("issuer", "word"),
    [
        ("sso.bank.example/realms/bank", "address"),
        ("ftp://sso.bank.example", "address"),
        ("https://", "address"),
        ("https://sso.bank.example:port/realms/bank", "address"),
        ("https://[::1/realms/bank", "address"),
        ("https://user:secret@sso.bank.example/realms/bank", "address"),
        ("https://sso.bank.example/realms/bank?x=1", "address"),
        ("https://sso.bank.example/realms/bank\u00a0", "address"),
        ("http://sso.bank.example/realms/bank", "plain HTTP"),
        ("https://sso.bank.example/realms/bank/", "slash"),
        ("https://sso.bank.example", "realm"),
        ("https://sso.bank.example/realms/bank/protocol/openid-connect", "realm"),
    ],
)
def test_an_issuer_that_cannot_be_is_refused_unseen(issuer: str, word: str) -> None:
    text = re.sub(r"^issuer = .*$", f'issuer = "{issuer}"', IDENTITY, flags=re.MULTILINE)
    fault = fault_of(text)
    assert (fault.code, fault.path) == ("config.out_of_range", "identity.issuer")
    assert word in fault.problem
    assert "secret" not in fault.problem + fault.hint


@pytest.mark.parametrize("host", ["127.0.0.1:8180", "localhost", "[::1]:8180"])
def test_a_realm_on_this_machine_needs_no_certificate(host: str) -> None:
    text = IDENTITY.replace("https://sso.bank.example", f"http://{host}")
    assert parse(text, FILE).identity.issuer.startswith("http://")


@pytest.mark.parametrize(
    ("line", "path"),
    [
        ('group_tenants = {"bank" = "t"}', "identity.group_tenants.bank"),
        ('group_tenants = {"/bank/" = "t"}', "identity.group_tenants./bank/"),
        ('group_tenants = {"//bank" = "t"}', "identity.group_tenants.//bank"),
        ('group_tenants = {"/bank" = ""}', "identity.group_tenants./bank"),
        ('group_roles = {"bank" = "user"}', "identity.group_roles.bank"),
        ('group_roles = {"/bank" = "root"}', "identity.group_roles./bank"),
        ("leeway_s = 301", "identity.leeway_s"),
        ("leeway_s = -1", "identity.leeway_s"),
    ],
)
def test_a_mapping_that_cannot_match_is_refused(line: str, path: str) -> None:
    fault = fault_of(IDENTITY + line)
    assert (fault.code, fault.path) == ("config.out_of_range", path)
