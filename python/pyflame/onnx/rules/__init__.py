"""The rules, by family. table.py registers them."""
