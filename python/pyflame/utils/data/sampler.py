"""Names that programs import from this path."""
from ...data.sampler import *  # noqa: F401,F403
