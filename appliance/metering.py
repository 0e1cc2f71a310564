"""What was used: the numbers a bill or a quota is made from."""

from msgspec import Struct

from appliance.generation import Usage


class UsageRecord(Struct, frozen=True, kw_only=True):
    """What one principal has used over all its completed requests."""

    principal_id: str
    num_requests: int
    usage: Usage
