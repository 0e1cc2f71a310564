"""POST /v1/completions"""

from litestar import post
from litestar.types import ASGIApp

from gateway.box import Box
from gateway.generate import answer
from gateway.wire import openai_completions


@post("/v1/completions")
async def create_completion(box: Box) -> ASGIApp:
    """The continuation of a text."""
    return answer(box, openai_completions)
