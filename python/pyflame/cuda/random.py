"""Where PyTorch keeps them: the functions of pf.cuda about random numbers."""
TYPE_CHECKING = False  # type checkers take this name as true
if TYPE_CHECKING:  # the names that __getattr__ finds
    from . import (
        get_rng_state as get_rng_state,
        get_rng_state_all as get_rng_state_all,
        initial_seed as initial_seed,
        manual_seed as manual_seed,
        manual_seed_all as manual_seed_all,
        seed as seed,
        seed_all as seed_all,
        set_rng_state as set_rng_state,
        set_rng_state_all as set_rng_state_all,
    )
del TYPE_CHECKING


def __getattr__(name):
    from .. import cuda

    if name in ("manual_seed", "manual_seed_all", "seed", "seed_all", "initial_seed", "get_rng_state", "set_rng_state", "get_rng_state_all", "set_rng_state_all"):
        return getattr(cuda, name)
    raise AttributeError(f"module 'pyflame.cuda.random' has no attribute '{name}'")
