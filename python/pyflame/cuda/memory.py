"""Where PyTorch keeps them: the functions of pf.cuda about memory."""
TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:  # the names that __getattr__ finds
    from . import (
        empty_cache as empty_cache,
        get_memory_info as get_memory_info,
        get_per_process_memory_fraction as get_per_process_memory_fraction,
        max_memory_allocated as max_memory_allocated,
        max_memory_cached as max_memory_cached,
        max_memory_reserved as max_memory_reserved,
        mem_get_info as mem_get_info,
        memory_allocated as memory_allocated,
        memory_cached as memory_cached,
        memory_reserved as memory_reserved,
        memory_snapshot as memory_snapshot,
        memory_stats as memory_stats,
        memory_summary as memory_summary,
        memory_usage as memory_usage,
        reset_accumulated_memory_stats as reset_accumulated_memory_stats,
        reset_max_memory_allocated as reset_max_memory_allocated,
        reset_max_memory_cached as reset_max_memory_cached,
        reset_peak_memory_stats as reset_peak_memory_stats,
        set_per_process_memory_fraction as set_per_process_memory_fraction,
        use_mem_pool as use_mem_pool,
    )
del TYPE_CHECKING


def __getattr__(name):
    from .. import cuda

    if name in ("_snapshot", "_dump_snapshot"):
        return (lambda device=None: cuda._memory_history()) if name == "_snapshot" else (lambda filename="dump_snapshot.pickle": cuda._memory_history(filename))
    if "mem" in name or name == "empty_cache":
        return getattr(cuda, name)
    raise AttributeError(f"module 'pyflame.cuda.memory' has no attribute '{name}'")
