"""POST /v1/embeddings"""

from functools import partial

from litestar import post
from litestar.types import ASGIApp

from gateway.box import Box
from gateway.generate import serve
from gateway.questions import embed
from gateway.wire import openai_embeddings


@post("/v1/embeddings")
async def create_embeddings(box: Box) -> ASGIApp:
    """Texts as vectors."""
    return serve(box, openai_embeddings.decode, partial(embed, box))
