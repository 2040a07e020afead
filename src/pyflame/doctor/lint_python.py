"""Findings of the LINT rules in one Python file."""
