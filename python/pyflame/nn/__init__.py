"""Layers, losses, containers, initial values, clipping."""
from . import attention, functional, init, utils  # noqa: F401
from .activations import (  # noqa: F401
    CELU,
    ELU,
    GLU,
    SELU,
    Hardsigmoid,
    Hardswish,
    Hardtanh,
    LogSigmoid,
    Mish,
    PReLU,
    ReLU6,
    Softmin,
    Softsign,
    Tanhshrink,
)
from .containers import ModuleDict, ModuleList, Sequential  # noqa: F401
from .convolution import (  # noqa: F401
    AdaptiveAvgPool1d,
    AdaptiveAvgPool2d,
    AvgPool1d,
    AvgPool2d,
    Conv1d,
    Conv2d,
    ConvTranspose2d,
    MaxPool1d,
    MaxPool2d,
)
from .layers import (  # noqa: F401
    GELU,
    BatchNorm1d,
    BatchNorm2d,
    BCEWithLogitsLoss,
    CrossEntropyLoss,
    Dropout,
    Embedding,
    Flatten,
    GroupNorm,
    Identity,
    L1Loss,
    LayerNorm,
    LeakyReLU,
    Linear,
    LogSoftmax,
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
    Unflatten,
)
from .losses import HuberLoss, KLDivLoss, SmoothL1Loss  # noqa: F401
from .module import Module  # noqa: F401
from .parameter import Parameter  # noqa: F401
