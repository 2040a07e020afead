"""What torch.version says: no CUDA and no HIP of its own, because GPUs are found when the program runs."""
import pyflame.torch as _alias

__version__ = _alias.__version__
cuda = hip = git_version = None
debug = False
