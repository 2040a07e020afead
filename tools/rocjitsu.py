"""Device tests on AMD's functional emulator rocjitsu, where it is installed: the unmodified HIP runtime, hipRTC and libraries run on an
emulated GPU, which executes the real machine code. Many small processes with time-outs, because a hang there is one test's and not the
run's. It is functional evidence: it says nothing of speed, and little of memory ordering.

    python tools/rocjitsu.py --lib librocjitsu.so --configs share/rocjitsu/configs --rocm /opt/rocm --program pyflame_backends_test

A test that fails is a failure, unless a defect that this emulator is said to have (--defect NAME) explains it. Nothing is excused unasked,
because a test that passes on a fixed emulator would hide a failure of our own where it is excused by name.
"""
import argparse
import collections
import concurrent.futures
import fnmatch
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree

import kernel_code

SKIPPED = 77
LIBRARY = "librocjitsu.so"
# What the runtime must leave alone, because it is not emulated: virtual-memory heaps, copy engines, waits of a queue for another. And the
# emulator's own vectorised instructions, which are wrong where its plain ones are right.
SETTINGS = {"DEBUG_HIP_MEM_POOL_VMHEAP": "0", "HSA_ENABLE_SDMA": "0", "ROC_CPU_WAIT_FOR_SIGNAL": "1", "HSA_CO_DMACOPY_SIZE": "4000000000",
            "RJ_FORCE_SCALAR": "1"}
# Where libraries look for their kernels, below ROCm's folder: a tree of links has them elsewhere than beside the library.
KERNELS = {"ROCBLAS_TENSILE_LIBPATH": "lib/**/rocblas/**/library", "HIPBLASLT_TENSILE_LIBPATH": "lib/**/hipblaslt/library"}
Defect = collections.namedtuple("Defect", "why targets tests")
# Defects of the emulator that are known to make tests fail: the instruction, and patterns of those tests. docs/status.md has them all.
DEFECTS = {
    "packed-f32": Defect("v_pk_*_f32 takes the low half of a pair of SGPRs twice", ("gfx942",),
                         ("test_values[[]log1p-*", "test_values[[]softplus-*", "test_values[[]pow-*", "ConvOnGpu.BatchNormIsTheHosts")),
    "s-cls": Defect("s_cls_i32 is one too small, so int64 to float is wrong", ("gfx1100",), ("ConvOnGpu.PoolingIsTheHosts", "ConvOnGpu.BatchNormIsTheHosts")),
    "f16-v128": Defect("16-bit results in registers from 128 on go elsewhere", ("gfx1100",), ("AttentionOnGpu.HeadSizes",)),
    "trig-preop": Defect("v_trig_preop_f64 is not implemented, so sin and cos of large float64 numbers end the process", ("gfx942", "gfx1100"),
                         ("test_second_gradient[[]sin-*", "test_second_gradient[[]cos-*")),
}
EVIDENCE = ("Evidence: AMD's functional emulator. The real HIP runtime and machine code for this GPU gave these results; nothing ran on a GPU, "
            "nothing is said of speed or memory ordering.")

Result = collections.namedtuple("Result", "name outcome seconds text")


# Scalar registers that instructions can name, s0 to s105 on gfx10 and later. The emulator's configurations give a wave 104, so s104 of one wave
# would be s0 of the next.
SGPRS = 106


def adapt(config, cus):
    """The configuration with one shader engine of `cus` compute units, because the emulator's start and each launch take as long as it is wide,
    and with all scalar registers of a wave."""
    device = config["vm"]["gpu"]["device"]
    device.update(num_shader_engines=1, num_shader_arrays_per_engine=1, num_cu_per_sh=cus, simd_count=cus * device["simd_per_cu"], l2_size_kb=256)
    sizes = {"xcd": 1, "se": 1, "cu": cus}

    def resize(node):
        kind = node["name"].split("[")[0]
        if kind in sizes:
            node["name"] = f"{kind}[0:{sizes[kind]}]"
        for entry in node.get("config", []):
            if entry["key"] == "sgprs_per_wf":
                entry["value"] = str(max(int(entry["value"]), SGPRS))
        for child in node.get("children", []):
            resize(child)

    resize(config["topology"]["root"])
    ranges = [{"var_name": v, "start": 0, "end": n} for v, n in (("i", 1), ("j", 1), ("k", cus))]
    config["topology"]["links"] = [
        {"pattern": f"xcd[i].cp.req_[j*{cus}+k] -> xcd[i].se[j].cu[k].cpl", "for_ranges": ranges, "latency": 1, "weight": 2},
        {"pattern": f"xcd[i].se[j].cu[k].req -> xcd[i].l2.cpl_[j*{cus}+k]", "for_ranges": ranges, "latency": 1, "weight": 10}]
    return config


class Emulator:
    """How a program is started on an emulated GPU."""

    def __init__(self, library, configs, target, cus, rocm, folder):
        found = sorted(pathlib.Path(configs).glob(f"{target}*.json"), key=lambda p: ("kmd" not in p.name, p.name))
        if not found:
            raise FileNotFoundError(f"no configuration for {target} in {configs}")
        small = pathlib.Path(folder) / f"{target}.json"
        small.write_text(json.dumps(adapt(json.loads(found[0].read_text()), cus)))
        self.settings = dict(SETTINGS)
        for variable, pattern in KERNELS.items():
            self.settings.update({variable: str(p) for p in list(pathlib.Path(rocm.path).glob(pattern))[:1]})
        self.rocm, self.target, self.library, self.folder, self.config = rocm, target, library, pathlib.Path(folder), small

    def run(self, command, seconds, **extra):
        """(exit code or None for a time-out, output)."""
        with tempfile.TemporaryDirectory(dir=self.folder) as own:
            (pathlib.Path(own) / "config_path").write_text(str(self.config))
            environment = self.rocm.environment(dict(os.environ, **self.settings, ROCJITSU_RUNTIME_DIR=own, LD_PRELOAD=str(self.library), PYFLAME_CACHE_DIR=str(
                self.folder / f"cache-{self.target}"), HIPRTC_COMPILE_OPTIONS_APPEND=f"--offload-arch={self.target}", **extra))
            with tempfile.TemporaryFile() as out:  # a killed child's children may hold a pipe open
                process = subprocess.Popen([*self.rocm.runner, *map(str, command)], env=environment, stdout=out, stderr=subprocess.STDOUT, cwd=kernel_code.ROOT, start_new_session=True)
                try:
                    code = process.wait(seconds)
                except subprocess.TimeoutExpired:
                    os.killpg(process.pid, 9)
                    process.wait()
                    code = None
                out.seek(0)
                return code, out.read().decode(errors="replace")


def outcome_of(code, skipped):
    if code is None:
        return "time-out"
    if code < 0:
        return "crash"
    return "skip" if code == 0 and skipped else "pass" if code == 0 else "fail"


def device_tests(rocm, program, pattern):
    """The tests that are skipped where there is no device."""
    r = subprocess.run([*rocm.runner, program, f"--gtest_filter={pattern}"], env=rocm.environment(dict(os.environ)), capture_output=True, text=True)
    return sorted(set(re.findall(r"^\[  SKIPPED \] (\w[\w/]*\.[\w/]+)", r.stdout, re.M)))


def run_program(emulator, program, name, seconds):
    start = time.monotonic()
    code, text = emulator.run([program, f"--gtest_filter={name}"], seconds)
    return Result(name, outcome_of(code, "[  SKIPPED ]" in text), time.monotonic() - start, text)


def collect(python, choice):
    r = subprocess.run([python, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", "tests/ops/test_cases.py", "-k", choice],
                       cwd=kernel_code.ROOT, capture_output=True, text=True)
    return [line for line in r.stdout.split("\n") if "::" in line]


def run_cases(emulator, python, nodes, seconds):
    """Several cases in one process. Cases that a crash or time-out hides are run again, each in its own process."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory(dir=emulator.folder) as own:
        report = pathlib.Path(own) / "report.xml"
        command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=short", f"--junitxml={report}", *nodes]
        code, text = emulator.run(command, seconds if len(nodes) == 1 else seconds * 4, PYFLAME_TEST_DEVICE="rocm")
        took = time.monotonic() - start
        if report.is_file() and code is not None:
            out = []
            for case in xml.etree.ElementTree.parse(report).iter("testcase"):
                children = {child.tag: child for child in case}
                what = "fail" if children.keys() & {"failure", "error"} else "skip" if "skipped" in children else "pass"
                words = next((c.text or c.get("message", "") for tag, c in children.items() if tag in ("failure", "error")), "")
                out.append(Result(case.get("name"), what, float(case.get("time", 0)), words))
            if code >= 0:
                return out
    if len(nodes) == 1:
        return [Result(nodes[0].split("::")[-1], outcome_of(code, False), took, text)]
    return [r for node in nodes for r in run_cases(emulator, python, [node], seconds)]


def defect_of(target, test):
    """The name of the defect that is known to break this test, or None."""
    return next((name for name, d in DEFECTS.items() if target in d.targets and any(fnmatch.fnmatchcase(test, p) for p in d.tests)), None)


def judged(target, result, stated):
    """(what a result counts as, what to say of it). A stated defect excuses wrong results, never a crash or a time-out."""
    name = defect_of(target, result.name)
    if name is None or result.outcome not in ("pass", "fail"):
        return result.outcome, ""
    if name not in stated:
        return result.outcome, "" if result.outcome == "pass" else f"  ({DEFECTS[name].why}? If this emulator has that defect: --defect {name})"
    if result.outcome == "pass":
        return "pass", f"  (passes, although {name} was stated)"
    return "excused", f"  ({name}: {DEFECTS[name].why})"


def show(target, results, stated):
    """One line for each as it comes, the last words of those that failed, the sums. Returns the number of failures.

    Where a defect was stated and all the tests that it breaks pass, the emulator does not have it: that is a failure too."""
    counts, failures, seen = collections.Counter(), 0, collections.defaultdict(collections.Counter)
    for r in results:
        what, note = judged(target, r, stated)
        counts[what] += 1
        seen[defect_of(target, r.name)][what] += 1
        print(f"  {what:8} {r.seconds:7.1f} s  {r.name}{note}", flush=True)
        if what not in ("pass", "skip", "excused"):
            failures += 1
            print("    | " + "\n    | ".join(r.text.strip().split("\n")[-12:]), flush=True)
    print(f"{target}: " + (", ".join(f"{n} {what}" for what, n in sorted(counts.items())) or "no tests"), flush=True)
    for name in (n for n in stated if seen[n]["pass"]):
        print(f"{target}: {name} was stated: {seen[name]['excused']} of its tests failed, {seen[name]['pass']} passed", flush=True)
        if not seen[name]["excused"]:
            print(f"{target}: this emulator does not have {name}; leave it out", flush=True)
            failures += 1
    return failures + (counts["pass"] == 0)


def run_target(a, rocm, target, folder):
    """Results, in the order in which they come."""
    emulator = Emulator(a.lib, a.configs, target, a.cus, rocm, folder)
    with concurrent.futures.ThreadPoolExecutor(a.jobs) as pool:
        work = []
        if a.program:
            work += [pool.submit(lambda name=name: [run_program(emulator, a.program, name, a.timeout)]) for name in device_tests(rocm, a.program, a.filter)]
        if a.python:
            nodes = collect(a.python, a.cases)
            work += [pool.submit(run_cases, emulator, a.python, nodes[i:i + a.chunk], a.timeout) for i in range(0, len(nodes), a.chunk)]
        for done in concurrent.futures.as_completed(work):
            yield from done.result()


def main(arguments):
    parser = argparse.ArgumentParser(description="Device tests on AMD's functional emulator")
    parser.add_argument("--lib", default="", help=f"the emulator's {LIBRARY}")
    parser.add_argument("--configs", default="", help="folder of its device configurations")
    parser.add_argument("--targets", default="gfx942,gfx1100")
    parser.add_argument("--cus", type=int, default=2, help="compute units of the emulated device")
    parser.add_argument("--rocm", default="/opt/rocm", help="folder of ROCm, whose libraries must be whole")
    parser.add_argument("--program", type=os.path.abspath, help="the C++ test program pyflame_backends_test")
    parser.add_argument("--filter", default="*Gpu*", help="its tests, as --gtest_filter")
    parser.add_argument("--python", type=os.path.abspath, help="a Python that has the pyflame module and pytest")
    parser.add_argument("--cases", default="test_values", help="which of tests/ops/test_cases.py, as pytest's -k")
    parser.add_argument("--chunk", type=int, default=20, help="cases of one process")
    parser.add_argument("--timeout", type=int, default=300, help="seconds of a test")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--defect", action="append", default=[], choices=sorted(DEFECTS), help="a defect that this emulator has and that excuses its "
                        "tests where they fail; may be given several times")
    parser.add_argument("--out", help="write the results here, as JSON")
    a = parser.parse_args(arguments)
    if not a.lib or not pathlib.Path(a.lib).is_file() or not pathlib.Path(a.configs).is_dir():
        print("!!! SKIPPED: the emulator is not installed; nothing was tested. ROCJITSU_LIB and ROCJITSU_CONFIGS name its library and its folder of "
              f"configurations (now '{a.lib}' and '{a.configs}')", file=sys.stderr)
        return SKIPPED
    rocm, failures, everything = kernel_code.Rocm(a.rocm), 0, {}
    with tempfile.TemporaryDirectory() as folder:
        for target in a.targets.split(","):
            everything[target] = []
            failures += show(target, (everything[target].append(r) or r for r in run_target(a, rocm, target, folder)), a.defect)
    print(EVIDENCE)
    if a.out:
        pathlib.Path(a.out).write_text(json.dumps({t: [r._asdict() for r in results] for t, results in everything.items()}, indent=1))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
