"""`pyflame occupancy`, and its agreement with LLVM.

llvm_occupancy.txt holds what LLVM prints as "; Occupancy: N" for kernels that use given registers, LDS and block sizes. The C++
tests compare our figures with that file; here LLVM measures it again where PYFLAME_TEST_ROCM_ROOT names a ROCm (its env.sh is
sourced), and a few answers of the program are compared with LLVM directly. To record the file anew:
  PYFLAME_TEST_ROCM_ROOT=... python tests/inspect/test_occupancy.py > tests/inspect/llvm_occupancy.txt
"""
import json
import os
import random
import re
import subprocess
import sys

import pytest

RECORDED = os.path.join(os.path.dirname(os.path.abspath(__file__)), "llvm_occupancy.txt")
ROCM_ROOT = os.environ.get("PYFLAME_TEST_ROCM_ROOT")

# Each with the wave sizes and modes that it has; one of every kind of register file, LDS and wave limit is swept over all of them.
GFX9 = ["gfx900", "gfx902", "gfx904", "gfx906", "gfx908", "gfx909", "gfx90a", "gfx90c", "gfx942", "gfx950", "gfx9-generic", "gfx9-4-generic"]
RDNA = ["gfx1010", "gfx1011", "gfx1012", "gfx1013", "gfx1030", "gfx1031", "gfx1032", "gfx1033", "gfx1034", "gfx1035", "gfx1036",
        "gfx1100", "gfx1101", "gfx1102", "gfx1103", "gfx1150", "gfx1151", "gfx1152", "gfx1153", "gfx1200", "gfx1201",
        "gfx10-1-generic", "gfx10-3-generic", "gfx11-generic", "gfx12-generic"]
GFX125 = ["gfx1250", "gfx1251"]
SWEPT = ["gfx906", "gfx908", "gfx90a", "gfx942", "gfx950", "gfx1010", "gfx1030", "gfx1100", "gfx1102", "gfx1151", "gfx1201", "gfx1250"]
BLOCKS = [32, 64, 96, 128, 160, 192, 256, 320, 384, 512, 640, 768, 1024]


def compiler():
    env = subprocess.run(["bash", "-c", '. "$0" >/dev/null && printf %s "$ROCM_CXX"', os.path.join(ROCM_ROOT, "env.sh")],
                         capture_output=True, text=True, check=True)
    return env.stdout


def variants(arch):
    if arch in GFX9 or arch in GFX125:
        return [(arch, 64 if arch in GFX9 else 32, "CU")]
    return [(arch, wave, mode) for wave in (32, 64) for mode in (("WGP", "CU") if arch in SWEPT else ("WGP",))]


class Kernel:
    """What a kernel uses; LLVM says what that came to."""

    def __init__(self, block, vgpr=0, agpr=0, sgpr=0, lds=0):
        self.block, self.vgpr, self.agpr, self.sgpr, self.lds = block, vgpr, agpr, sgpr, lds

    def source(self, name):
        body = "".join(f'__asm__ volatile("" ::: "{kind}{n - 1}");' for kind, n in (("v", self.vgpr), ("a", self.agpr), ("s", self.sgpr)) if n)
        if self.lds:
            body = f'local char x[{self.lds}]; {body} __asm__ volatile("" :: "v"(x));'
        return f"__attribute__((amdgpu_flat_work_group_size({self.block}, {self.block}))) kernel void {name}(void) {{ {body} }}\n"


def measure(cxx, variant, kernels):
    """For each kernel: (block, VGPRs, AGPRs, SGPRs, LDS, occupancy) as LLVM counts them."""
    arch, wave, mode = variant
    flags = ["-mwavefrontsize64" if wave == 64 else "-mno-wavefrontsize64"] if arch in RDNA else []
    flags += ["-mcumode" if mode == "CU" else "-mno-cumode"] if arch in RDNA else []
    r = subprocess.run([cxx, "-target", "amdgcn-amd-amdhsa", "-mcpu=" + arch, "-x", "cl", "-cl-std=CL2.0", "-nogpulib", "-O1", "-S", "-o", "-", "-", *flags],
                       input="".join(k.source(f"k{i}") for i, k in enumerate(kernels)), capture_output=True, text=True)
    assert r.returncode == 0, r.stderr[:2000]
    found, current = {}, None
    for line in r.stdout.splitlines():
        if m := re.match(r"\s*\.globl\s+(\w+)", line):
            current = found.setdefault(m.group(1), {})
        elif m := re.match(r"; (Occupancy|NumVgprs|TotalNumSgprs|TotalNumVgprs|NumAgprs|LDSByteSize): (\d+)", line):
            current[m.group(1)] = int(m.group(2))
    rows = []
    for i, k in enumerate(kernels):
        f = found[f"k{i}"]
        vgpr = f["NumVgprs"] if arch == "gfx908" else f.get("TotalNumVgprs", f["NumVgprs"])
        rows.append((k.block, vgpr, f.get("NumAgprs", 0), f["TotalNumSgprs"], f["LDSByteSize"], f["Occupancy"]))
    return rows


def cases(variant):
    arch, wave, mode = variant
    most_lds = {"gfx950": 160, "gfx1250": 320, "gfx1251": 320}.get(arch, 64) * 1024
    most_vgprs = 256  # the compiler knows no name for the registers above, which gfx1250 has
    kernels = [Kernel(wave, vgpr=n) for n in range(1, most_vgprs + 1, 1 if arch in SWEPT else 3)]
    if arch in SWEPT:
        kernels += [Kernel(block) for block in BLOCKS]
        kernels += [Kernel(block, lds=most_lds * i // 64 + extra) for block in (64, 256, 1024) for i in range(64) for extra in (128, 1024)]
        rng = random.Random(arch + mode + str(wave))
        for _ in range(40):
            block = rng.choice(BLOCKS)
            most = min(most_vgprs, 128 if block > 512 else 256)  # more, and LLVM takes the attribute for a mistake
            kernels.append(Kernel(block, vgpr=rng.randint(1, most), sgpr=rng.randint(30, 100), lds=rng.choice([0, rng.randint(1, most_lds)])))
        if arch in GFX9:
            kernels += [Kernel(64, sgpr=n) for n in range(60, 101)]
        if arch in ("gfx908", "gfx90a", "gfx942", "gfx950"):
            kernels += [Kernel(64, vgpr=rng.randint(1, 256), agpr=rng.randint(1, 256)) for _ in range(40)]
    return kernels


def lines(variant, rows):
    """The rows as text: of neighbours that differ in one number only, the first and the last with the same occupancy."""
    kept, previous = [], None
    for i, row in enumerate(rows):
        after = rows[i + 1] if i + 1 < len(rows) else None
        if previous is None or after is None or previous[-1] != row[-1] or after[-1] != row[-1] or previous[0] != row[0] or after[0] != row[0]:
            kept.append(row)
        previous = row
    return ["{} {} {} ".format(*variant) + " ".join(str(n) for n in row) for row in sorted(set(kept))]


def recorded():
    with open(RECORDED, encoding="utf-8") as f:
        return [line for line in f.read().splitlines() if line and not line.startswith("#")]


@pytest.mark.skipif(not ROCM_ROOT, reason="PYFLAME_TEST_ROCM_ROOT does not name a ROCm with a compiler")
@pytest.mark.parametrize("arch", SWEPT)
def test_the_recorded_figures_are_llvms(arch):
    cxx = compiler()
    for variant in variants(arch):
        prefix = "{} {} {} ".format(*variant)
        assert lines(variant, measure(cxx, variant, cases(variant))) == [line for line in recorded() if line.startswith(prefix)]


def test_the_program_says_what_llvm_prints(run):
    rng = random.Random(1)
    for line in rng.sample(recorded(), 60):
        arch, wave, mode, block, vgpr, agpr, sgpr, lds, waves = line.split()
        mode_flag = [] if arch in GFX9 + GFX125 else ["--wgp_mode" if mode == "WGP" else "--cu_mode"]
        doc = json.loads(run("occupancy", "--arch", arch, "--wave", wave, "--block", block, "--vgpr", vgpr, "--agpr", agpr, "--sgpr", sgpr,
                             "--lds", lds, *mode_flag, "--json").stdout)
        assert doc["occupancy"]["compiler_waves"] == int(waves), line


def test_answer_limiter_and_next_step(run):
    out = run("occupancy", "--arch", "gfx942", "--vgpr", 170, "--lds", 65536, "--block", 256).stdout
    assert "1 of 8 waves per SIMD, limited by LDS" in out
    assert "save 32768 bytes of LDS (65536 -> 32768)" in out
    assert re.search(r"VGPRs +170 +176 +2\b", out)
    assert "wrong for 65-72, 161-168 VGPRs" in out
    doc = json.loads(run("occupancy", "--arch", "gfx942", "--vgpr", 170, "--json").stdout)
    assert doc["schema"] == "pyflame.occupancy/1"
    assert doc["occupancy"]["next"] == {"waves": 3, "workgroups": 3, "save": "2 VGPRs (170 -> 168)",
                                        "changes": [{"resource": "VGPRs", "from": 170, "to": 168}],
                                        "hint": "__launch_bounds__(256, 3) in HIP, waves_per_eu=3 in Triton"}
    assert [b["block"] for b in doc["occupancy"]["blocks"]] == [64, 128, 256, 512, 1024]


def test_where_the_guide_is_wrong(run):
    out = run("occupancy", "--arch", "gfx942", "--vgpr", 168).stdout
    assert "which is wrong: it rounds 168 VGPRs up to 176" in out.replace("\n", " ")
    assert "the formula" not in run("occupancy", "--arch", "gfx1100", "--vgpr", 168).stdout.lower()


def test_launch(run):
    doc = json.loads(run("occupancy", "--arch", "gfx942", "--vgpr", 128, "--grid", "16,20", "--json").stdout)
    launch = doc["launch"]
    assert launch["machine"] == {"name": "AMD Instinct MI300X", "cus": 304, "xccs": 8}
    assert (launch["workgroups"], launch["at_once"], launch["rounds"]) == (320, 304 * 4, 1)
    assert [a["severity"] for a in launch["advice"]] == ["MED", "MED"]
    assert "1024" in launch["advice"][0]["why"]
    out = run("occupancy", "--arch", "gfx942", "--vgpr", 128, "--grid", 100, "--cus", 304, "--block", 100).stdout
    assert "204 of 304 CUs have no workgroup" in out
    assert "28 of 128 lanes of each workgroup are idle" in out


def test_list_names_every_architecture(run):
    out = run("occupancy", "--list").stdout
    for gfx in ("gfx906", "gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1151", "gfx1201", "gfx1250"):
        assert re.search(rf"^{gfx} ", out, re.M), gfx
    assert len(json.loads(run("occupancy", "--list", "--json").stdout)["architectures"]) == len(GFX9 + RDNA + GFX125) + 2  # gfx940, gfx941


@pytest.mark.parametrize("args, message", [
    ([], "no architecture is given; expected --arch"),
    (["--arch", "gfx123"], "the architecture is not known; got gfx123"),
    (["--arch", "gfx\x1b[31m"], "the architecture is not known"),
    (["--arch", "sm_90"], "not an architecture of AMD"),
    (["--arch", "gfx942", "--block", 1025], "got 1025; expected 1 to 1024"),
    (["--arch", "gfx942", "--block", 0], "got 0; expected 1 to 1024"),
    (["--arch", "gfx942", "--vgpr", 513], "got 513; expected 0 to 512"),
    (["--arch", "gfx1100", "--vgpr", 257], "got 257; expected 0 to 256"),
    (["--arch", "gfx1100", "--agpr", 1], "got 1; expected 0 to 0"),
    (["--arch", "gfx942", "--vgpr", 16, "--agpr", 17], "no more AGPRs than VGPRs"),
    (["--arch", "gfx942", "--lds", 65537], "got 65537 bytes; expected 0 to 65536"),
    (["--arch", "gfx942", "--lds", 65536, "--dynamic_lds", 1], "and 1 of dynamic LDS"),
    (["--arch", "gfx942", "--wave", 32], "gfx942 has no waves of that size; got 32; expected 64"),
    (["--arch", "gfx942", "--cu_mode"], "gfx942 has no WGPs"),
    (["--arch", "gfx942", "--grid", "8,"], "--grid is not understood; got 8,"),
    (["--arch", "gfx942", "--grid", "8,8,8,8"], "--grid is not understood"),
    (["--arch", "gfx942", "--grid", "0"], "a grid cannot have that size"),
    (["--arch", "gfx942", "--grid", "2147483647,2147483647"], "too many workgroups"),
    (["--arch", "gfx1153", "--grid", "8"], "hint: say how many CUs"),
    (["--arch", "gfx942", "--vgpr", 256, "--block", 1024, "--grid", "8"], "the kernel cannot be launched"),
])
def test_what_cannot_be_is_refused(run, args, message):
    r = run("occupancy", *args, code=1)
    assert message in r.stderr and r.stdout == ""
    assert "\x1b" not in r.stderr


if __name__ == "__main__":
    cxx = compiler()
    print("# What LLVM prints as Occupancy. Written by test_occupancy.py.\n# target wave mode block VGPRs AGPRs SGPRs LDS occupancy")
    for name in GFX9 + RDNA + GFX125:
        for v in variants(name):
            print("\n".join(lines(v, measure(cxx, v, cases(v)))))
            sys.stdout.flush()
