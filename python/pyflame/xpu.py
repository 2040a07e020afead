"""A kind of device that PyFlame does not have, so that questions about it have an answer."""
from ._C import manual_seed, synchronize  # noqa: F401


def is_available():
    """No."""
    return False


def device_count():
    """0."""
    return 0


def empty_cache():
    """Nothing."""
