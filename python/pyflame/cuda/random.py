"""Where PyTorch keeps them: the functions of pf.cuda about random numbers."""


def __getattr__(name):
    from .. import cuda

    if name in ("manual_seed", "manual_seed_all", "seed", "seed_all", "initial_seed", "get_rng_state", "set_rng_state", "get_rng_state_all", "set_rng_state_all"):
        return getattr(cuda, name)
    raise AttributeError(f"module 'pyflame.cuda.random' has no attribute '{name}'")
