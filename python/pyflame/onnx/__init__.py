"""Models in the ONNX format. pf.onnx.load makes a Module of a file, pf.onnx.export writes one. The package onnx reads and writes the format:
pip install onnx."""
from .. import _refused
from .model import OnnxModule, load
from .table import operators

__all__ = ["OnnxModule", "export", "load", "operators"]


def export(model, args, f=None, **options):
    """Writes a model as an ONNX file and returns the ModelProto.

    args: a tensor or a tuple of tensors, for one call in eval mode. f: a path, or None. options: opset (17 to 22; 18 unless given), input_names and output_names (lists), and
    check: the file is loaded again and compared with the model.

    Raises ValueError for another opset and names that do not fit; TypeError for arguments that are not tensors and unknown options; OSError where the file
    cannot be written; and what the model raises.
    """
    from .exporter import export

    return export(model, args, f, **options)


_refused.unknown(globals())
