"""POST /tokenize, POST /detokenize"""

from functools import partial

from litestar import post
from litestar.types import ASGIApp

from gateway.box import Box
from gateway.generate import serve
from gateway.questions import detokenize, tokenize
from gateway.wire import vllm_tokens


@post("/tokenize")
async def cut_into_tokens(box: Box) -> ASGIApp:
    """A prompt as the tokens that a model would see."""
    return serve(box, vllm_tokens.decode, partial(tokenize, box))


@post("/detokenize")
async def put_together(box: Box) -> ASGIApp:
    """Tokens as text."""
    return serve(box, vllm_tokens.decode_tokens, partial(detokenize, box))
