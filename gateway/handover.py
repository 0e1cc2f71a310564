"""What a call hands over: to the record, to the engine, and of itself to its own answer."""

from appliance.audit.record import Received
from appliance.generation import GenerationRequest
from gateway.box import Box
from gateway.lease import Lease
from gateway.wire.call import Call, Decoded


def to_received(box: Box, lease: Lease) -> Received:
    """What is recorded before an engine sees the request."""
    return Received(
        request_id=lease.context.id,
        at=box.now(),
        tenant_id=lease.principal.tenant_id,
        principal_id=lease.principal.id,
        route=lease.route,
        model=lease.model,
    )


def to_request(box: Box, lease: Lease, decoded: Decoded) -> GenerationRequest:
    """What the engine is asked."""
    return GenerationRequest(
        id=lease.context.id,
        model=lease.model,
        prompts=decoded.prompts,
        sampling=decoded.sampling,
        stopping=decoded.stopping,
        n=decoded.n,
        output_format=decoded.output_format,
        echoes_prompt=decoded.echoes_prompt,
        cache_salt=box.secrets.cache_salt(lease.principal.tenant_id),
    )


def to_call(box: Box, lease: Lease, decoded: Decoded) -> Call:
    """What the answer repeats: the model by the name it was asked for."""
    return Call(
        id=lease.context.id,
        model=decoded.model,
        created=int(box.now().timestamp()),
        include_usage=decoded.include_usage,
        repeated=decoded.repeated,
    )
