"""Importing this module makes `import torch` mean pyflame.torch, in this process and in those that a DataLoader starts."""
import multiprocessing.forkserver

import pyflame.torch  # noqa: F401
from pyflame.torch import _names

_names.be_torch()
multiprocessing.forkserver.set_forkserver_preload([__name__])
