"""Where PyTorch keeps them: the functions of pf.cuda about memory."""


def __getattr__(name):
    from .. import cuda

    if name in ("_snapshot", "_dump_snapshot"):
        return (lambda device=None: cuda._memory_history()) if name == "_snapshot" else (lambda filename="dump_snapshot.pickle": cuda._memory_history(filename))
    if "mem" in name or name == "empty_cache":
        return getattr(cuda, name)
    raise AttributeError(f"module 'pyflame.cuda.memory' has no attribute '{name}'")
