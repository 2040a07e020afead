"""The kernels of fused loops as AMD code, without an AMD GPU. PyFlame generates them when it runs; here the op cases make them
(tools/loop_texts.py), the clang of a real ROCm compiles them, and `pyflame inspect` reads what registers they take. No generated loop may
spill or use scratch memory on an architecture with waves of 64 and on one with waves of 32.

    python tools/loop_code.py --rocm ROOT --pyflame PROGRAM --emulator build/release/emulator --python .venv/bin/python    all of them

The test in tests/kernels takes the largest and a part that changes with the day.
"""
import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import zlib

import kernel_code

ROOT = pathlib.Path(__file__).resolve().parents[1]
ARCHS = ("gfx942", "gfx1100")
# Scalar registers that these loops spill, into lanes of a vector register. No other loop may.
KNOWN_SPILLS = {("loop_igammac", "gfx1100"): 14, ("loop_add_mul_mul_mul_mul_mul_mul_mul_mul_mul_add_add_sum_where", "gfx942"): 1}
BATCH = 40  # kernels of one compilation: to read the headers takes longer than to compile a kernel
ENTRY = re.compile(r"^(PF_KERNEL\(\d+\) )pf_(loop_\w+)\(", re.M)
# Values that only one of several kernels with the same expressions uses are computed by all of them.
FLAGS = ("-Wno-unused-variable",)


def generate(python, emulator, folder, jobs, only="*", section=0, sections=1):
    """The texts of the loops of the op cases with such names, by the hash of the text; of each `sections` cases one."""
    environment = dict(os.environ, LD_LIBRARY_PATH=f"{emulator}:{os.environ.get('LD_LIBRARY_PATH', '')}", PYFLAME_EMULATOR_TEXTS=str(folder), PYFLAME_EMULATOR_ARCH=ARCHS[0],
                       PYFLAME_CACHE_DIR=str(folder / "cache"), PYFLAME_INTERPRET="0", PYFLAME_GPU_GRAPHS="0")
    command = [str(python), str(ROOT / "tools" / "loop_texts.py"), "--parts", str(jobs * sections), "--only", only]
    running = [subprocess.Popen([*command, "--part", str(section + sections * i)], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) for i in range(jobs)]
    said = [p.communicate()[0] for p in running]
    if any(p.returncode for p in running):
        raise RuntimeError("the op cases did not run in the emulator:\n" + "\n".join(s[-4000:] for s in said))
    texts = {f.stem: f.read_text() for f in sorted(folder.glob("*.hip"))}
    return {name: text for name, text in texts.items() if ENTRY.search(text)}


def entry(text):
    """Where the kernel begins, after the headers."""
    return next(ENTRY.finditer(text)).start()


def chosen(texts, largest, parts, rotation):
    """The largest ones, and of all others one part, which changes with the rotation."""
    by_size = sorted(texts, key=lambda name: (entry(texts[name]) - len(texts[name]), name))
    return {n: texts[n] for i, n in enumerate(by_size) if i < largest or (zlib.crc32(n.encode()) + rotation) % parts == 0}


def batches(texts, folder):
    """Files with several kernels each, which are called by their text's hash."""
    heads = {}
    for name, text in texts.items():
        at = entry(text)
        heads.setdefault(text[:at], []).append(ENTRY.sub(rf"\1pf_{name}(", text[at:], count=1))
    files = []
    for head, kernels in heads.items():
        for i in range(0, len(kernels), BATCH):
            files.append(folder / f"loops{len(files):04}.hip")
            files[-1].write_text(head + "\n".join(kernels[i:i + BATCH]))
    return files


def read(pyflame, folder):
    """(text's hash, architecture) -> registers, spills and scratch memory."""
    r = subprocess.run([pyflame, "inspect", str(folder), "--json"], capture_output=True, text=True)
    if r.returncode != 0:
        raise RuntimeError(f"pyflame inspect {folder}: {r.stderr}")
    document = json.loads(r.stdout)
    return {(k["name"].removeprefix("pf_"), pathlib.Path(document["objects"][k["object"]]["path"]).parent.name):
            {what: k[what] for what in ("sgpr", "vgpr", "sgpr_spill", "vgpr_spill", "scratch")} for k in document["kernels"]}


def check(rocm, pyflame, texts, folder):
    """(problems, figures) of these texts on all architectures."""
    folder = pathlib.Path(folder)
    (folder / "sources").mkdir()
    rocm.flags = (*FLAGS, "-Wno-pass-failed")  # a loop that calls a large function need not be unrolled
    failures = kernel_code.compile_all(rocm, {gfx: batches(texts, folder / "sources") for gfx in ARCHS}, folder / "code")
    figures = {} if failures else read(pyflame, folder / "code")
    loop = {name: ENTRY.search(text).group(2) for name, text in texts.items()}
    allowed = lambda name, gfx, what: KNOWN_SPILLS.get((loop[name], gfx), 0) if what == "sgpr_spill" else 0  # noqa: E731
    problems = failures + [f"{loop[name]} ({name}.hip) on {gfx}: {f[what]} {text}"
                           for (name, gfx), f in sorted(figures.items()) for what, text in kernel_code.NEVER if f[what] > allowed(name, gfx, what)]
    missing = [f"{name}.hip on {gfx}: no code" for name in texts for gfx in ARCHS if not failures and (name, gfx) not in figures]
    return problems + missing, figures


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rocm", required=True, help="folder of ROCm")
    parser.add_argument("--pyflame", required=True, help="the pyflame program")
    parser.add_argument("--emulator", required=True, type=os.path.abspath, help="folder of the wave emulator's libraries")
    parser.add_argument("--python", default=sys.executable, help="a Python that has the pyflame module")
    parser.add_argument("--largest", type=int, default=0, help="with --parts: so many of the largest, whatever the part")
    parser.add_argument("--parts", type=int, default=1, help="only one part of so many")
    parser.add_argument("--rotation", type=int, default=0, help="which part")
    parser.add_argument("--texts", type=pathlib.Path, help="keep the texts in this folder")
    parser.add_argument("--out", help="write what was read here, as JSON")
    a = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as own:
        folder = a.texts or pathlib.Path(own) / "texts"
        folder.mkdir(parents=True, exist_ok=True)
        texts = generate(a.python, a.emulator, folder, os.cpu_count())
        some = chosen(texts, a.largest, a.parts, a.rotation)
        problems, figures = check(kernel_code.Rocm(a.rocm), a.pyflame, some, own)
    for problem in problems:
        print("loop-code:", problem, file=sys.stderr)
    if a.out:
        pathlib.Path(a.out).write_text(json.dumps({f"{name} {gfx}": f for (name, gfx), f in figures.items()}, indent=0))
    for gfx in ARCHS:
        own = [f for (_, g), f in figures.items() if g == gfx]
        if own:
            print(f"loop-code: {gfx}: at most {max(f['sgpr'] for f in own)} scalar and {max(f['vgpr'] for f in own)} vector registers")
    print(f"loop-code: {len(some)} of {len(texts)} generated loops on {', '.join(ARCHS)}: {len(problems)} problems")
    return 1 if problems or not some else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
