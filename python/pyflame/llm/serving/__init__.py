"""`pyflame serve`: a language model behind OpenAI's HTTP API.

Server is the event-driven server over an Engine, Limits are what clients may take. It needs the packages aiohttp and prometheus_client: pip install pyflame[serve].
docs/serving.md describes it."""
from .._errors import needed

for _package in ("aiohttp", "prometheus_client"):
    needed(_package, "the server", "serve")

from ._server import Limits, Server  # noqa: E402

__all__ = ["Limits", "Server"]
