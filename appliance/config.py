"""The whole configuration of a box: one TOML file, read into frozen Structs.

Every key has a default, so an empty file is a working desktop box. A key that is not below is
refused (`appliance.config_file` says how).
"""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from appliance.identity import Limits, Role

# Upper bounds are far beyond any use: they catch a wrong unit or a slipped finger.
Seconds = Annotated[float, Meta(gt=0, le=86_400)]
SecondsOrNever = Annotated[float, Meta(ge=0, le=366 * 86_400)]
Count = Annotated[int, Meta(ge=1, le=1_000_000)]
ThreadsOrAuto = Annotated[int, Meta(ge=0, le=1024)]
SlotsOrAuto = Annotated[int, Meta(ge=0, le=256)]
TokensOrAuto = Annotated[int, Meta(ge=0, le=16 * 1024 * 1024)]
Share = Annotated[float, Meta(ge=0, le=0.9)]
BytesOrAuto = Annotated[int, Meta(ge=0, le=2**50)]
# Half of what a frame between two processes of the box may hold.
BodyBytes = Annotated[int, Meta(ge=1, le=16 * 1024 * 1024)]
# More than this and a stolen token lives on for long after its end.
LeewaySeconds = Annotated[float, Meta(ge=0, le=300)]
Port = Annotated[int, Meta(ge=1, le=65535)]
LogLevel = Literal["debug", "info", "warning", "error"]
# Who runs GGUF files; "auto" is llama.cpp.
EngineName = Literal["auto", "llamacpp", "pytorch"]


class GatewayConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The door."""

    host: str = "127.0.0.1"
    port: Port = 8080
    allowed_hosts: tuple[str, ...] = ("127.0.0.1", "localhost", "[::1]")
    body_limit_bytes: BodyBytes = 2 * 1024 * 1024
    body_timeout_s: Seconds = 20.0
    drain_s: Seconds = 30.0
    first_event_timeout_s: Seconds = 300.0
    ping_s: Seconds = 15.0


class EngineConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The motor. 0 means: choose by the machine and the model; of `keep_alive_s`: for ever.

    Models to preload stay in memory; others leave when unused for `keep_alive_s`, or for others.
    Of the memory that is left over when a model is loaded, its prefixes may take a share.
    `runner` computes the models that more than one engine can.
    """

    preload: tuple[str, ...] = ("smollm2:135m",)
    num_threads: ThreadsOrAuto = 0
    num_slots: SlotsOrAuto = 0
    context_tokens: TokensOrAuto = 0
    step_tokens: TokensOrAuto = 0
    keep_alive_s: SecondsOrNever = 300.0
    memory_bytes: BytesOrAuto = 0
    prefix_memory_share: Share = 0.125
    speculation: bool = True
    deterministic: bool = False
    runner: EngineName = "auto"


class LimitsConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the box takes at once, and what a key without limits of its own may use."""

    max_in_flight: Count = 64
    max_queued: Count = 256
    queue_timeout_s: Seconds = 60.0
    per_key: Limits = Limits()


class IdentityConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Single sign-on: the Keycloak realm whose tokens are taken. No issuer: API keys alone.

    `audience` is what tokens for this box name in `aud`; its client is also the one whose roles
    count, unless `roles_client` names another. Groups are given by their full path. An empty
    `authorized_parties` takes tokens of every client, an empty `ca_file` means the system's
    certificates.
    """

    issuer: str = ""
    audience: str = ""
    authorized_parties: tuple[str, ...] = ()
    roles_client: str = ""
    tenant_claim: str = ""
    group_tenants: dict[str, str] = {}
    group_roles: dict[str, Role] = {}
    leeway_s: LeewaySeconds = 60.0
    ca_file: str = ""


class GuardrailsConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Words that may neither enter nor leave."""

    denied_words: tuple[str, ...] = ()


class StoreConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where state is kept. An empty url means the embedded database in the home folder.

    `postgresql+psycopg://user:password@host/name` for PostgreSQL.
    """

    url: str = ""


class LogsConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much is written to the log."""

    level: LogLevel = "info"


class Config(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One box."""

    profile: Literal["desktop"] = "desktop"
    aliases: dict[str, str] = {}
    gateway: GatewayConfig = GatewayConfig()
    engine: EngineConfig = EngineConfig()
    limits: LimitsConfig = LimitsConfig()
    guardrails: GuardrailsConfig = GuardrailsConfig()
    store: StoreConfig = StoreConfig()
    logs: LogsConfig = LogsConfig()
    identity: IdentityConfig = IdentityConfig()
