"""Where PyTorch keeps them."""
from .._grad_mode import enable_grad, inference_mode, no_grad, set_grad_enabled  # noqa: F401
from .modes import set_multithreading_enabled  # noqa: F401
