"""Measures how long functions take, and says when a number is not to be trusted.

    m = pf.bench(model, x)                 # a Measurement; print(m) shows the median and its interval
    pf.benchmarking.compare(m, other)      # a bootstrap interval of the ratio
    pyflame bench train.py:step            # the same from the shell
"""
from .compare import Comparison, compare, compare_functions  # noqa: F401
from .measure import Measurement, bench  # noqa: F401
from .records import Records  # noqa: F401
from .results import Result  # noqa: F401

__all__ = ["Comparison", "Measurement", "Records", "Result", "bench", "compare", "compare_functions"]
