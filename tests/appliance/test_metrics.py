"""Metrics have the field's names, bounded labels, and count each request once."""

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from appliance.audit.record import Outcome
from appliance.generation import Timings, Usage
from appliance.metrics import EndedRequest, EngineNumbers, Metrics


def samples_of(metrics: Metrics) -> dict[str, float]:
    return {
        sample.name + str(sorted(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(metrics.render().decode())
        for sample in family.samples
    }


def ended(model: str = "m", **changes: object) -> EndedRequest:
    facts: dict[str, object] = {
        "route": "/v1/chat/completions",
        "model": model,
        "outcome": Outcome.OK,
        "duration_s": 1.0,
        "first_token_s": 0.25,
        "finish_reasons": ("stop", "stop"),
        "usage": Usage(prompt_tokens=10, completion_tokens=20),
        "timings": Timings(queue_s=0.1, prefill_s=0.2, decode_s=0.3),
        **changes,
    }
    return EndedRequest(**facts)  # type: ignore[arg-type]


def test_an_ended_request_is_counted_and_timed_once() -> None:
    metrics = Metrics()
    metrics.know_models(["m"])
    metrics.count_ended(ended())
    samples = samples_of(metrics)
    assert samples["hisar_requests_total['/v1/chat/completions', 'm', 'ok']"] == 1
    assert samples["hisar_request_success_total['m', 'stop']"] == 2
    assert samples["hisar_prompt_tokens_total['m']"] == 10
    assert samples["hisar_generation_tokens_total['m']"] == 20
    for name in (
        "time_to_first_token_seconds",
        "e2e_request_latency_seconds",
        "request_queue_time_seconds",
        "request_prefill_time_seconds",
        "request_decode_time_seconds",
    ):
        assert samples[f"hisar_{name}_count['m']"] == 1


@pytest.mark.parametrize("usage", [Usage(), Usage(prompt_tokens=9, completion_tokens=2)])
def test_a_request_that_no_engine_timed_is_counted_and_not_timed(usage: Usage) -> None:
    metrics = Metrics()
    metrics.know_models(["m"])
    refused = ended(outcome=Outcome.REFUSED, first_token_s=None, finish_reasons=(), usage=usage)
    metrics.count_ended(msgspec.structs.replace(refused, timings=Timings()))
    samples = samples_of(metrics)
    assert samples["hisar_requests_total['/v1/chat/completions', 'm', 'refused']"] == 1
    assert "hisar_request_prefill_time_seconds_count['m']" not in samples


def test_a_model_that_the_box_does_not_have_makes_no_label() -> None:
    metrics = Metrics()
    metrics.know_models(["m"])
    for name in ("", "x" * 1000, 'evil"} 1\n', "n"):
        metrics.count_ended(ended(name))
    samples = samples_of(metrics)
    assert samples["hisar_requests_total['/v1/chat/completions', 'ok', 'unknown']"] == 4
    assert "evil" not in metrics.render().decode()


def test_the_engines_own_numbers_are_shown_as_they_are_even_when_they_begin_anew() -> None:
    metrics = Metrics()
    numbers = EngineNumbers(
        num_running=2,
        num_waiting=3,
        kv_used_tokens=25,
        kv_total_tokens=100,
        kv_cached_tokens=60,
        kv_saved_tokens=700,
        num_preemptions=1,
        prefix_cache_queries=40,
        prefix_cache_hits=30,
        num_drafted=20,
        num_accepted=15,
    )
    metrics.show_engines({"m": numbers})
    samples = samples_of(metrics)
    assert samples["hisar_num_requests_running['m']"] == 2
    assert samples["hisar_num_requests_waiting['m']"] == 3
    assert samples["hisar_kv_cache_usage_perc['m']"] == 0.25
    assert samples["hisar_kv_cached_tokens['m']"] == 60
    assert samples["hisar_kv_saved_tokens['m']"] == 700
    assert samples["hisar_num_preemptions_total['m']"] == 1
    assert samples["hisar_prefix_cache_queries_total['m']"] == 40
    assert samples["hisar_prefix_cache_hits_total['m']"] == 30
    assert samples["hisar_spec_decode_num_draft_tokens_total['m']"] == 20
    assert samples["hisar_spec_decode_num_accepted_tokens_total['m']"] == 15
    metrics.show_engines({"m": EngineNumbers()})
    assert samples_of(metrics)["hisar_prefix_cache_queries_total['m']"] == 0
    metrics.show_engines({})
    assert not any("num_requests_running" in name for name in samples_of(metrics))


def test_loads_states_and_evictions_of_models_are_shown() -> None:
    metrics = Metrics()
    ready = EngineNumbers(load_s=1.5)
    failed = EngineNumbers(state="failed", failure_code="model.file_refused")
    metrics.show_engines({"m": ready, "n": failed}, {"m": 2, "gone": 1})
    samples = samples_of(metrics)
    assert samples["hisar_model_load_seconds['m']"] == 1.5
    assert "hisar_model_load_seconds['n']" not in samples
    assert samples["hisar_model_state['', 'm', 'ready']"] == 1
    assert samples["hisar_model_state['failed', 'model.file_refused', 'n']"] == 1
    assert samples["hisar_model_evictions_total['m']"] == 2
    assert samples["hisar_model_evictions_total['gone']"] == 1


def test_two_gateways_in_one_process_do_not_share_numbers() -> None:
    one, other = Metrics(), Metrics()
    one.in_flight.inc()
    assert samples_of(one)["hisar_requests_in_flight[]"] == 1
    assert samples_of(other)["hisar_requests_in_flight[]"] == 0
