"""Tools for parameters and sequences: clipping, vectors of parameters, packed sequences."""
from . import rnn  # noqa: F401
from .clip_grad import clip_grad_norm_, clip_grad_value_, parameters_to_vector, vector_to_parameters  # noqa: F401
