"""Where PyTorch keeps them."""
from .modes import detect_anomaly, set_detect_anomaly  # noqa: F401
