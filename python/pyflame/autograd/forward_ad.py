"""Names of forward mode, which is not available."""
from .. import _refused

__getattr__ = _refused.module("autograd.forward_ad", "there is no forward mode; pyflame.func.jvp composes it of two backward passes")
