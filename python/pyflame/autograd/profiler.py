"""Where PyTorch once kept it."""
from ..profiler import *  # noqa: F401,F403
from ..profiler import emit_nvtx as emit_nvtx, profile as profile, record_function as record_function
