"""Optimizers, learning-rate schedules, and averages of weights."""
from .. import _paths, _refused
from . import lr_scheduler, swa_utils  # noqa: F401
from .adafactor import Adafactor, Muon  # noqa: F401
from .adagrad import Adadelta, Adagrad, RMSprop  # noqa: F401
from .adam import Adam, AdamW, Adamax, NAdam, RAdam, SparseAdam  # noqa: F401
from .asgd import ASGD, Rprop  # noqa: F401
from .lbfgs import LBFGS  # noqa: F401
from .low_bit import Adam8bit, AdamW8bit, AdamWFp8  # noqa: F401
from .optimizer import Optimizer  # noqa: F401
from .sgd import SGD  # noqa: F401

globals().update(_paths.add(__name__, ("adadelta", "adamax", "adamw", "_muon", "nadam", "radam", "rmsprop", "rprop", "sparse_adam"), _paths.names_of(__name__)))
_refused.unknown(globals())
