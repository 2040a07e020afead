"""Models in the ONNX format. pf.onnx.load makes a Module of a file, pf.onnx.export writes one. The package onnx reads and writes the format:
pip install onnx, or pyflame[onnx]."""
from .model import OnnxModule, load
from .table import operators

__all__ = ["OnnxModule", "export", "load", "operators"]


def export(model, args, f=None, **options):
    """Writes a model as an ONNX file: pyflame.onnx.exporter has the options."""
    from .exporter import export

    return export(model, args, f, **options)

