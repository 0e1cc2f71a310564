"""What is counted and timed, under which names: every metric of the gateway and its audit log.

Names follow the field's serving engines with the prefix `hisar_`. A label never holds more than a
known set of values: the model of a request is named only where the box has such a model.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final, TypeAlias

from msgspec import Struct
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from appliance.audit.record import Outcome
from appliance.generation import Timings, Usage

UNKNOWN_MODEL: Final = "unknown"

_LATENCY_BUCKETS_S: Final = tuple(n / 1000 for n in (5, 10, 25, 50, 100, 250, 500, 750)) + tuple(
    map(float, (1, 2.5, 5, 7.5, 10, 20, 40, 80, 160))
)
_TOKEN_BUCKETS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.2, 0.5, 1.0, 2.5)


class EndedRequest(Struct, frozen=True, kw_only=True):
    """All that is counted of one request when it is over.

    `model` is empty where no model was resolved; `first_token_s` is None where none came.
    """

    route: str
    model: str
    outcome: Outcome
    duration_s: float
    first_token_s: float | None = None
    finish_reasons: tuple[str, ...] = ()
    usage: Usage = Usage()
    timings: Timings = Timings()


class EngineNumbers(Struct, frozen=True, kw_only=True):
    """How one model's engine stands, as it last said. Totals begin anew when its worker does.

    `load_s` is how long its latest start took, room made included; 0: it has not been ready yet.
    `failure_code` says why the model could not be loaded.
    """

    state: str = "ready"
    load_s: float = 0.0
    failure_code: str = ""
    num_running: int = 0
    num_waiting: int = 0
    kv_used_tokens: int = 0
    kv_cached_tokens: int = 0
    kv_saved_tokens: int = 0
    kv_total_tokens: int = 0
    num_preemptions: int = 0
    prefix_cache_queries: int = 0
    prefix_cache_hits: int = 0
    num_drafted: int = 0
    num_accepted: int = 0


class Metrics:
    """The metrics of one gateway process, in a registry of their own."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        self.registry = registry or CollectorRegistry()
        self._models: frozenset[str] = frozenset()
        self._engines = _EngineCollector()
        self.registry.register(self._engines)

        self.requests = self._counter("requests", "Requests by how they ended", "route", "outcome")
        self.finished = self._counter(
            "request_success", "Choices by why they ended", "finished_reason"
        )
        self.prompt_tokens = self._counter("prompt_tokens", "Prompt tokens of ended requests")
        self.generation_tokens = self._counter("generation_tokens", "Tokens generated")
        self.in_flight = Gauge(
            "hisar_requests_in_flight", "Requests inside the gateway", registry=self.registry
        )
        self.first_token = self._histogram("time_to_first_token_seconds", "Until the first token")
        self.inter_token = self._histogram(
            "inter_token_latency_seconds", "Between two pieces of an answer", _TOKEN_BUCKETS_S
        )
        self.duration = self._histogram("e2e_request_latency_seconds", "A whole request")
        self.queue = self._histogram("request_queue_time_seconds", "Waiting in the engine")
        self.prefill = self._histogram("request_prefill_time_seconds", "Computing the prompt")
        self.decode = self._histogram("request_decode_time_seconds", "Generating the answer")

        self.tokens_refused = Counter(
            "hisar_tokens_refused",
            "Tokens of the identity provider that were refused, by what was wrong",
            ("reason",),
            registry=self.registry,
        )

        self.audit_records = self._plain_counter("audit_records", "Records made durable")
        self.audit_failures = self._plain_counter(
            "audit_failures", "Commits of records that failed"
        )
        self.audit_lost = self._plain_counter("audit_lost", "Records given up on")
        self.audit_pending = Gauge(
            "hisar_audit_pending", "Records that wait to be durable", registry=self.registry
        )

    def know_models(self, models: Iterable[str]) -> None:
        """The models whose names may stand in labels; all others count as `unknown`."""
        self._models = frozenset(models)

    def label_of(self, model: str) -> str:
        """What the label `model` says for this model."""
        return model if model in self._models else UNKNOWN_MODEL

    def count_ended(self, ended: EndedRequest) -> None:
        """Count a request that is over; to be called exactly once for each."""
        model = self.label_of(ended.model)
        self.requests.labels(model, ended.route, ended.outcome.value).inc()
        self.duration.labels(model).observe(ended.duration_s)
        if ended.first_token_s is not None:
            self.first_token.labels(model).observe(ended.first_token_s)
        for reason in ended.finish_reasons:
            self.finished.labels(model, reason).inc()
        self.prompt_tokens.labels(model).inc(ended.usage.prompt_tokens)
        self.generation_tokens.labels(model).inc(ended.usage.completion_tokens)
        if ended.timings != Timings():
            self.queue.labels(model).observe(ended.timings.queue_s)
            self.prefill.labels(model).observe(ended.timings.prefill_s)
            self.decode.labels(model).observe(ended.timings.decode_s)

    def show_engines(
        self, numbers: Mapping[str, EngineNumbers], evictions: Mapping[str, int] = {}
    ) -> None:
        """How every model's engine stands now; a model that is left out is no longer shown.

        `evictions`: how often each model has left memory for another.
        """
        self._engines.numbers = dict(numbers)
        self._engines.evictions = dict(evictions)

    def render(self) -> bytes:
        """All metrics in Prometheus's text format 0.0.4."""
        return generate_latest(self.registry)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"hisar_{name}", text, ("model", *labels), registry=self.registry)

    def _plain_counter(self, name: str, text: str) -> Counter:
        return Counter(f"hisar_{name}", text, registry=self.registry)

    def _histogram(
        self, name: str, text: str, buckets: tuple[float, ...] = _LATENCY_BUCKETS_S
    ) -> Histogram:
        labels = ("model",)
        return Histogram(f"hisar_{name}", text, labels, registry=self.registry, buckets=buckets)


class _EngineCollector(Collector):
    """Shows the engines' own totals as they are; a worker's restart is a counter's reset."""

    def __init__(self) -> None:
        self.numbers: dict[str, EngineNumbers] = {}
        self.evictions: dict[str, int] = {}

    def collect(self) -> Iterator[Metric]:
        """The metrics at this moment."""
        for name, (text, gauge_of) in _GAUGES.items():
            gauge = GaugeMetricFamily(f"hisar_{name}", text, labels=["model"])
            for model, numbers in self.numbers.items():
                gauge.add_metric([model], gauge_of(numbers))
            yield gauge
        for name, (text, total_of) in _TOTALS.items():
            total = CounterMetricFamily(f"hisar_{name}", text, labels=["model"])
            for model, numbers in self.numbers.items():
                total.add_metric([model], total_of(numbers))
            yield total
        yield self._loads()
        yield self._states()
        yield self._evictions()

    def _loads(self) -> Metric:
        text = "How long the latest start took, room made included"
        gauge = GaugeMetricFamily("hisar_model_load_seconds", text, labels=["model"])
        for model, numbers in self.numbers.items():
            if numbers.load_s:
                gauge.add_metric([model], numbers.load_s)
        return gauge

    def _states(self) -> Metric:
        gauge = GaugeMetricFamily(
            "hisar_model_state",
            "1 for the state a model is in; reason is why it failed",
            labels=["model", "state", "reason"],
        )
        for model, numbers in self.numbers.items():
            gauge.add_metric([model, numbers.state, numbers.failure_code], 1)
        return gauge

    def _evictions(self) -> Metric:
        text = "How often a model left memory for another"
        total = CounterMetricFamily("hisar_model_evictions", text, labels=["model"])
        for model, count in self.evictions.items():
            total.add_metric([model], count)
        return total


_NumberOf: TypeAlias = Callable[[EngineNumbers], float]
_GAUGES: Final[dict[str, tuple[str, _NumberOf]]] = {
    "num_requests_running": ("Sequences in the engine's step", lambda n: n.num_running),
    "num_requests_waiting": ("Sequences waiting for a place", lambda n: n.num_waiting),
    "kv_cache_usage_perc": (
        "Share of the KV cache held by running sequences, 0 to 1",
        lambda n: n.kv_used_tokens / n.kv_total_tokens if n.kv_total_tokens else 0.0,
    ),
    "kv_cached_tokens": ("Tokens kept for reuse in the slots", lambda n: n.kv_cached_tokens),
    "kv_saved_tokens": ("Tokens kept for reuse beside them", lambda n: n.kv_saved_tokens),
}
_TOTALS: Final[dict[str, tuple[str, _NumberOf]]] = {
    "num_preemptions": ("Sequences put back to waiting", lambda n: n.num_preemptions),
    "prefix_cache_queries": ("Prompt tokens looked up", lambda n: n.prefix_cache_queries),
    "prefix_cache_hits": ("Prompt tokens found computed", lambda n: n.prefix_cache_hits),
    "spec_decode_num_draft_tokens": ("Tokens guessed and computed", lambda n: n.num_drafted),
    "spec_decode_num_accepted_tokens": ("Guessed tokens that were right", lambda n: n.num_accepted),
}
