"""Where PyTorch keeps them: the functions of pf.cuda about memory."""


def __getattr__(name):
    from .. import cuda

    if "mem" in name or name == "empty_cache":
        return getattr(cuda, name)
    raise AttributeError(f"module 'pyflame.cuda.memory' has no attribute '{name}'")
