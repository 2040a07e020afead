"""Optimizers, learning-rate schedules, and averages of weights."""
from .. import _paths, _refused
from . import lr_scheduler as lr_scheduler, swa_utils as swa_utils
from .adafactor import Adafactor as Adafactor, Muon as Muon
from .adagrad import Adadelta as Adadelta, Adagrad as Adagrad, RMSprop as RMSprop
from .adam import Adam as Adam, AdamW as AdamW, Adamax as Adamax, NAdam as NAdam, RAdam as RAdam, SparseAdam as SparseAdam
from .asgd import ASGD as ASGD, Rprop as Rprop
from .lbfgs import LBFGS as LBFGS
from .low_bit import Adam8bit as Adam8bit, AdamW8bit as AdamW8bit, AdamWFp8 as AdamWFp8
from .optimizer import Optimizer as Optimizer
from .sgd import SGD as SGD

globals().update(_paths.add(__name__, ("adadelta", "adamax", "adamw", "_muon", "nadam", "radam", "rmsprop", "rprop", "sparse_adam"), _paths.names_of(__name__)))
_refused.unknown(globals())
