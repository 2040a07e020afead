"""What `pip install .` puts on a disk, without and with the libraries of the distribution that it brings; kept in benchmarks/results/<machine>/installed_size.json.

    python benchmarks/installed_size.py PYTHON WHEEL     # the interpreter of an environment that has nothing but this wheel and what pip brought with it
"""
import json
import pathlib
import re
import subprocess
import sys

import machine

LIST = "import importlib.metadata as m; print(*(f.locate() for f in m.files('pyflame')), sep='\\n')"


def main(python, wheel):
    files = [pathlib.Path(line) for line in subprocess.run([python, "-c", LIST], check=True, capture_output=True, text=True).stdout.split("\n") if line]
    sizes = {f: f.stat().st_size for f in files if f.is_file() and f.suffix != ".pyc"}
    vendored = {f: size for f, size in sizes.items() if "libs" in f.parts}  # what a wheel brings (cmake/vendor.cmake)
    sizes = {f: size for f, size in sizes.items() if f not in vendored}
    module = next(f for f in sizes if f.name.startswith("_C.") and f.suffix == ".so")
    program = next(f for f in sizes if f.name == "pyflame" and f.parts[-3:-1] == ("pyflame", "bin"))
    linked = {}
    for name, path in re.findall(r"(\S+) => (/\S+)", subprocess.run(["ldd", module], check=True, capture_output=True, text=True).stdout):
        if re.match(r"lib(dnnl|openblas|hwy|fmt)\b", name):
            linked[name] = pathlib.Path(path).resolve().stat().st_size
    result = {"machine": {"cpu": machine.cpu(), "cores": machine.cores()}, "files": len(sizes), "bytes": sum(sizes.values()),
              "module": sizes[module], "program": sizes[program], "linked_libraries": linked,
              "wheel": pathlib.Path(wheel).stat().st_size, "vendored": {"files": len(vendored), "bytes": sum(vendored.values())}}
    page = pathlib.Path(__file__).resolve().parent / "results" / machine.slug() / "installed_size.json"
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    main(*sys.argv[1:])
