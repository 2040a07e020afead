"""Every GPU kernel compiled by ROCm's clang for every AMD architecture that is known: `make rocm-full`. Of the table of architectures those
are left out that this compiler does not know, which it is asked, and LLVM's generic targets, for which the backend makes no code. It takes
an hour or more; what was compiled is remembered in --folder by the kernel's text and the compiler, so that a run that was ended goes on.

    python tools/kernel_full.py --rocm ROOT --program pyflame_backends_test --pyflame pyflame --folder build/rocm-full [--archs gfx908,gfx1200] [--some]
"""
import argparse
import hashlib
import json
import pathlib
import sys
import tempfile
import time

import kernel_code

CHUNK = 64  # texts between two notes of what is done


def keys(rocm, gfx, files):
    """text's name -> what its code depends on."""
    same = " ".join(rocm.command(gfx)) + rocm.version()
    return {f.stem: hashlib.sha256((same + f.read_text()).encode()).hexdigest()[:20] for f in files}


def remembered(note, wanted):
    """What the note of an architecture says of the texts as they are now."""
    old = json.loads(note.read_text()) if note.is_file() else {}
    return {name: entry for name, entry in old.items() if wanted.get(name, entry["key"]) == entry["key"]}


def compile_arch(rocm, pyflame, gfx, files, note, say):
    """figures (None: no kernel in it, on this architecture) of every text, and the failures."""
    wanted = keys(rocm, gfx, files)
    done, failures = remembered(note, wanted), []
    rest = [f for f in files if f.stem not in done]
    for at in range(0, len(rest), CHUNK):
        part = rest[at:at + CHUNK]
        with tempfile.TemporaryDirectory() as folder:
            failed = kernel_code.compile_all(rocm, {gfx: part}, folder)
            figures = kernel_code.read(pyflame, folder)
            compiled = {path.stem for path in pathlib.Path(folder, gfx).glob("*.co")}
        failures += failed
        done.update({name: {"key": wanted[name], "figures": figures.get(name, {}).get(gfx)} for name in compiled})
        note.write_text(json.dumps(done))
        say(min(at + CHUNK, len(rest)), len(rest))
    return {name: done[name]["figures"] for name in wanted if name in done}, failures


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rocm", required=True, help="folder of ROCm")
    parser.add_argument("--program", required=True, help="the C++ test program pyflame_backends_test")
    parser.add_argument("--pyflame", required=True, help="the pyflame program")
    parser.add_argument("--folder", required=True, help="what is done is remembered here")
    parser.add_argument("--archs", default="", help="only these, with commas between them")
    parser.add_argument("--some", action="store_true", help="one dtype of each kernel")
    a = parser.parse_args(arguments)
    rocm, notes = kernel_code.Rocm(a.rocm), pathlib.Path(a.folder)
    notes.mkdir(parents=True, exist_ok=True)
    table = kernel_code.architectures(a.pyflame)
    known = [gfx for gfx in table if not a.archs or gfx in a.archs.split(",")]
    generic, known = [g for g in known if g.endswith("-generic")], [g for g in known if not g.endswith("-generic")]
    unknown = [gfx for gfx in known if not rocm.knows(gfx)]
    known = [gfx for gfx in known if gfx not in unknown]
    if generic:
        print("rocm-full: left out: generic targets, for which the backend makes no code:", " ".join(generic))
    if unknown:
        print(f"rocm-full: left out: {rocm.version()} does not know:", " ".join(unknown))
    problems, rows, start = [], [], "\r" if sys.stdout.isatty() else ""
    with tempfile.TemporaryDirectory() as folder:
        files = kernel_code.sources(a.program, folder)
        files = kernel_code.with_budget(files)[kernel_code.PART[0]] if a.some else files
        print(f"rocm-full: {len(files)} texts, {len(known)} architectures", flush=True)
        for i, gfx in enumerate(known):
            begun = time.monotonic()
            figures, failures = compile_arch(rocm, a.pyflame, gfx, files, notes / f"{gfx}.json",
                                             lambda done, of: print(f"{start}{gfx} {done} of {of} ", end="", flush=True) if start else None)
            kernels = {name: {gfx: f} for name, f in figures.items() if f}
            found = failures + kernel_code.never(kernels) + kernel_code.broken_rules(kernels, table)
            spills = [name for name, k in kernels.items() if k[gfx]["vgpr_spill"] or k[gfx]["sgpr_spill"]]
            scratch = [name for name, k in kernels.items() if k[gfx]["scratch"]]
            debts = [name for name in {*spills, *scratch} if kernel_code.known(name, gfx)]
            rows.append((gfx, *map(len, (kernels, failures, spills, scratch, debts, found))))
            print(f"{start}{gfx} ({i + 1} of {len(known)}): {len(kernels)} kernels, {len(found)} problems, {time.monotonic() - begun:.0f} s", flush=True)
            for problem in found:
                print("  ", problem, flush=True)
            problems += found
    print("\n" + "".join(f"{head:>14}" for head in ("architecture", "kernels", "refused", "with spills", "with scratch", "of them known", "problems")))
    for row in rows:
        print("".join(f"{n:>14}" for n in row))
    print(f"rocm-full: {sum(r[1] for r in rows)} code objects, {len(problems)} problems")
    return 1 if problems or not rows else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
