"""Attention beyond functional.scaled_dot_product_attention."""
from . import varlen  # noqa: F401
