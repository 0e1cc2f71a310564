"""POST /v1/chat/completions"""

from litestar import post
from litestar.types import ASGIApp

from gateway.box import Box
from gateway.generate import answer
from gateway.wire import openai_chat


@post("/v1/chat/completions")
async def create_chat_completion(box: Box) -> ASGIApp:
    """The next turn of a conversation."""
    return answer(box, openai_chat)
