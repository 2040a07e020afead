"""Where PyTorch keeps them."""
from .modes import detect_anomaly as detect_anomaly, set_detect_anomaly as set_detect_anomaly
