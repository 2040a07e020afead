"""The GPU backend's kernels as AMD code, without an AMD GPU: the C++ test program writes their sources, the clang of a real ROCm compiles
them, `pyflame inspect` reads the code objects. Used by the budget gate (tests/kernels), by `make kernel-budgets`, which is this file run as
a program, and by the generator of docs/amd-model.md.

    python tools/kernel_code.py --rocm ROOT --program pyflame_backends_test --pyflame pyflame    rewrites tests/kernels/budgets.json
"""
import argparse
import concurrent.futures
import fnmatch
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import zlib

ROOT = pathlib.Path(__file__).resolve().parents[1]
BUDGETS = ROOT / "tests" / "kernels" / "budgets.json"
TEXTS = BUDGETS.parent / "texts.json"  # kernel -> digest of the text whose code was last measured for its budget
RULES = json.loads((BUDGETS.parent / "rules.json").read_text())
# The architectures with a budget: for all kernels, and for one dtype of each. tools/kernel_full.py compiles everything for all that are known.
WHOLE, PART = ("gfx942", "gfx1100"), ("gfx90a", "gfx950", "gfx1030", "gfx1201")
ARCHS = ("gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1201")
PARTS = 9  # days in which everything with a budget is compiled; prime to the numbers of architectures that take turns
FLAGS = ("-std=c++17", "-O3", "-ffp-contract=off", "-Wall", "-Werror", "-Wno-pragma-once-outside-header")
NEVER = (("vgpr_spill", "spilled VGPRs"), ("sgpr_spill", "spilled SGPRs"), ("scratch", "bytes of scratch"))
# Figures that may not grow, and figures that may not shrink. Accesses are in bytes of one lane.
AT_MOST = ("vgpr", "agpr", "lds")
AT_LEAST = ("waves_per_simd", "load", "store", "matrix")


class Rocm:
    """A ROCm installation: the folder with env.sh of tools that set one up, or one as AMD's packages make it (/opt/rocm)."""

    def __init__(self, root):
        self.root = pathlib.Path(root)
        self.flags = ()  # of the compiler, beside FLAGS
        self.cxx, self.path, self.runner = str(self.root / "lib/llvm/bin/clang++"), str(self.root), []
        self.libraries = str(self.root / "lib")
        if (self.root / "env.sh").is_file():
            names = ("ROCM_CXX", "ROCM_PATH", "ROCM_LDSO", "ROCM_RTPATH")
            script = f". '{self.root}/env.sh' && printf '%s\\n' " + " ".join(f'"${{{n}:-}}"' for n in names)
            text = subprocess.run(["bash", "-c", script], check=True, capture_output=True, text=True).stdout
            self.cxx, self.path, loader, self.libraries = text.split("\n")[:4]
            if loader:  # its libraries want a newer C library than the machine's
                self.runner = [loader, "--library-path", self.libraries]
        if not shutil.which(self.cxx):
            raise SystemExit(f"{root}: no compiler for AMD's GPUs; expected {self.cxx}; hint: install ROCm's llvm, or name another folder (ROCM_ROOT): "
                             "`make rocm ROCM_ROOT=$PWD/build/rocm` puts a ROCm there")

    def environment(self, environment):
        """The environment with which a program finds the libraries. self.runner starts the program."""
        if self.runner:
            return environment
        return dict(environment, LD_LIBRARY_PATH=f"{self.libraries}:{environment.get('LD_LIBRARY_PATH', '')}")

    def version(self):
        return subprocess.run([self.cxx, "--version"], check=True, capture_output=True, text=True).stdout.split("\n")[0]

    def command(self, gfx):
        return [self.cxx, "-x", "hip", f"--rocm-path={self.path}", "-isystem", f"{self.path}/include", f"--offload-arch={gfx}",
                "--cuda-device-only", "--no-gpu-bundle-output", *FLAGS, *self.flags]

    def knows(self, gfx):
        """Whether it makes code for the architecture."""
        command = [self.cxx, "-x", "hip", f"--offload-arch={gfx}", "--cuda-device-only", "-nogpuinc", "-nogpulib", "-fsyntax-only", "-"]
        r = subprocess.run(command, input="", capture_output=True, text=True)
        if r.returncode != 0 and "unsupported HIP gpu architecture" not in r.stderr:
            raise RuntimeError(f"{gfx}: {r.stderr}")
        return r.returncode == 0

    def header(self, gfx, folder):
        """HIP's own header, read once for an architecture: it is most of the work of a small kernel."""
        folder = pathlib.Path(folder)
        source = folder / "hip.hip"
        source.write_text('#include "hip/hip_runtime.h"\n')
        r = subprocess.run([*self.command(gfx), "-fsyntax-only", "-Xclang", "-emit-pch", source], capture_output=True)
        if r.returncode != 0:
            raise RuntimeError(f"{gfx}: HIP's header does not compile:\n{r.stderr.decode(errors='replace')}")
        header = folder / f"{gfx}.pch"
        header.write_bytes(r.stdout)
        return header

    def compile(self, gfx, header, source, target):
        """None, or what the compiler said."""
        r = subprocess.run([*self.command(gfx), "-Xclang", "-include-pch", "-Xclang", header, "-c", source, "-o", target], capture_output=True,
                           text=True)
        return None if r.returncode == 0 else f"{gfx} {pathlib.Path(source).stem}:\n{r.stderr[:4000]}"


def sources(program, folder):
    """The text of every kernel, one file each, written by the C++ test program."""
    environment = dict(os.environ, PYFLAME_DUMP_KERNELS=str(folder))
    subprocess.run([program, "--gtest_filter=*SourcesForOtherCompilers*"], env=environment, check=True, capture_output=True)
    return sorted(pathlib.Path(folder).glob("*.hip"))


def todays(archs):
    """Of architectures that are checked in turn the day's (PYFLAME_TEST_ROTATION); without a day all of them."""
    rotation = os.environ.get("PYFLAME_TEST_ROTATION")
    return [archs[int(rotation) % len(archs)]] if rotation else list(archs)


def one_dtype(files):
    """The sources of one dtype of each kernel."""
    return [f for f in files if re.search(r"_bfloat16(_\d+)?$", f.stem) or not re.search(r"_(float\d+|u?int\d+|bool)(_\d+)?$", f.stem)]


def with_budget(files):
    """architecture -> the sources that have a budget there."""
    return {gfx: files if gfx in WHOLE else one_dtype(files) for gfx in ARCHS}


def part_of_day(files):
    """The day's ninth of sources that are checked in turn (PYFLAME_TEST_ROTATION); without a day all of them."""
    rotation = os.environ.get("PYFLAME_TEST_ROTATION")
    return [f for f in files if (zlib.crc32(f.stem.encode()) + int(rotation)) % PARTS == 0] if rotation else list(files)


def digest(file):
    return hashlib.sha256(file.read_bytes()).hexdigest()[:16]


def changed(files, texts):
    """The sources that are not what `texts` (TEXTS) has: their code may differ from what the budgets were measured from."""
    return [f for f in files if texts.get(f.stem) != digest(f)]


def plan_of_day(files, texts):
    """architecture -> the sources that are compiled for it today. For the architectures of WHOLE: one dtype of each kernel that changed, and a part of everything;
    for one of the other architectures a part of what has a budget there. The same text gives the same code, so the parts look for mistakes in `texts`."""
    some = one_dtype(files)
    new = set(changed(some, texts))
    part = set(part_of_day(files))
    return {**{gfx: [f for f in files if f in new or f in part] for gfx in WHOLE}, **{gfx: [f for f in some if f in part] for gfx in todays(PART)}}


def compile_all(rocm, plan, folder, jobs=None):
    """folder/GFX/KERNEL.co for the sources that `plan` has for each architecture; the list of failures."""
    folder, archs = pathlib.Path(folder), list(plan)
    with concurrent.futures.ThreadPoolExecutor(jobs or os.cpu_count()) as pool:
        for gfx in archs:
            (folder / gfx).mkdir(parents=True, exist_ok=True)
        headers = dict(zip(archs, pool.map(lambda gfx: rocm.header(gfx, tempfile.mkdtemp(dir=folder)), archs)))
        work = [(gfx, headers[gfx], f, folder / gfx / (f.stem + ".co")) for gfx in archs for f in plan[gfx]]
        failures = [f for f in pool.map(lambda w: rocm.compile(*w), work) if f]
    for header in headers.values():
        header.unlink()
    return failures


def read(pyflame, folder):
    """kernel -> architecture -> figures, of the code objects in folder/GFX."""
    r = subprocess.run([pyflame, "inspect", str(folder), "--json"], capture_output=True, text=True)
    if r.returncode != 0:
        raise RuntimeError(f"pyflame inspect {folder}: {r.stderr}")
    document = json.loads(r.stdout)
    out = {}
    for k in document["kernels"]:
        path = pathlib.Path(document["objects"][k["object"]]["path"])
        if "isa" not in k:
            raise RuntimeError(f"{path}: the machine code was not read: {document.get('missing')} {document.get('problems')}")
        out.setdefault(path.stem, {})[path.parent.name] = {
            "vgpr": k["vgpr"], "agpr": k["agpr"], "lds": k["lds"], "waves_per_simd": k["occupancy"]["waves_per_simd"],
            "load": k["isa"]["widest_load"], "store": k["isa"]["widest_store"], "matrix": int(k["isa"]["mix"]["matrix"] > 0),
            "vgpr_spill": k["vgpr_spill"], "sgpr_spill": k["sgpr_spill"], "scratch": k["scratch"],
        }
    return {name: out[name] for name in sorted(out)}


def architectures(pyflame):
    """gfx -> what PyFlame knows of it."""
    text = subprocess.run([pyflame, "occupancy", "--list", "--json"], check=True, capture_output=True, text=True).stdout
    return {a["gfx"]: a for a in json.loads(text)["architectures"]}


def known(name, gfx):
    """Whether rules.json names the kernel's spills on this architecture as a debt (or a kernel that is not used there)."""
    return any(fnmatch.fnmatchcase(name, pattern) and any(fnmatch.fnmatchcase(gfx, a) for a in archs)
               for pattern, archs in RULES["known"].items())


def never(figures):
    """What no kernel may have on any architecture, but for the debts that rules.json names."""
    return [f"{name} on {gfx}: {f[what]} {text}" for name, archs in figures.items() for gfx, f in archs.items()
            for what, text in NEVER if f[what] and not known(name, gfx)]


def matching(names, patterns):
    return [n for n in names if any(fnmatch.fnmatchcase(n, p) for p in patterns)]


def broken_rules(figures, archs):
    """Streaming kernels that do not move 16 bytes at once, and products that leave the matrix units idle; archs as architectures() has them."""
    out = [f"{n} on {gfx}: loads {f['load']}, stores {f['store']} bytes at once" for n in matching(figures, RULES["streaming"])
           for gfx, f in figures[n].items() if f["load"] < 16 or f["store"] < 16]
    return out + [f"{n} on {gfx}: no matrix instruction" for n in matching(figures, RULES["matrix"]) for gfx, f in figures[n].items()
                  if archs[gfx]["matrix"] != "none" and not f["matrix"]]


def worse(figures, budgets):
    """Where kernels are worse than their budget, or have none."""
    out = []
    for name, archs in figures.items():
        for gfx, now in archs.items():
            allowed = budgets["kernels"].get(name, {}).get(gfx)
            if allowed is None:
                out.append(f"{name} on {gfx} has no budget")
                continue
            out += [f"{name} on {gfx}: {what} {now[what]}, at most {allowed[what]}" for what in AT_MOST if now[what] > allowed[what]]
            out += [f"{name} on {gfx}: {what} {now[what]}, at least {allowed[what]}" for what in AT_LEAST if now[what] < allowed[what]]
    return out


def format_texts(texts):
    return "{\n" + ",\n".join(f"  {json.dumps(name)}: {json.dumps(value)}" for name, value in sorted(texts.items())) + "\n}\n"


def format_budgets(budgets):
    """One line for a kernel on an architecture, so that a change is read as one."""
    lines = ["{", f'  "compiler": {json.dumps(budgets["compiler"])},', '  "kernels": {']
    kernels = []
    for name, archs in sorted(budgets["kernels"].items()):
        rows = [f'      {json.dumps(gfx)}: {json.dumps(archs[gfx])}' for gfx in ARCHS if gfx in archs]
        kernels.append(f"    {json.dumps(name)}: {{\n" + ",\n".join(rows) + "\n    }")
    return "\n".join(lines) + "\n" + ",\n".join(kernels) + "\n  }\n}\n"


def main(arguments):
    parser = argparse.ArgumentParser(description="Rewrites tests/kernels/budgets.json: what each kernel has now is what it may have. texts.json beside it names the texts.")
    parser.add_argument("--rocm", required=True, help="folder of ROCm")
    parser.add_argument("--program", required=True, help="the C++ test program pyflame_backends_test")
    parser.add_argument("--pyflame", required=True, help="the pyflame program")
    parser.add_argument("--only", nargs="+", default=["*"], help="names of kernels, as patterns; the others keep their budget")
    a = parser.parse_args(arguments)
    rocm = Rocm(a.rocm)
    with tempfile.TemporaryDirectory() as folder:
        texts = pathlib.Path(folder) / "sources"
        texts.mkdir()
        everything = sources(a.program, texts)
        found = [f for f in everything if matching([f.stem], a.only)]
        if not found:
            parser.error(f"no kernel has a name like {' '.join(a.only)}")
        failures = compile_all(rocm, with_budget(found), pathlib.Path(folder) / "code")
        figures = read(a.pyflame, pathlib.Path(folder) / "code")
        measured = {f.stem: digest(f) for f in found}
    for problem in failures + never(figures):
        print("kernel-budgets:", problem, file=sys.stderr)
    old = json.loads(BUDGETS.read_text()) if BUDGETS.is_file() else {"kernels": {}}
    new = {"compiler": rocm.version(), "kernels": {name: {gfx: {what: f[what] for what in AT_MOST + AT_LEAST} for gfx, f in archs.items()}
                                                   for name, archs in figures.items()}}
    untouched = {f.stem for f in everything} - {f.stem for f in found}
    new["kernels"] |= {name: archs for name, archs in old["kernels"].items() if name in untouched}
    BUDGETS.write_text(format_budgets(new))
    TEXTS.write_text(format_texts({name: value for name, value in json.loads(TEXTS.read_text()).items() if name in untouched} | measured))
    for problem in worse({name: archs for name, archs in new["kernels"].items() if name in old["kernels"]}, old):
        print("kernel-budgets: raised:", problem)
    for name in sorted(set(old["kernels"]) - set(new["kernels"])):
        print(f"kernel-budgets: gone: {name}")
    print(f"kernel-budgets: {len(new['kernels'])} kernels on {len(ARCHS)} architectures in {BUDGETS.relative_to(ROOT)}")
    return 1 if failures or never(figures) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
