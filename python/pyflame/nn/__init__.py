"""Layers, losses, containers, initial values, clipping."""
from . import attention, functional, init, utils  # noqa: F401
from .containers import ModuleDict, ModuleList, Sequential  # noqa: F401
from .layers import (  # noqa: F401
    GELU,
    AvgPool2d,
    BatchNorm2d,
    BCEWithLogitsLoss,
    Conv2d,
    CrossEntropyLoss,
    Dropout,
    Embedding,
    Flatten,
    Identity,
    L1Loss,
    LayerNorm,
    LeakyReLU,
    Linear,
    LogSoftmax,
    MaxPool2d,
    MSELoss,
    MultiheadAttention,
    NLLLoss,
    ReLU,
    RMSNorm,
    Sigmoid,
    SiLU,
    Softmax,
    Softplus,
    Tanh,
)
from .module import Module  # noqa: F401
from .parameter import Parameter  # noqa: F401
