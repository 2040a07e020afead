"""Models in installed packages: the name of a package stands for the model in it."""
import importlib.metadata
import os


def model_in(op, path):
    """The path of the GGUF file in the installed package of this name, or of its folder with config.json and weights. A path that exists, and what can be no name
    of a package, stays as it is. None: there is no such package. ValueError for a package without a model, or with several."""
    path = os.fsdecode(path)
    if os.path.exists(path) or os.path.basename(path) != path or path.endswith((".gguf", ".json")):
        return path
    try:
        files = importlib.metadata.files(path) or []
    except (importlib.metadata.PackageNotFoundError, ValueError):
        return None
    models = [f for f in files if f.suffix == ".gguf"] or [f.parent for f in files if f.name == "model.safetensors" and f.parent / "config.json" in files]
    if len(models) != 1:
        raise ValueError(f"{op}: the package '{path}' is no language model; got {len(models)} GGUF files or folders with config.json in it; expected one; hint: pass a file's path")
    return os.fspath(importlib.metadata.distribution(path).locate_file(models[0]))
