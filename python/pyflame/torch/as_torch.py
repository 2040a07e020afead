"""Importing this module makes `import torch` mean pyflame.torch, in this process and in those that a DataLoader starts. Without a GPU these are forked, as
PyTorch does it: programs that were written for that have no `if __name__ == "__main__":`."""
import multiprocessing.forkserver

import pyflame.torch  # noqa: F401
from pyflame import _gpu
from pyflame.data import loader
from pyflame.torch import _names

_names.be_torch()
if _gpu.count() == 0:
    loader.start_method = "fork"
multiprocessing.forkserver.set_forkserver_preload([__name__])
