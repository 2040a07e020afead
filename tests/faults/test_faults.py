"""What happens when the GPU's run time fails: a clear exception or a documented fallback, other tensors stay valid, the process lives."""
import os
import pathlib
import shutil
import signal
import subprocess
import time

import pytest

# A program that is right, and says so.
SOUND = """
x = pf.arange(0, 6, dtype='float32').to('rocm').reshape(2, 3)
y = (pf.softmax(x, 1).sum() + (x * 2 + 1).sum()).item()
assert abs(y - 38) < 1e-5, y
print('sound')
"""


def test_a_kernel_that_does_not_compile(program):
    out = program.run("""
before = on_cpu.to('rocm')
pf.synchronize()
why = refused(RuntimeError, lambda: (before * 3 + 1).tolist())
print(why)
assert before.tolist() == on_cpu.tolist() == [0, 1, 2, 3]
assert (before * 3 + 1).tolist() == [1, 4, 7, 10]  # the next attempt is made
""", PYFLAME_EMULATOR_FAIL="compile:1", PYFLAME_INTERPRET="0")
    assert "told to" in out and "gfx942" in out and "compile" in out and "mul(float32(4,)" in out


def test_a_text_is_compiled_once(program, tmp_path):
    """PYFLAME_EMULATOR_CODES, with which these tests are fast: the second process compiles nothing, and PyFlame's own cache is filled all the same."""
    variables = {"PYFLAME_INTERPRET": "0"}
    for name in ("codes", "compiled"):
        (tmp_path / name).mkdir()
        variables[{"codes": "PYFLAME_EMULATOR_CODES", "compiled": "PYFLAME_EMULATOR_KEEP"}[name]] = str(tmp_path / name)
    assert program.run(SOUND, **variables) == "sound\n"
    compiled, kernels = list((tmp_path / "compiled").iterdir()), program.kernels()
    assert len(compiled) == len(list((tmp_path / "codes").glob("*.so"))) > 0
    shutil.rmtree(program.cache)
    assert program.run(SOUND, **variables) == "sound\n"
    assert program.kernels() == kernels and list((tmp_path / "compiled").iterdir()) == compiled


def test_no_runtime_library(program, tmp_path):
    program.libraries = tmp_path
    out = program.run("""
assert not pf.rocm_is_available()
print(pf.rocm_unavailable_reason())
print(refused(pf.DeviceError, lambda: pf.ones(2, device='rocm')))
assert on_cpu.sum().item() == 6
""")
    assert len(out) > 20 and "rocm" in out.lower()


def test_no_compiler_library(program, tmp_path):
    for file in pathlib.Path(program.libraries).glob("libamdhip64.so*"):
        shutil.copy(file, tmp_path)
    program.libraries = tmp_path
    out = program.run("""
x = on_cpu.to('rocm')
print(refused(pf.DeviceError, lambda: (x + 1).tolist()))
assert x.tolist() == [0, 1, 2, 3] and on_cpu.sum().item() == 6
""")
    assert "libhiprtc.so" in out


def test_a_runtime_that_lacks_functions(program, tmp_path):
    source = tmp_path / "old.c"
    source.write_text("int hipInit(unsigned flags) { return 0; }\n")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", tmp_path / "libamdhip64.so.7", source], check=True)
    program.libraries = tmp_path
    out = program.run("""
assert not pf.rocm_is_available()
print(refused(pf.DeviceError, lambda: pf.ones(2, device='rocm')))
""")
    assert "not available" in out


def test_a_runtime_of_rocm_5(program, tmp_path):
    """It has every function except the one that returns the architecture's name in ROCm 6."""
    name = b"hipGetDevicePropertiesR0600"
    for file in pathlib.Path(program.libraries).glob("lib*.so*"):
        whole = file.read_bytes()
        assert "hip64" not in file.name or name in whole
        (tmp_path / file.name).write_bytes(whole.replace(name, name.replace(b"R0600", b"R0000")))
    program.libraries = tmp_path
    program.run("""
assert not pf.rocm_is_available()
refused(pf.DeviceError, lambda: pf.ones(2, device='rocm'))
""")


@pytest.mark.parametrize("damage", ["cut", "emptied", "flipped", "foreign", "folder"])
def test_a_damaged_cache(program, damage):
    assert "sound" in program.run(SOUND)
    files = program.kernels()
    assert files
    for file in files:
        whole = file.read_bytes()
        if damage == "cut":
            file.write_bytes(whole[: len(whole) - 100])
        elif damage == "emptied":
            file.write_bytes(b"")
        elif damage == "flipped":
            file.write_bytes(whole[:-50] + bytes([whole[-50] ^ 4]) + whole[-49:])
        elif damage == "foreign":
            file.write_bytes(files[0].read_bytes() if file != files[0] else b"\x7fELF" + bytes(5000))
        else:
            file.unlink()
            file.mkdir()
    assert "sound" in program.run(SOUND)
    if damage != "folder":  # they were replaced: nothing is compiled any more
        assert "sound" in program.run(SOUND, PYFLAME_EMULATOR_FAIL="compile:1")


def test_debug_levels_write_sources_and_code(program):
    assert "sound" in program.run(SOUND)
    kinds = lambda: {f.suffix for f in program.cache.rglob("kernels/*/*")}  # noqa: E731
    assert kinds() == {".bin"}
    program.run(SOUND, PYFLAME_DEBUG="5")  # also of what came from the cache
    assert kinds() == {".bin", ".cpp"}
    program.run(SOUND, PYFLAME_DEBUG="6")
    assert kinds() == {".bin", ".cpp", ".co"}
    texts = [f.read_text() for f in program.cache.rglob("kernels/*/*.cpp")]
    assert texts and all("PF_KERNEL" in t for t in texts)


def test_code_that_the_driver_refuses_is_compiled_anew(program):
    assert "sound" in program.run(SOUND)
    assert "sound" in program.run(SOUND, PYFLAME_EMULATOR_FAIL="load:1")


def test_a_cache_folder_that_cannot_be_made(program):
    program.cache.write_text("a file, where the folder should be")
    assert "sound" in program.run(SOUND)
    program.cache = pathlib.Path("/proc/self/nothing")
    assert "sound" in program.run(SOUND)


def mounted(program, options):
    """A command that runs the command behind it with another file system as the cache's folder, and then lists the folder's files."""
    program.cache.mkdir()
    mount = f"mount -t tmpfs -o {options} none '{program.cache}'"
    if subprocess.run(["unshare", "-m", "sh", "-c", mount], capture_output=True).returncode:
        return None
    return ["unshare", "-m", "sh", "-c", f"{mount} && \"$@\" && find '{program.cache}' -type f", "sh"]


def test_a_read_only_cache_folder(program):
    if before := mounted(program, "ro"):  # a superuser may write wherever a file system lets him
        assert program.run(SOUND, before=before).split() == ["sound"]
        return
    program.cache.chmod(0o500)
    try:
        if os.access(program.cache, os.W_OK):
            pytest.skip("this user may write everywhere")
        assert "sound" in program.run(SOUND)
    finally:
        program.cache.chmod(0o700)
    assert not program.kernels()


def test_a_full_cache_folder(program):
    before = mounted(program, "size=24k")
    if not before:
        pytest.skip("no small file system can be mounted here")
    out = program.run(SOUND, before=before)
    assert out.split() == ["sound"], "half a file was left: " + out


def test_two_processes_share_a_cache(program):
    running = [program.start(SOUND) for _ in range(4)]
    assert all("sound" in program.finish(p) for p in running)
    assert not [f for f in program.cache.rglob("*") if f.is_file() and f.suffix != ".bin"], "unfinished files were left"
    assert "sound" in program.run(SOUND, PYFLAME_EMULATOR_FAIL="compile:1")


STEP = """
model = pf.nn.Sequential(pf.nn.Linear(16, 32), pf.nn.ReLU(), pf.nn.Linear(32, 4)).to('rocm')
optimizer = pf.optim.Adam(model.parameters(), lr=0.01)
inputs, targets = pf.randn(8, 16).to('rocm'), pf.randn(8, 4).to('rocm')
pf.synchronize()
def step():
    optimizer.zero_grad()
    loss = ((model(inputs) - targets) ** 2).mean()
    loss.backward()
    optimizer.step()
    return loss
"""


@pytest.mark.parametrize("n", [1, 7, 40])
def test_a_device_that_is_lost(program, n):
    out = program.run(STEP + """
def train():
    for _ in range(50):
        step().item()
why = refused(pf.DeviceError, train)
print(why)
assert on_cpu.tolist() == [0, 1, 2, 3] and (on_cpu + 1).sum().item() == 10
again = refused(pf.DeviceError, lambda: pf.ones(2, device='rocm').tolist())
print(again)
""", PYFLAME_EMULATOR_FAIL=f"lost:{n}")
    assert "device" in out and "hint" in out


@pytest.mark.parametrize("what", ["launch:5", "copy:15", "wait:4"])
def test_one_call_that_fails(program, what):
    out = program.run(STEP + """
def train():
    for _ in range(20):
        step().item()
print(refused(RuntimeError, train))
assert on_cpu.tolist() == [0, 1, 2, 3] and (on_cpu + 1).sum().item() == 10
""", PYFLAME_EMULATOR_FAIL=what)
    assert "rocm" in out


def test_out_of_memory_in_a_step(program):
    out = program.run(STEP + """
step().item()
weight = model[0].weight.tolist()
kept = pf.full((1000,), 3.0, device='rocm')
kept.sum().item()
def too_much():
    big = pf.ones(1024, 1024, 4, device='rocm')
    many = [big + i for i in range(8)]
    return sum(m.sum() for m in many).item()
print(refused(pf.OutOfMemoryError, too_much))
assert kept.sum().item() == 3000 and model[0].weight.tolist() == weight
step().item()
assert model[0].weight.tolist() != weight
""", PYFLAME_EMULATOR_MEMORY="64M")
    for part in ("live", "hole", "hint"):
        assert part in out


@pytest.mark.parametrize("n", [1, 2, 3])
def test_an_allocation_that_fails_once(program, n):
    """Cached memory is freed and the call is made again. If nothing is cached, the exception leaves all tensors valid."""
    program.run("""
try:  # the first is made when the device is opened
    pf.ones(1, device='rocm').sum().item()
except pf.OutOfMemoryError as e:
    assert 'out of memory' in str(e)
""" + STEP + """
try:
    for _ in range(3):
        step().item()
        big = pf.ones(1 << 22, device='rocm').sum().item()
except pf.OutOfMemoryError as e:
    assert 'hint' in str(e)
assert step().item() > 0 and on_cpu.sum().item() == 6
""", PYFLAME_EMULATOR_FAIL=f"allocate:{n}")


def test_no_pinned_memory(program):
    program.run("""
try:
    x = on_cpu.to('rocm')
    assert (x + 1).tolist() == [1, 2, 3, 4]
except (pf.OutOfMemoryError, RuntimeError) as e:
    assert 'pinned' in str(e), e
assert (on_cpu.to('rocm') + 1).tolist() == [1, 2, 3, 4]
""", PYFLAME_EMULATOR_FAIL="host_allocate:1")


def test_a_fork_after_the_device_was_opened(program):
    out = program.run("""
x = on_cpu.to('rocm') + 1
assert x.tolist() == [1, 2, 3, 4]
child = os.fork()
if child == 0:
    why = refused(pf.DeviceError, lambda: (x + 1).tolist())
    assert (on_cpu + 1).sum().item() == 10
    print(why, flush=True)
    os._exit(0)
_, status = os.waitpid(child, 0)
assert status == 0, status
assert (x + 1).tolist() == [2, 3, 4, 5]
""")
    assert "fork" in out and "spawn" in out


def test_a_child_of_fork_does_not_fail_for_what_its_parent_had_not_run(program):
    program.run("""
x = on_cpu.to('rocm') + 1
x.tolist()
y = x * 2  # pending
child = os.fork()
if child == 0:
    pf.set_num_threads(1)
    pf.synchronize()
    assert (on_cpu + 1).sum().item() == 10
    pf.synchronize()
    assert 'fork' in refused(pf.DeviceError, lambda: y.tolist())
    pf.synchronize()
    os._exit(0)
_, status = os.waitpid(child, 0)
assert status == 0, status
assert y.tolist() == [2, 4, 6, 8], y.tolist()
""")


def test_a_fork_after_devices_were_counted(program):
    """Counting devices opens none of them, but the driver does not work after the fork."""
    out = program.run("""
assert pf.rocm_is_available() and pf.rocm_device_count() == 1
child = os.fork()
if child == 0:
    print(refused(pf.DeviceError, lambda: pf.ones(2, device='rocm').tolist()), flush=True)
    os._exit(0)
_, status = os.waitpid(child, 0)
assert status == 0, status
assert pf.ones(2, device='rocm').tolist() == [1, 1]
""")
    assert "fork" in out and "spawn" in out


def test_a_device_that_is_full_keeps_nobody_from_the_others(program):
    program.run("""
assert pf.rocm_device_count() == 3
x = on_cpu.to('rocm:1')
assert (x + 1).tolist() == [1, 2, 3, 4]  # the first that is opened
why = refused(pf.OutOfMemoryError, lambda: on_cpu.to('rocm:0').tolist())
assert 'opening the device' in why, why
pf.set_device('rocm:2')
assert (pf.ones(4) + on_cpu.to('rocm:2')).tolist() == [1, 2, 3, 4] == (x + 1).tolist()
refused(pf.OutOfMemoryError, lambda: pf.rocm_get_device_info(0))
""", PYFLAME_EMULATOR_DEVICES="3", PYFLAME_EMULATOR_BROKEN="0")


def test_an_unused_device_is_not_opened(program):
    process = program.start("""
pf.set_device('rocm:1')
assert (pf.ones(3) * 2).sum().item() == 6
pf.rocm_get_device_info(1)
""", PYFLAME_EMULATOR_DEVICES="3", PYFLAME_EMULATOR_LOG="1")
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    assert (out + err).count("hipDevicePrimaryCtxRetain") == 1, "a context takes memory of its device"


def test_an_integrated_device_is_never_the_first(program):
    program.run("""
names = [pf.rocm_get_device_info(i)['name'] for i in range(pf.rocm_device_count())]
assert [n.endswith('(integrated)') for n in names] == [False, True, True], names
assert pf.device_info('rocm')['name'] == names[0]
assert (on_cpu.to('rocm') + 1).tolist() == (on_cpu.to('rocm:2') + 1).tolist() == [1, 2, 3, 4]
""", PYFLAME_EMULATOR_DEVICES="3", PYFLAME_EMULATOR_INTEGRATED="2")


@pytest.mark.parametrize("arch, mode, units", [("gfx942", "", 4), ("gfx1030", "", 8), ("gfx1100", "", 8), ("gfx1100", "0", 4)])
def test_compute_units_are_those_of_the_data_sheet(program, arch, mode, units):
    """On RDNA, HIP reports half of them, because it counts pairs (WGPs)."""
    program.run(f"assert pf.rocm_get_device_info(0)['compute_units'] == {units}", PYFLAME_EMULATOR_ARCH=arch, GPU_ENABLE_WGP_MODE=mode)


@pytest.mark.parametrize("kind, value", [("F8_E4M3", 2.0**-9), ("F8_E5M2", 2.0**-16)])
def test_the_smallest_8_bit_floats_where_matrix_cores_flush_subnormals(program, kind, value):
    """gfx90a multiplies subnormal float16 as 0. 2^-9 is no subnormal; with 2^-16, products of float16 do not use matrix cores there."""
    program.run(f"""
row = [1] * 16 + [0, 0, 0x80, 0x3f] + [0] * 12  # codes, and a scale of 1
w = pf.tensor([row] * 16, dtype=pf.uint8).to('rocm')
for dtype in (pf.float16, pf.bfloat16):
    y = pf.quantized_linear(pf.ones(3, 16).to('rocm').to(dtype), w, {kind!r}).float().cpu()
    assert (y == {16 * value!r}).all(), y
""", PYFLAME_EMULATOR_ARCH="gfx90a")


def test_memory_functions_of_an_absent_device_say_why(program, tmp_path):
    program.libraries = tmp_path
    program.run("""
from pyflame.backend import rocm
reason = pf.rocm_unavailable_reason()
for use in (pf.memory_stats, pf.memory_report, pf.reset_peak_memory, lambda d: pf.set_memory_fraction(0.5, d), lambda d: pf.set_memory_limit(1 << 20, d)):
    why = refused(pf.DeviceError, lambda: use('rocm'))
    assert reason in why, why
refused(ValueError, lambda: rocm.get_pinned_pool('cpu').warmup([1024]))
""")


def test_a_fraction_that_makes_no_sense_is_refused_every_time(program):
    program.run("""
for _ in range(2):
    why = refused(ValueError, lambda: pf.ones(4, device='rocm').tolist())
    assert "PYFLAME_GPU_MEMORY_FRACTION: not a valid value; got '2'" in why, why
""", PYFLAME_GPU_MEMORY_FRACTION="2")


def test_memory_is_warmed_up_and_given_back(program):
    program.run("""
from pyflame.backend import rocm
manager = rocm.get_memory_manager()
assert pf.ones(4, device='rocm').sum().item() == 4  # small blocks have a segment of their own
before = manager.stats()
assert rocm.warmup_memory_pool(1, 'small') == 68 << 20
after = manager.stats()
assert after['cached'] >= 68 << 20 and after['allocated'] == before['allocated'], after
x = pf.zeros(1 << 19, device='rocm')
assert x.sum().item() == 0 and manager.stats()['allocations'] == after['allocations']
del x
manager.clear_pool()
assert manager.stats()['reserved'] <= before['reserved'], manager.report()
rocm.warmup_memory_pool(1, 'small')
y = pf.empty(1 << 19, device='rocm').fill_(1)
del y  # recorded, never read: its memory is nobody's
manager.clear_pool()
assert manager.stats()['tensors'] == before['tensors'], manager.report()
""")


def test_ctrl_c_during_a_step(program):
    process = program.start(STEP + """
first = step().item()
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where the tests run in the background
print('ready', flush=True)
try:
    while True:
        step().item()
except KeyboardInterrupt:
    pass
losses = [step().item() for _ in range(3)]
assert all(v < first for v in losses), (first, losses)
assert on_cpu.sum().item() == 6
print('went on')
""")
    assert process.stdout.readline().strip() == "ready"
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    assert "went on" in program.finish(process)


def test_nan_under_a_scaler(program):
    program.run(STEP + """
scaler = pf.amp.GradScaler()
before = model[0].weight.tolist()
scale = scaler.get_scale()
bad = inputs * float('inf')
loss = ((model(bad) - targets) ** 2).mean()
scaler.scale(loss).backward()
scaler.step(optimizer)
scaler.update()
assert model[0].weight.tolist() == before and scaler.get_scale() < scale
optimizer.zero_grad()
scaler.scale(((model(inputs) - targets) ** 2).mean()).backward()
scaler.step(optimizer)
scaler.update()
after = model[0].weight.tolist()
assert after != before and all(v == v for row in after for v in row)
""")


BAD = "index = pf.tensor([1, 7, 2]).to('rocm')\nw = pf.ones(4, 3, device='rocm', requires_grad=True)\n"


def test_every_op_that_met_a_bad_index_taints_what_it_wrote(program):
    """The gradient does not depend on the forward pass, but its kernel meets the same index."""
    program.run(BAD + """
pf.nn.functional.embedding(index, w).sum().backward()
assert 'index out of range; got 7' in refused(IndexError, lambda: w.grad.tolist())
refused(IndexError, lambda: (w.grad + 1).sum().item())
""")


def test_more_bad_indices_than_the_table_of_reports_holds(program):
    """The table has 64 entries. Each result raises, also those whose report was overwritten by another."""
    program.run(BAD + """
w = w.detach()
good = pf.tensor([0, 1]).to('rocm')
bad, sound = [], []
for i in range(150):
    bad.append(pf.index_select(w, 0, index))
    sound.append(w * i)
for y in bad:
    refused(IndexError, lambda: y.tolist())
for i, y in enumerate(sound):
    assert y.tolist()[0] == [i, i, i]
try:
    pf.synchronize()
except IndexError:
    pass
assert pf.index_select(w, 0, good).tolist() == [[1, 1, 1], [1, 1, 1]]
""")


def test_a_sound_result_beside_a_bad_one_can_be_read(program):
    program.run(BAD + """
w = w.detach()
good = pf.tensor([0, 1]).to('rocm')
first, second, third = pf.index_select(w, 0, good), pf.index_select(w, 0, index), pf.index_select(w, 0, good)
refused(IndexError, lambda: second.tolist())
assert first.tolist() == third.tolist() == [[1, 1, 1], [1, 1, 1]]
""")


def test_a_copy_to_another_device_of_what_a_report_taints(program):
    program.run(BAD + """
w = w.detach()
y = pf.index_select(w, 0, index)
refused(IndexError, lambda: y.to('rocm:1').tolist())
refused(IndexError, lambda: y.tolist())
assert w.to('rocm:1').tolist() == w.tolist()
""", PYFLAME_EMULATOR_DEVICES="2")


def test_every_replay_reports_for_itself(program):
    """A graph is launched many times. A bad index raises in each replay that meets one, not only in the first."""
    out = program.run("""
w, index = pf.ones(4, 3, device='rocm'), pf.tensor([0, 1, 2]).to('rocm')
def step():
    return (pf.index_select(w, 0, index) * 2 + 1).sum().item()
for i in range(40):
    assert step() == 27
before = pf.gpu_graph_stats()['replays']
for bad in (7, 8, 7):
    index[1] = bad
    pf.synchronize()  # the write is in no window with the step
    why = refused(IndexError, step)
    assert f'got {bad}' in why, why
    index[1] = 1
    pf.synchronize()
    assert step() == 27
print(pf.gpu_graph_stats()['replays'] - before)
""", PYFLAME_GPU_GRAPHS="1")
    assert int(out) > 0


def test_a_report_that_another_thread_reads_while_the_run_is_being_queued(program, tmp_path):
    """The run has two kernels. The second one is compiled when the first one is queued, because its operand is not aligned; meanwhile
    another thread waits for the device, and reads the first one's report."""
    begun = tmp_path / "begun"
    program.run(BAD + f"""
import threading, time
w, good = w.detach(), pf.tensor([0, 1]).to('rocm')
line, settled = pf.arange(0, 4097, dtype='float32').to('rocm'), pf.arange(0, 3).to('rocm')
pf.synchronize()
sound = pf.index_select(w, 0, good)
on_cpu + 0  # an op of another device ends the window: it is run, and nobody waits for it
results = []
def use():
    results.extend([pf.index_select(w, 0, index), line[1:].argmax()])
    results.append(results[1].item())
thread = threading.Thread(target=use)
thread.start()
while not os.path.exists({str(begun)!r}):
    time.sleep(0.001)
try:
    assert settled.tolist() == [0, 1, 2]
finally:
    os.remove({str(begun)!r})  # the compilation goes on
    thread.join()
assert 'index_select: index out of range; got 7' in refused(IndexError, lambda: results[0].tolist())
assert sound.tolist() == [[1, 1, 1], [1, 1, 1]] and results[2] == 4095
refused(IndexError, lambda: results[0].tolist())
""", PYFLAME_EMULATOR_SLOW_COMPILE=f"ReadValues<float, false, 1>:100000:{begun}", PYFLAME_INTERPRET="0")


def test_an_overflow_of_the_table_concerns_no_later_run(program):
    """After 64 runs of two steps the device's reports are copied. The run behind them cannot have reported by then."""
    program.run(BAD + """
w, good = w.detach(), pf.tensor([0, 1]).to('rocm')
rows = pf.ones(3, 300, device='rocm')
pf.index_select(w, 0, good), pf.softmax(rows, 1)
pf.synchronize()
bad = []
for i in range(64):
    bad.append(pf.index_select(w, 0, index))
    pf.softmax(rows, 1)
sound = pf.index_select(w, 0, good)
pf.softmax(rows, 1)
assert sound.tolist() == [[1, 1, 1], [1, 1, 1]]
for y in bad:
    refused(IndexError, lambda: y.tolist())
""", PYFLAME_EMULATOR_EAGER="1", PYFLAME_WINDOW="2")
