"""Volume profiles of trades: at which prices how much was traded, where most of it was, and which range holds most of it.

    analyzer = pf.finance.VolumeProfileAnalyzer(price_precision=0.25)
    profile = analyzer.profile(prices, volumes)      # arrays, a table with columns, or the path of a CSV or Parquet file
    profile.vpoc, profile.value_area                 # prices
    ticks, dropped = pf.finance.clean_ticks("ticks.csv")
    days = analyzer.sessions(ticks)                  # one profile for each day
    week = analyzer.rolling(days, 5)                 # each day with the four days before

The analyzer adds on any device; what it finds in the totals is computed on the host.
"""
from ._analyzer import VolumeProfileAnalyzer
from ._cleaning import clean_ticks
from ._profile import ValueArea, VolumeProfile

__all__ = ["ValueArea", "VolumeProfile", "VolumeProfileAnalyzer", "clean_ticks"]
