"""How much is left, told in the headers that OpenAI's clients know."""

from gateway.limits.limiter import Grant


def to_headers(grant: Grant) -> dict[str, str]:
    """Headers for a key with a limit of tokens per minute; none for a key without."""
    if grant.quota is None:
        return {}
    quota = grant.quota
    return {
        "x-ratelimit-limit-tokens": str(quota.limit_tokens),
        "x-ratelimit-remaining-tokens": str(quota.remaining_tokens),
        "x-ratelimit-reset-tokens": write_duration(quota.reset_s),
    }


def write_duration(seconds: float) -> str:
    """A duration as Go writes it: `9ms`, `1.5s`, `6m0s`."""
    millis = round(seconds * 1000)
    if millis < 1000:
        return f"{millis}ms"
    minutes, rest = divmod(millis, 60_000)
    hours, minutes = divmod(minutes, 60)
    text = f"{rest / 1000:g}s"
    if hours or minutes:
        text = f"{minutes}m{text}"
    return f"{hours}h{text}" if hours else text
