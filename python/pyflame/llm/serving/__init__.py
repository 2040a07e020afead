"""`pyflame serve`: a language model behind OpenAI's HTTP API.

Server is the event-driven server over an Engine, Limits are what clients may take. It needs the packages aiohttp and prometheus_client: pip install regex jinja2 llguidance aiohttp prometheus-client.
docs/serving.md describes it."""
from .._errors import needed

TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:  # names that are imported when they are first used
    from ._server import Limits as Limits, Server as Server
del TYPE_CHECKING

__all__ = ["Limits", "Server"]


def __getattr__(name):
    """The packages are asked for at the first use, so that `python -m pyflame.llm.serving` can say in one line what is missing."""
    if name not in __all__:
        raise AttributeError(f"module 'pyflame.llm.serving' has no attribute '{name}'")
    for package in ("aiohttp", "prometheus_client"):
        needed(package, "the server", "serve")
    from . import _server

    return getattr(_server, name)
