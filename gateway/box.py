"""Everything a step of the walk may ask, as one record. `gateway.app` fills it."""

from msgspec import Struct

from appliance.audit.writer import GroupCommitLog
from appliance.clock import Now
from appliance.config import Config
from appliance.metrics import Metrics
from appliance.secrets import Secrets
from appliance.store.store import Store
from engines.client import EngineClient
from gateway.auth.access import Access
from gateway.auth.authenticate import Authenticator
from gateway.drain import Drain
from gateway.limits.limiter import Limiter
from gateway.routing.fleet import Fleet
from gateway.settle import Settlement
from guardrails.screen import Screen


class Box(Struct, frozen=True, kw_only=True):
    """One running gateway."""

    config: Config
    secrets: Secrets
    store: Store
    callers: Authenticator
    access: Access
    limiter: Limiter
    screen: Screen
    audit: GroupCommitLog
    engines: EngineClient
    fleet: Fleet
    metrics: Metrics
    settlement: Settlement
    drain: Drain
    now: Now
