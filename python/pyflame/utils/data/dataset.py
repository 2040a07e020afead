"""Names that programs import from this path."""
from ...data.dataset import *  # noqa: F401,F403
