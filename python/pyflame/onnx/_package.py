"""The onnx package, which reads and writes the file format. It is an optional dependency, imported when the first file is opened."""


def package(op):
    """The module onnx. ImportError with a hint if it is not installed."""
    try:
        import onnx
        import onnx.numpy_helper  # noqa: F401
    except ImportError as e:
        raise ImportError(f"{op}: the package onnx cannot be imported; got: {e}; hint: pip install onnx") from e
    return onnx
