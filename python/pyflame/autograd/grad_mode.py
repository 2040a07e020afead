"""Where PyTorch keeps them."""
from .._grad_mode import enable_grad as enable_grad, inference_mode as inference_mode, no_grad as no_grad, set_grad_enabled as set_grad_enabled
from .modes import set_multithreading_enabled as set_multithreading_enabled
