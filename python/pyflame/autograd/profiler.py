"""Where PyTorch once kept it."""
from ..profiler import *  # noqa: F401,F403
from ..profiler import emit_nvtx, profile, record_function  # noqa: F401
