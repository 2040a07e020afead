"""A kind of device that PyFlame does not have, so that questions about it have an answer."""
from ._C import manual_seed as manual_seed, synchronize as synchronize


def is_available():
    """Always False. The function is PyTorch's, for Apple's GPUs, and PyFlame does not have this kind of device."""
    return False


def device_count():
    """Always 0. The function is PyTorch's, for Apple's GPUs, and PyFlame does not have this kind of device."""
    return 0


def empty_cache():
    """Does nothing. The function is PyTorch's, for Apple's GPUs, and PyFlame does not have this kind of device."""
