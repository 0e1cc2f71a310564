"""What engines are asked beside text to write: the last steps of those calls.

The steps before are the walk's, in `gateway/generate.py`. What was read is what is charged.
"""

from appliance.embedding import EmbeddingRequest
from appliance.generation import Usage
from appliance.tokens import DetokenizeRequest, TokenizeRequest
from gateway.beginning import in_time
from gateway.box import Box
from gateway.exchange import Exchange
from gateway.lease import Lease
from gateway.limits.headers import to_headers
from gateway.wire import openai_embeddings, vllm_tokens
from gateway.wire.openai_embeddings import AskedEmbeddings
from gateway.wire.vllm_tokens import AskedText, AskedTokens


async def embed(box: Box, exchange: Exchange, lease: Lease, asked: AskedEmbeddings) -> None:
    """Have texts turned into vectors."""
    request = EmbeddingRequest(model=lease.model, inputs=asked.prompts, dimensions=asked.dimensions)
    embeddings = await in_time(box.engines.embed(request), _patience_s(box))
    lease.finish(embeddings.usage)
    body = openai_embeddings.encode(embeddings, asked)
    await exchange.send_whole(body, to_headers(lease.grant))


async def tokenize(box: Box, exchange: Exchange, lease: Lease, asked: AskedTokens) -> None:
    """Have a prompt cut into tokens."""
    (prompt,) = asked.prompts
    request = TokenizeRequest(
        model=lease.model, prompt=prompt, adds_special_tokens=asked.adds_special_tokens
    )
    tokenized = await in_time(box.engines.tokenize(request), _patience_s(box))
    lease.finish(Usage(prompt_tokens=len(tokenized.token_ids)))
    await exchange.send_whole(vllm_tokens.encode(tokenized), to_headers(lease.grant))


async def detokenize(box: Box, exchange: Exchange, lease: Lease, asked: AskedText) -> None:
    """Have tokens put together to text."""
    (prompt,) = asked.prompts
    request = DetokenizeRequest(model=lease.model, token_ids=prompt.token_ids)
    detokenized = await in_time(box.engines.detokenize(request), _patience_s(box))
    lease.finish(Usage(prompt_tokens=len(prompt.token_ids)))
    await exchange.send_whole(vllm_tokens.encode_text(detokenized), to_headers(lease.grant))


def _patience_s(box: Box) -> float:
    return box.config.gateway.first_event_timeout_s
