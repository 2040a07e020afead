"""`pyflame doctor lint FILE.py`: each rule on programs that have the mistake and on the same programs without it."""
import json
import pathlib
import subprocess
import sys

import pytest

DOCTOR = pathlib.Path(__file__).resolve().parents[2] / "src" / "tools" / "doctor"
LINTER = f"import sys; sys.path.insert(0, {str(DOCTOR)!r}); from lint.program import main; sys.exit(main())"
HEAD = "import os\nimport time\nimport torch\n"


def lint(path):
    """The package alone. The program runs the same modules as one text."""
    r = subprocess.run([sys.executable, "-I", "-c", LINTER, str(path)], capture_output=True, text=True, timeout=120)
    assert r.returncode == 0 and not r.stderr, r.stderr
    return json.loads(r.stdout)


@pytest.fixture
def check(tmp_path):
    def call(source):
        path = tmp_path / "program.py"
        path.write_bytes(source if isinstance(source, bytes) else source.encode("utf-8"))
        return lint(path)

    return call


def marked(source, mark):
    """Lines that end in the comment `# <mark>`."""
    return [i for i, line in enumerate(source.splitlines(), 1) if line.rstrip().endswith("# " + mark)]


# id: programs in which the rule fires on the lines marked with `# here`. HEAD is put before those that do not import torch.
FIRES = {
    "LINT-01": [
        """
model = torch.nn.Linear(8, 8).cuda()
x = torch.randn(8, 8, device="cuda")
start = time.time()
for _ in range(100):
    y = model(x)
elapsed = time.time() - start  # here
""",
        """
from time import perf_counter as now
import torch as t
def bench(n):
    a = t.randn(n, n, device="cuda:0")
    t.cuda.synchronize()
    begin = now()
    b = a * 2
    end = now()  # here
    return end - begin
""",
        """
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
def measure(model, batch):
    t0 = time.perf_counter_ns()
    model(batch.to(device))
    return (time.perf_counter_ns() - t0) / 1e6  # here
""",
        """
def step(a):
    return a @ a
a = torch.randn(64, 64, device="cuda")
for _ in range(5):
    step(a)
t0 = time.time()
for _ in range(10):
    step(a)
print(time.time() - t0)  # here
""",
        """
import timeit
a = torch.randn(64, 64, device="cuda")
timeit.timeit(lambda: a + a, number=100)  # here
""",
    ],
    "LINT-02": [
        """
model = torch.nn.Linear(8, 8).cuda()
x = torch.randn(8, 8, device="cuda")
torch.cuda.synchronize()
start = time.time()  # here
for _ in range(100):
    y = model(x)
torch.cuda.synchronize()
print((time.time() - start) / 100)
""",
        """
model = torch.nn.Linear(8, 8).cuda()
x = torch.randn(8, 8, device="cuda")
for _ in range(2):
    model(x)
start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
start.record()
for _ in range(10):
    model(x)
end.record()
torch.cuda.synchronize()
print(start.elapsed_time(end))  # here
""",
        """
def bench(model, x, warmup=0, iterations=1):
    for _ in range(warmup):
        model(x)
    torch.cuda.synchronize()
    t0 = time.perf_counter()  # here
    for _ in range(iterations):
        model(x)
    torch.cuda.synchronize()
    return (time.perf_counter() - t0) / iterations
""",
        """
model = torch.nn.Linear(8, 8).cuda()
x = torch.randn(8, 8, device="cuda")
times = []
for i in range(100):
    t0 = time.time()  # here
    model(x)
    torch.cuda.synchronize()
    times.append(time.time() - t0)
print(sum(times) / len(times))
""",
    ],
    "LINT-03": [
        """
a = torch.zeros(4096, 4096, device="cuda", dtype=torch.float16)
b = torch.randn(4096, 4096, device="cuda", dtype=torch.float16)
for _ in range(10):
    a @ b
torch.cuda.synchronize()
t0 = time.time()
for _ in range(100):
    c = torch.matmul(a, b)  # here
torch.cuda.synchronize()
print(time.time() - t0)
""",
        """
from triton.testing import do_bench
a = torch.ones((512, 512), device="cuda")
print(do_bench(lambda: a @ a))  # here
""",
        """
def bench(fn):
    for _ in range(10):
        fn()
    torch.cuda.synchronize()
    t0 = time.time()
    for _ in range(100):
        fn()
    torch.cuda.synchronize()
    return time.time() - t0
w = torch.full((64, 64), 0.5, device="cuda")
bench(lambda: torch.mm(w, w))  # here
""",
    ],
    "LINT-04": [
        """
from torch.cuda.amp import GradScaler
scaler = GradScaler()  # here
def step(model, x):
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = model(x).sum()
    scaler.scale(loss).backward()
""",
        """
def train(model, x, optimizer):
    scaler = torch.amp.GradScaler("cuda", enabled=True)  # here
    with torch.autocast(device_type="cuda", dtype=torch.bfloat16):
        loss = model(x).sum()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
def half(model, x):
    with torch.autocast("cuda", dtype=torch.float16):
        return model(x)
""",
    ],
    "LINT-05": [
        """
with torch.cuda.amp.autocast(device_type="cuda", dtype=torch.bfloat16):  # here
    pass
""",
        """
from torch.cuda import amp
def forward(x):
    with amp.autocast("cuda"):  # here
        return x
""",
    ],
    "LINT-06": [
        """
model = torch.nn.DataParallel(torch.nn.Linear(8, 8))  # here
""",
        """
from torch import nn as layers
def wrap(m):
    return layers.DataParallel(m, device_ids=[0])  # here
""",
    ],
    "LINT-07": [
        """
def prepare(model):
    try:
        return torch.compile(model, mode="reduce-overhead")  # here
    except Exception as e:
        print("not compiled:", e)
        return model
""",
        """
model = torch.nn.Linear(8, 8)
try:
    model = torch.compile(model)  # here
except:
    pass
""",
    ],
    "LINT-08": [
        """
os.environ["PYTORCH_HIP_ALLOC_CONF"] = "max_split_size_mb:128"  # here
""",
        """
class Trainer:
    def __init__(self):
        os.environ["HIP_VISIBLE_DEVICES"] = "0"  # here
        os.environ.setdefault("HSA_ENABLE_SDMA", "0")  # here
""",
        """
x = torch.ones(1).cuda()
os.environ.update({"AMD_LOG_LEVEL": "3"})  # here
""",
        """
import torch.distributed as dist
dist.init_process_group("nccl")
os.putenv("NCCL_DEBUG", "INFO")  # here
""",
        """
m = torch.compile(torch.nn.Linear(2, 2))
os.environ["TORCHINDUCTOR_MAX_AUTOTUNE"] = "1"  # here
""",
    ],
    "LINT-09": [
        """
def profile(prices, volumes):
    p = torch.tensor(prices, device="cuda")
    total = torch.zeros_like(p)
    for i in range(len(p)):  # here
        total[i % 10] += p[i]
    return total
""",
        """
x = torch.randn(1000).to("cuda")
s = 0.0
for v in x:  # here
    s += v.item()
""",
        """
x = torch.randn(1000, device="cuda")
values = [x[i].item() for i in range(x.shape[0])]  # here
""",
    ],
    "LINT-10": [
        """
def histogram(p):
    p = p.cuda()
    counts = torch.histc(p, bins=1000)
    out = torch.zeros_like(counts)
    bin = torch.bucketize(p, torch.linspace(p.min(), p.max(), 1000))  # here
    out[bin] += 1
    return out
""",
        """
def histogram(p, n):
    edges = torch.linspace(0, 1, steps=n)
    out = torch.zeros(n)
    out.index_add_(0, torch.bucketize(p, edges), p)  # here
    return out
""",
    ],
    "LINT-11": [
        """
x = torch.randn(4096, 8192, device="cuda", dtype=torch.float16)
w = torch.randn(4096, 8192, device="cuda", dtype=torch.float16)
y = x @ w.t()  # here
""",
        """
import torch.nn.functional as F
K = 4 * 1024
x = torch.randn(16, K, device="cuda", dtype=torch.bfloat16)
w = torch.randn(4096, K, device="cuda", dtype=torch.bfloat16)
y = F.linear(x, w)  # here
""",
    ],
    "LINT-12": [
        """
def batch_size(per_sample):
    total = torch.cuda.get_device_properties(0).total_memory
    used = torch.cuda.memory_reserved(0)
    free = total - used  # here
    return int(free * 0.8 / per_sample)
""",
    ],
    "LINT-14": [
        "\npool = torch.cuda.memory.MemoryPool()  # here\ntorch.cuda.memory.set_allocator(pool)  # here\n",
        "\nimport torch._inductor.config\ntorch._inductor.config.max_autotune.pointwise = True  # here\n",
        "\nimport onnxruntime\ns = onnxruntime.InferenceSession('m.onnx', providers=['ROCMExecutionProvider', 'CPUExecutionProvider'])  # here\n",
    ],
    "LINT-13": [
        """
os.system("export HIP_FORCE_DEV_KERNARG=1  hipblaslt-bench --alpha 1 --beta 0")  # here
""",
        """
import subprocess
subprocess.run("cd /tmp && export A=1 python3 train.py", shell=True)  # here
""",
    ],
    "ENV-63": [
        "\ntorch.cuda.max_split_size_mb = 512  # here\n",
        "\nfrom torch import cuda\nsetattr(cuda, 'max_split_size_mb', 128)  # here\n",
    ],
    "ENV-64": [
        """
torch.set_grad_enabled(False)  # here
def train(model, loader, optimizer):
    for x, y in loader:
        loss = (model(x) - y).square().mean()
        loss.backward()
        optimizer.step()
""",
        """
def step(model, x):
    torch.autograd.set_grad_enabled(False)  # here
    loss = model(x).sum()
    loss.backward()
""",
    ],
    "ENV-65": [
        """
def train(model, loader, optimizer):
    for step, (x, y) in enumerate(loader):
        loss = model(x).sum()
        loss.backward()
        optimizer.step()
        if step % 10 == 0:
            torch.cuda.empty_cache()  # here
""",
        """
def train(epochs):
    for epoch in range(epochs):
        work()
        if batch_idx % 100 == 0:
            torch.cuda.empty_cache()  # here
""",
        """
def tidy():
    torch.cuda.empty_cache()
def train(model, batches):
    for x in batches:
        model(x).sum().backward()
        tidy()  # here
""",
    ],
    "ENV-98": [
        """
import torch.distributed as dist
dist.init_process_group(backend="gloo", world_size=1, rank=0)  # here
model = torch.nn.Linear(2, 2).to("cuda")
""",
    ],
}

# id: programs in which the rule must not fire, most of them one line away from one in which it does.
SILENT = {
    "LINT-01": [
        """
def main():
    x = torch.randn(8, 8, device="cuda")
    torch.save(x @ x, "y.pt")
start = time.time()
main()
print(time.time() - start)
""",
        """
def bench_launch_us(run, n):
    x = torch.randn(8, 8, device="cuda")
    start = time.perf_counter()
    y = x @ x
    return time.perf_counter() - start
""",
        """
start = time.time()
blocks = [torch.empty(1024, device="cuda") for _ in range(10)]
print(time.time() - start)
""",
        # waited for
        """
model = torch.nn.Linear(8, 8).cuda()
x = torch.randn(8, 8, device="cuda")
start = time.time()
for _ in range(100):
    y = model(x)
torch.cuda.synchronize()
elapsed = time.time() - start
""",
        # .item() waits
        """
x = torch.randn(8, 8, device="cuda")
start = time.time()
s = (x * 2).sum().item()
print(time.time() - start)
""",
        # printing waits
        """
x = torch.randn(8, 8, device="cuda")
start = time.time()
y = x * 2
print(y)
print(time.time() - start)
""",
        # on the CPU
        """
x = torch.randn(8, 8)
start = time.time()
y = x @ x
print(time.time() - start)
""",
        # nothing of the GPU in between
        """
x = torch.randn(8, 8, device="cuda")
start = time.time()
rows = open("data.csv").readlines()
print(time.time() - start)
""",
        # a function of this file that waits
        """
def sync():
    if torch.cuda.is_available():
        torch.cuda.synchronize()
def bench(model, x):
    sync()
    t0 = time.perf_counter()
    model(x)
    sync()
    return time.perf_counter() - t0
""",
        # a training loop that reads its loss in each step
        """
def epoch(model, loader, optimizer):
    model.cuda()
    start, running = time.time(), 0.0
    for x, y in loader:
        loss = (model(x.cuda()) - y.cuda()).square().mean()
        optimizer.zero_grad()
        loss.backward()
        running += loss.item()
        optimizer.step()
    print(running, time.time() - start)
""",
        # another thing called time
        """
def f(time, x):
    x = x.cuda()
    a = time.time()
    y = x * 2
    return time.time() - a
""",
        # its own wait
        """
import pyflame as pf
x = pf.randn(100, 100)
start = time.time()
for _ in range(100):
    y = pf.matmul(x, x)
pf.synchronize()
print(time.time() - start)
""",
    ],
    "LINT-02": [
        """
x = torch.randn(8, 8, device="cuda")
times = []
for k in range(100):
    torch.cuda.synchronize()
    begin = time.perf_counter()
    y = x @ x
    torch.cuda.synchronize()
    if k < 10:
        continue
    times.append(time.perf_counter() - begin)
""",
        """
x = torch.randn(8, 8, device="cuda")
times = []
for k in range(100):
    torch.cuda.synchronize()
    begin = time.perf_counter()
    y = x @ x
    torch.cuda.synchronize()
    if k >= skip:
        times.append(time.perf_counter() - begin)
""",
        """
x = torch.randn(8, 8, device="cuda")
times = []
for k in range(100):
    torch.cuda.synchronize()
    begin = time.perf_counter()
    y = x @ x
    torch.cuda.synchronize()
    times.append(time.perf_counter() - begin)
print(sorted(times)[len(times) // 2])
""",
        """
x = torch.randn(8, 8, device="cuda")
times = []
for k in range(100):
    torch.cuda.synchronize()
    begin = time.perf_counter()
    y = x @ x
    torch.cuda.synchronize()
    times.append(time.perf_counter() - begin)
print(statistics.median(times))
""",
        """
def main():
    model = torch.nn.Linear(8, 8).cuda()
    for _ in range(10):
        y = model(torch.randn(8, 8, device="cuda"))
    torch.cuda.synchronize()
if __name__ == "__main__":
    start = time.time()
    main()
    print("took", time.time() - start)
""",
        """
def time_graph(graph, iterations):
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    for _ in range(iterations):
        graph.replay()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) / iterations
""",
        """
model = torch.nn.Linear(8, 8).cuda()
x = torch.randn(8, 8, device="cuda")
for _ in range(10):
    model(x)
torch.cuda.synchronize()
start = time.time()
for _ in range(100):
    y = model(x)
torch.cuda.synchronize()
print((time.time() - start) / 100)
""",
        """
def bench(model, x, warmup, iterations):
    for _ in range(warmup):
        model(x)
    torch.cuda.synchronize()
    t0 = time.perf_counter()
    for _ in range(iterations):
        model(x)
    torch.cuda.synchronize()
    return (time.perf_counter() - t0) / iterations
""",
        # the time of an epoch is no benchmark
        """
def train(model, loader, optimizer, epochs):
    model.cuda()
    for epoch in range(epochs):
        start = time.time()
        for x, y in loader:
            loss = model(x.cuda()).sum()
            loss.backward()
            optimizer.step()
        torch.cuda.synchronize()
        print(epoch, time.time() - start)
""",
        # the first ones are left out
        """
model = torch.nn.Linear(8, 8).cuda()
x = torch.randn(8, 8, device="cuda")
times = []
for i in range(100):
    t0 = time.time()
    model(x)
    torch.cuda.synchronize()
    times.append(time.time() - t0)
print(sum(times[10:]) / 90)
""",
        """
model = torch.nn.Linear(8, 8).cuda()
x = torch.randn(8, 8, device="cuda")
def warm_up():
    for _ in range(5):
        model(x)
warm_up()
start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
start.record()
for _ in range(10):
    model(x)
end.record()
torch.cuda.synchronize()
print(start.elapsed_time(end))
""",
    ],
    "LINT-03": [
        """
from triton.testing import do_bench
a = torch.randn((512, 512), device="cuda")
print(do_bench(lambda: a @ a))
""",
        # zeros that are filled, and zeros that are no operand
        """
a = torch.zeros(64, 64, device="cuda")
a.normal_()
out = torch.zeros(64, 64, device="cuda")
for _ in range(3):
    torch.mm(a, a, out=out)
torch.cuda.synchronize()
t0 = time.time()
for _ in range(10):
    torch.mm(a, a, out=out)
torch.cuda.synchronize()
print(time.time() - t0)
""",
        # not timed
        "\na = torch.ones(64, 64, device='cuda')\nb = a @ a\n",
    ],
    "LINT-04": [
        """
scaler = torch.cuda.amp.GradScaler()
def step(model, x):
    with torch.autocast("cuda", dtype=torch.float16):
        loss = model(x).sum()
    scaler.scale(loss).backward()
""",
        """
def train(model, x, dtype):
    scaler = torch.amp.GradScaler("cuda", enabled=dtype == torch.float16)
    with torch.autocast("cuda", dtype=dtype):
        loss = model(x).sum()
    scaler.scale(loss).backward()
def other(model, x):
    with torch.autocast("cuda", dtype=torch.bfloat16):
        return model(x)
""",
        "\nscaler = torch.amp.GradScaler('cuda', enabled=False)\nwith torch.autocast('cuda', dtype=torch.bfloat16):\n    pass\n",
    ],
    "LINT-05": [
        "\nwith torch.autocast(device_type='cuda', dtype=torch.bfloat16):\n    pass\n",
        "\nwith torch.cuda.amp.autocast(dtype=torch.bfloat16):\n    pass\n",
        "\nwith torch.cuda.amp.autocast(True):\n    pass\n",
    ],
    "LINT-06": [
        "\nfrom torch.nn.parallel import DistributedDataParallel as DDP\nmodel = DDP(torch.nn.Linear(2, 2), device_ids=[0])\n",
    ],
    "LINT-07": [
        # run inside of the try
        """
model = torch.nn.Linear(8, 8)
x = torch.randn(8, 8)
try:
    fast = torch.compile(model)
    fast(x)
except Exception:
    fast = model
""",
        # an old torch without it
        """
try:
    model = torch.compile(torch.nn.Linear(2, 2))
except (ImportError, AttributeError):
    pass
""",
        # no fall-back
        """
try:
    model = torch.compile(torch.nn.Linear(2, 2))
except Exception as e:
    raise RuntimeError("model.py") from e
""",
    ],
    "LINT-08": [
        """
os.environ["GPU_ARCHS"] = "gfx942"
""",
        "import os\nos.environ['HIP_VISIBLE_DEVICES'] = '0'\nimport torch\n",
        "import os\ndef setup():\n    os.environ['HSA_ENABLE_SDMA'] = '0'\nsetup()\nimport torch\n",
        # read when they are used
        "\nos.environ['MASTER_ADDR'] = '127.0.0.1'\nos.environ['NCCL_DEBUG'] = 'INFO'\ntorch.distributed.init_process_group('nccl')\n",
        "\nos.environ['TORCHINDUCTOR_FREEZING'] = '1'\nm = torch.compile(torch.nn.Linear(2, 2))\n",
        # only for the type checker
        "import os\nfrom typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import torch\nos.environ['HIP_VISIBLE_DEVICES'] = '0'\n",
        # read, not set
        "\nprint(os.environ['HIP_VISIBLE_DEVICES'], os.environ.get('HSA_XNACK'))\n",
    ],
    "LINT-09": [
        """
out = torch.empty((n,) + weight.shape, device="cuda")
for i in range(n):
    out[i] = weights[i]
""",
        # a list of layers, a loader, chunks, a recurrence, the CPU
        "\nlayers = torch.nn.ModuleList()\nx = torch.randn(8, device='cuda')\nfor i in range(len(layers)):\n    x = layers[i](x)\n",
        "\nx = torch.randn(1000, device='cuda')\nfor i in range(0, 1000, 100):\n    y = x[i:i + 100] * 2\n",
        "\ncell = torch.nn.GRUCell(8, 8).cuda()\nx = torch.randn(100, 4, 8, device='cuda')\nh = None\nfor t in range(100):\n    h = cell(x[t], h)\n",
        "\nx = torch.randn(1000)\ns = 0.0\nfor v in x:\n    s += v.item()\n",
        "\nx = torch.randn(1000, device='cuda')\ns = 0.0\nfor v in x.tolist():\n    s += v\n",
        "\nx = torch.randn(3, 1000, device='cuda')\nfor c in range(3):\n    x[c] -= 0.5\n",
        """
def train(model, loader, optimizer):
    total = 0.0
    for x, y in loader:
        loss = model(x.cuda()).sum()
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total
""",
    ],
    "LINT-10": [
        # n + 1 edges for n bins, clamped, or not an index
        "\ndef h(p):\n    out = torch.zeros(1000)\n    i = torch.bucketize(p, torch.linspace(0, 1, 1001))\n    out[i] += 1\n",
        "\ndef h(p):\n    out = torch.zeros(1000)\n    i = torch.bucketize(p, torch.linspace(0, 1, 1000)).clamp_(max=999)\n    out[i] += 1\n",
        "\ndef h(p):\n    return torch.bucketize(p, torch.linspace(0, 1, 1000))\n",
    ],
    "LINT-11": [
        # padded rows, another layout, sizes that are not known
        "\nx = torch.randn(64, 8256, device='cuda', dtype=torch.float16)\nw = torch.randn(64, 8256, device='cuda', dtype=torch.float16)\ny = x @ w.t()\n",
        "\nx = torch.randn(64, 8192, device='cuda', dtype=torch.float16)\nw = torch.randn(8192, 64, device='cuda', dtype=torch.float16)\ny = x @ w\n",
        "\ndef f(k):\n    x = torch.randn(64, k, device='cuda')\n    return x @ x.t()\n",
    ],
    "LINT-12": [
        "\ndef batch_size():\n    free, total = torch.cuda.mem_get_info()\n    return int(free * 0.8)\n",
        "\ndef used():\n    return torch.cuda.max_memory_allocated() - torch.cuda.memory_allocated()\n",
    ],
    "LINT-14": [
        "\npool = torch.cuda.MemPool()\nwith torch.cuda.use_mem_pool(pool):\n    x = torch.empty(4, device='cuda')\n",
        "\nimport torch._inductor.config\ntorch._inductor.config.max_autotune_pointwise = True\ntorch._inductor.config.max_autotune = True\n",
        "\nimport onnxruntime\ns = onnxruntime.InferenceSession('m.onnx', providers=['MIGraphXExecutionProvider'])\n",
    ],
    "LINT-13": [
        "\nos.system('export A=1; python3 train.py')\n",
        "\nos.system('A=1 python3 train.py')\n",
        "\nos.system('export A=1 B=2 C')\n",
    ],
    "ENV-63": ["\nclass cuda:\n    pass\ncuda.max_split_size_mb = 1\n"],
    "ENV-64": [
        "\nwith torch.set_grad_enabled(False):\n    pass\ndef train(loss):\n    loss.backward()\n",
        "\ntorch.set_grad_enabled(False)\nprint(1)\ntorch.set_grad_enabled(True)\ndef train(loss):\n    loss.backward()\n",
        "\ndef evaluate(model, x):\n    torch.set_grad_enabled(False)\n    return model(x)\n",
        "\ntorch.set_grad_enabled(False)\ndef tune(model, x):\n    with torch.enable_grad():\n        model(x).sum().backward()\n",
    ],
    "ENV-65": [
        """
def train_step(model, x, level):
    if level >= 1:
        torch.cuda.empty_cache()
    model(x).sum().backward()
def train(model, loader, level):
    for x in loader:
        train_step(model, x, level)
""",
        """
for batch_size in batch_sizes:
    run(batch_size)
    torch.cuda.empty_cache()
""",
        # after each epoch, between models, after running out of memory
        "\ndef train(epochs):\n    for epoch in range(epochs):\n        train_one(epoch)\n        torch.cuda.empty_cache()\n",
        "\nfor name in ['resnet18', 'vit']:\n    run(name)\n    torch.cuda.empty_cache()\n",
        """
def train(model, loader):
    for x in loader:
        try:
            model(x).sum().backward()
        except torch.cuda.OutOfMemoryError:
            torch.cuda.empty_cache()
""",
        "\ntorch.cuda.empty_cache()\n",
    ],
    "ENV-98": [
        "\nimport torch.distributed as dist\ndist.init_process_group(backend='nccl')\nx = torch.ones(1).cuda()\n",
        "\nimport torch.distributed as dist\ndist.init_process_group('cpu:gloo,cuda:nccl')\nx = torch.ones(1).cuda()\n",
        "\nimport torch.distributed as dist\nif torch.cuda.is_available():\n    dist.init_process_group('nccl')\nelse:\n    dist.init_process_group('gloo')\n",
        "\nimport torch.distributed as dist\ndist.init_process_group('gloo')\nx = torch.ones(1)\n",
    ],
}


def whole(source):
    return source if source.startswith("import") else HEAD + source


def table(cases):
    return [pytest.param(rule, source, id=f"{rule}-{i}") for rule, sources in cases.items() for i, source in enumerate(sources)]


def test_every_rule_has_both():
    assert set(FIRES) == set(SILENT) == {f"LINT-{i:02d}" for i in range(1, 15)} | {"ENV-63", "ENV-64", "ENV-65", "ENV-98"}
    listed = subprocess.run([sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, {str(DOCTOR)!r}); import lint.program; print(*lint.registry.RULES)"],
                            capture_output=True, text=True, check=True)
    assert set(listed.stdout.split()) == set(FIRES)
    described = {rule["id"] for rule in json.loads((DOCTOR / "rules.json").read_text(encoding="utf-8"))["rules"]}
    assert set(FIRES) <= described


@pytest.mark.parametrize("rule, source", table(FIRES))
def test_fires(check, rule, source):
    source = whole(source)
    document = check(source)
    assert [f["line"] for f in document["findings"] if f["id"] == rule] == marked(source, "here"), document
    for f in document["findings"]:
        assert f["what"] and f["fix"] and f["column"] >= 1
    assert document["problems"] == []


@pytest.mark.parametrize("rule, source", table(SILENT))
def test_does_not_fire(check, rule, source):
    document = check(whole(source))
    assert [f for f in document["findings"] if f["id"] == rule] == []
    assert document["problems"] == []


# Programs in the manner of the guides' samples, each with the mistakes of its model and no others that the rules know.
SAMPLES = {
    # AMD GPU optimization guide (RX 7000): configuration and training
    "rx7000_training": """
import torch
torch.cuda.set_per_process_memory_fraction(0.9)
torch.cuda.max_split_size_mb = 512  # ENV-63
torch.backends.cudnn.benchmark = True
torch.set_grad_enabled(False)  # ENV-64
scaler = torch.cuda.amp.GradScaler()
for data, target in dataloader:
    data, target = data.to('cuda'), target.to('cuda')
    optimizer.zero_grad()
    with torch.cuda.amp.autocast():
        loss = criterion(model(data), target)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    if step % 10 == 0:
        torch.cuda.empty_cache()  # ENV-65
""",
    "rx7000_parallel": "model = torch.nn.DataParallel(model)  # LINT-06\n",
    # ROCm 6.3 reference (RX 7900)
    "rocm63_analyzer": """
class Analyzer:
    def __init__(self, device='cuda'):
        os.environ['HIP_VISIBLE_DEVICES'] = '0'  # LINT-08
        os.environ['HSA_ENABLE_SDMA'] = '0'  # LINT-08
        os.environ['HSA_ENABLE_INTERRUPT'] = '0'  # LINT-08
        if torch.cuda.is_available():
            self.device = device
    def profile(self, frame):
        prices = torch.tensor(frame['close'].values, dtype=torch.float32, device=self.device)
        volumes = torch.tensor(frame['volume'].values, dtype=torch.float32, device=self.device)
        histogram = torch.histc(prices, bins=1000, min=prices.min(), max=prices.max())
        by_price = torch.zeros_like(histogram)
        for i in range(len(prices)):  # LINT-09
            price_bin = torch.bucketize(prices[i], torch.linspace(prices.min(), prices.max(), 1000))  # LINT-10
            by_price[price_bin] += volumes[i]
        return by_price.cpu().numpy()
""",
    "rocm63_model": """
from torch.cuda.amp import GradScaler
class Model(nn.Module):
    def forward(self, x):
        with torch.cuda.amp.autocast(device_type='cuda', dtype=torch.bfloat16):  # LINT-05
            return self.layers(x)
def mixed():
    scaler = GradScaler()  # LINT-04
    return scaler
""",
    "rocm63_setup": """
def setup():
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(0.9)
    os.environ['PYTORCH_HIP_ALLOC_CONF'] = 'expandable_segments:True,max_split_size_mb:128'  # LINT-08
def compiled(model):
    if hasattr(torch, 'compile'):
        try:
            return torch.compile(model, mode='reduce-overhead', fullgraph=False)  # LINT-07
        except Exception as e:
            print(e)
            return model
    return model
def parallel(model):
    model = model.to(torch.device('cuda:0'))
    if torch.cuda.device_count() > 1:
        model = torch.nn.DataParallel(model, device_ids=[0])  # LINT-06
    return model
def memory():
    device = torch.cuda.current_device()
    total = torch.cuda.get_device_properties(device).total_memory
    reserved = torch.cuda.memory_reserved(device)
    return total - reserved  # LINT-12
def batch():
    free, _ = torch.cuda.mem_get_info(0)
    return int(free * 0.8 / 2**20)
""",
    "rocm63_distributed": """
import torch.distributed as dist
def setup():
    os.environ['MASTER_ADDR'] = '127.0.0.1'
    os.environ['MASTER_PORT'] = '12355'
    dist.init_process_group(backend='gloo', init_method='env://', world_size=1, rank=0)  # ENV-98
    torch.cuda.set_device(0)
def loop():
    for epoch in range(num_epochs):
        if batch_idx % 100 == 0:
            torch.cuda.empty_cache()  # ENV-65
            gc.collect()
""",
    # kernel-optimization skill: its own way to take a time, once and cold
    "skill_timing": """
start = torch.cuda.Event(enable_timing=True)
end = torch.cuda.Event(enable_timing=True)
model = make().cuda()
start.record(); result = model(input); end.record()
torch.cuda.synchronize()
ms = start.elapsed_time(end)  # LINT-02
""",
    # PyFlame ROCm backend manual: its timing waits
    "manual_timing": """
import pyflame as pf
import time
pf.set_device('rocm')
x = pf.randn(10000, 10000)
start = time.time()
for _ in range(100):
    y = pf.matmul(x, x)
pf.synchronize()
elapsed = time.time() - start
""",
}


@pytest.mark.parametrize("name", SAMPLES)
def test_samples_of_the_guides(check, name):
    source = SAMPLES[name]
    expected = {(line.split("# ")[-1].strip(), i) for i, line in enumerate(source.splitlines(), 1) if "# " in line}
    assert {(f["id"], f["line"]) for f in check(source)["findings"]} == expected


def test_environment_of_a_program(check):
    document = check("""import os
os.environ["HIP_VISIBLE_DEVICES"] = "0"
import torch
os.environ.setdefault("NCCL_DEBUG", "INFO")
os.environ.update({"A": str(1)}, B="2")
os.environ |= {"C": "3"}
""")
    assert document["env"] == [
        {"name": "HIP_VISIBLE_DEVICES", "value": "0", "line": 2, "after_import": False},
        {"name": "NCCL_DEBUG", "value": "INFO", "line": 4, "after_import": True},
        {"name": "A", "value": None, "line": 5, "after_import": True},
        {"name": "B", "value": "2", "line": 5, "after_import": True},
        {"name": "C", "value": "3", "line": 6, "after_import": True},
    ]


def test_ignored_lines(check):
    assert check(HEAD + "torch.cuda.max_split_size_mb = 1  # pyflame: ignore\n")["findings"] == []
    assert check(HEAD + "torch.cuda.max_split_size_mb = 1  # pyflame: ignore ENV-63\n")["findings"] == []
    assert len(check(HEAD + "torch.cuda.max_split_size_mb = 1  # pyflame: ignore ENV-64\n")["findings"]) == 1


def test_columns_count_characters(check):
    finding, = check(HEAD + "é = 'ü'; torch.cuda.max_split_size_mb = 1\n")["findings"]
    assert (finding["line"], finding["column"]) == (4, 10)


# name: source, and what the problem says
HOSTILE = {
    "syntax": (b"import torch\nfor x in:\n    pass\n", "line 2"),
    "python 2": (b"import torch\nprint 'hello'\n", "Python 2"),
    "NUL": (b"import torch\n\0\n", "NUL"),
    "binary": (bytes(range(1, 256)) * 40, "parsed"),
    "elf": (b"\x7fELF\x02\x01\x01" + b"\0" * 100, "NUL"),
    "large": (b"x = 1\n" * 2_000_000, "larger"),
    "parentheses": (b"(" * 100_000 + b")" * 100_000, "parse"),
    "brackets": (b"x = " + b"[" * 5_000, "parse"),
    "minus": (b"x = " + b"-" * 200_000 + b"1", "nested"),
    "sum": (b"x = " + b"1+" * 200_000 + b"1", "nested"),
    "attributes": (b"x = a" + b".b" * 200_000, "nested"),
    "notebook": (b'{"cells": [], "metadata": {}, "nbformat": 4}', "notebook"),
    "unknown encoding": (b"# -*- coding: klingon -*-\nimport torch\ntorch.cuda.max_split_size_mb = 1\n", "encoding"),
    "wrong encoding": ("x = 'é'\nimport torch\ntorch.cuda.max_split_size_mb = 1\n".encode("latin-1"), "encoding"),
    "indent": (b"".join(b" " * i + b"if x:\n" for i in range(200)), "parse"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_sources(check, name):
    source, words = HOSTILE[name]
    document = check(source)
    assert document["problems"] and words in " ".join(document["problems"]), document["problems"]
    if "encoding" in name:
        assert [f["line"] for f in document["findings"]] == [3]


@pytest.mark.parametrize("source", [b"", b"\n", b"\xef\xbb\xbfimport torch\n", b"x = '\\ud800'\nimport os\nos.environ['HIP_X'] = '\\ud800'\n", b"import os\nos.environ['A'] = 10**9**9\nx = 1 << 10**9\n",
                                    b"if a:\n    pass\n" + b"elif a:\n    pass\n" * 500, b"x = '\\d'\n", b"#" + b"x" * 100_000,
                                    b"import torch\n" + b"torch.cuda.max_split_size_mb = 1\n" * 3_000])
def test_strange_but_sound_sources(check, source):
    document = check(source)
    assert len(document["findings"]) <= 1000
    json.dumps(document).encode("utf-8")
    assert not document["problems"] or "findings" in document["problems"][0]


def test_what_is_no_file(tmp_path):
    assert lint(tmp_path / "absent.py")["problems"]
    assert lint(tmp_path)["problems"] == ["is a folder; hint: name one Python file"]
    assert lint("/dev/zero")["problems"] == ["is not a plain file"]


def test_functions_that_call_each_other(check):
    source = HEAD + "def a(x):\n    return b(x)\ndef b(x):\n    return a(x)\na(1)\nf = lambda: f()\nf()\n"
    source += "".join(f"def g{i}():\n    return g{i + 1}()\n" for i in range(200)) + "g0()\n"
    assert check(source)["problems"] == []


# --- through the program

LEVELS = {"INFO": 0, "LOW": 0, "MED": 3, "HIGH": 4, "CRIT": 5}


@pytest.fixture
def program_lint(run, tmp_path):
    def call(source, *options, code):
        path = tmp_path / "program.py"
        path.write_bytes(source if isinstance(source, bytes) else source.encode("utf-8"))
        return run("doctor", *options, "lint", path, code=code)

    return call


@pytest.mark.parametrize("source, code", [
    ("import torch\nmodel = torch.nn.Linear(2, 2)\n", 0),
    (HEAD + "torch.cuda.max_split_size_mb = 512\n", 0),
    (HEAD + FIRES["LINT-04"][0], 0),
    (HEAD + FIRES["LINT-06"][0], 3),
    (HEAD + FIRES["LINT-01"][0], 4),
    (HEAD + FIRES["ENV-64"][1], 5),
])
def test_exit_code_is_the_worst_finding(program_lint, source, code):
    program_lint(source, code=code)


def test_report_names_line_and_mend(program_lint):
    text = program_lint(HEAD + FIRES["LINT-05"][0], code=4).stdout
    assert "program.py:5" in text and "LINT-05" in text and 'torch.autocast("cuda"' in text
    document = json.loads(program_lint(HEAD + FIRES["LINT-05"][0], "--json", code=4).stdout)
    finding, = [f for f in document["findings"] if f["id"] == "LINT-05"]
    assert finding["where"].endswith("program.py:5") and finding["severity"] == "HIGH" and finding["fix"].startswith("Write torch.autocast")


@pytest.mark.parametrize("rule", sorted(FIRES))
def test_each_rule_through_the_program(program_lint, rule):
    document = json.loads(program_lint(whole(FIRES[rule][0]), "--json", code=None).stdout)
    finding = next(f for f in document["findings"] if f["id"] == rule)
    assert finding["title"] and finding["what"] and finding["severity"] in LEVELS and ":" in finding["where"]


def test_settings_in_a_program_are_judged(program_lint):
    source = "import os\nos.environ['PYTORCH_HIP_ALLOC_CONF'] = 'expandable_segments:True,max_split_size_mb:64'\nos.environ['TORCH_COMPILE_BACKEND'] = 'inductor'\nimport torch\n"
    document = json.loads(program_lint(source, "--json", code=5).stdout)
    where = {f["id"]: f["where"].rsplit(":", 1)[1] for f in document["findings"]}
    assert where["ENV-50"] == "2" and where["ENV-59"] == "3" and "LINT-08" not in where


@pytest.mark.parametrize("name", sorted(HOSTILE))
def test_hostile_sources_through_the_program(program_lint, name):
    r = program_lint(HOSTILE[name][0], code=None)
    assert r.returncode == 1, "a program that was not read is not sound"
    assert "Traceback" not in r.stdout + r.stderr
    assert HOSTILE[name][1].lower() in " ".join((r.stdout + r.stderr).split()).lower()


def test_no_file_and_no_python(run, tmp_path, program):
    run("doctor", "lint", tmp_path / "absent.py", code=1)
    path = tmp_path / "program.py"
    path.write_text("import torch\n")
    r = run("doctor", "lint", path, code=1, env={"PATH": str(tmp_path)})
    assert "python3" in r.stderr
    dashed = tmp_path / "-x.py"
    dashed.write_text(HEAD + "torch.cuda.max_split_size_mb = 1\n")
    assert "ENV-63" in run("doctor", "--json", "lint", "--", "-x.py", code=None, cwd=tmp_path).stdout


@pytest.mark.parametrize("name, severity", [("train.py", "HIGH"), ("test_train.py", "LOW"), ("tests/train.py", "LOW"), ("bench_x.py", "LOW")])
def test_loops_in_tests_and_benchmarks_are_low(run, tmp_path, name, severity):
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(HEAD + FIRES["LINT-09"][1])
    document = json.loads(run("doctor", "lint", path, "--json", code=None).stdout)
    assert {f["severity"] for f in document["findings"] if f["id"] == "LINT-09"} == {severity}


def test_a_little_warm_up_is_low(run, tmp_path):
    path = tmp_path / "program.py"
    path.write_text(HEAD + """model = torch.nn.Linear(8, 8).cuda()
x = torch.randn(8, 8, device="cuda")
model(x)
torch.cuda.synchronize()
start = time.time()
for _ in range(100):
    y = model(x)
torch.cuda.synchronize()
print((time.time() - start) / 100)
""")
    document = json.loads(run("doctor", "lint", path, "--json", code=None).stdout)
    assert [(f["id"], f["severity"]) for f in document["findings"]] == [("LINT-02", "LOW")]
