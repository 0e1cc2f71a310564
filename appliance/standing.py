"""How a running box stands, as its own health and metrics tell."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec import Struct

from appliance.errors import MachineError

if TYPE_CHECKING:
    import httpx


_READY: Final = "ready"


class ModelStanding(Struct, frozen=True, kw_only=True):
    """One loaded model: sequences in the step and waiting, share of the KV cache in use."""

    name: str
    num_running: int = 0
    num_waiting: int = 0
    kv_usage: float = 0.0
    prefix_cache_hit_rate: float = 0.0


class UnreadyModel(Struct, frozen=True, kw_only=True):
    """A model that is wanted and not in memory: `reason` is the code of why it failed."""

    name: str
    state: str
    reason: str = ""


class Standing(Struct, frozen=True, kw_only=True):
    """A box as a whole. `requests` counts ended requests by outcome since the gateway's start."""

    running: bool
    ready: bool = False
    reasons: tuple[str, ...] = ()
    base_url: str = ""
    available_models: tuple[str, ...] = ()
    loaded_models: tuple[ModelStanding, ...] = ()
    num_in_flight: int = 0
    requests: dict[str, int] = {}
    prompt_tokens: int = 0
    generated_tokens: int = 0
    unready_models: tuple[UnreadyModel, ...] = ()


def ask_standing(client: "httpx.Client") -> Standing:
    """Ask the gateway that `client` is connected to, with a key that may read metrics.

    Raises httpx.TransportError, and MachineError `gateway.unreachable` where something else
    answers; what the key may not see is left empty.
    """
    health = _health(client)
    models = client.get("/v1/models")
    metrics = client.get("/metrics")
    totals = _Totals(metrics.text if metrics.status_code == 200 else "")
    return Standing(
        running=True,
        ready=not health.reasons,
        reasons=health.reasons,
        base_url=str(client.base_url).rstrip("/"),
        available_models=_names(models.json()) if models.status_code == 200 else (),
        loaded_models=tuple(_model(name, totals) for name in totals.ready_models()),
        unready_models=totals.unready_models(),
        num_in_flight=totals.sum("hisar_requests_in_flight"),
        requests=totals.by("hisar_requests_total", "outcome"),
        prompt_tokens=totals.sum("hisar_prompt_tokens_total"),
        generated_tokens=totals.sum("hisar_generation_tokens_total"),
    )


class _Health(Struct):
    """The gateway's answer to whether it is ready; no reasons against it: it is."""

    status: str
    reasons: tuple[str, ...] = ()


def _health(client: "httpx.Client") -> _Health:
    try:
        return msgspec.json.decode(client.get("/health/ready").content, type=_Health)
    except msgspec.DecodeError as error:
        raise MachineError(
            "gateway.unreachable", f"what answers at {client.base_url} is not this box"
        ) from error


class _Totals:
    """The samples of one reading of the metrics."""

    def __init__(self, text: str) -> None:
        from prometheus_client.parser import text_string_to_metric_families

        self._samples = [
            (sample.name, sample.labels, sample.value)
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        ]

    def ready_models(self) -> list[str]:
        states = self._of("hisar_model_state")
        return sorted(labels["model"] for labels, _ in states if labels["state"] == _READY)

    def unready_models(self) -> tuple[UnreadyModel, ...]:
        return tuple(
            UnreadyModel(name=labels["model"], state=labels["state"], reason=labels["reason"])
            for labels, _ in self._of("hisar_model_state")
            if labels["state"] != _READY
        )

    def by(self, name: str, label: str) -> dict[str, int]:
        """The values of a metric, summed up by one label."""
        sums: dict[str, int] = {}
        for labels, value in self._of(name):
            sums[labels[label]] = sums.get(labels[label], 0) + int(value)
        return sums

    def sum(self, name: str) -> int:
        return int(sum(value for _, value in self._of(name)))

    def one(self, name: str, model: str) -> float:
        return sum(value for labels, value in self._of(name) if labels.get("model") == model)

    def _of(self, name: str) -> Iterable[tuple[dict[str, str], float]]:
        return ((labels, value) for known, labels, value in self._samples if known == name)


def _model(name: str, totals: _Totals) -> ModelStanding:
    queries = totals.one("hisar_prefix_cache_queries_total", name)
    hits = totals.one("hisar_prefix_cache_hits_total", name)
    return ModelStanding(
        name=name,
        num_running=int(totals.one("hisar_num_requests_running", name)),
        num_waiting=int(totals.one("hisar_num_requests_waiting", name)),
        kv_usage=round(totals.one("hisar_kv_cache_usage_perc", name), 4),
        prefix_cache_hit_rate=round(hits / queries, 4) if queries else 0.0,
    )


def _names(models: dict[str, Any]) -> tuple[str, ...]:
    return tuple(model["id"] for model in models["data"])
