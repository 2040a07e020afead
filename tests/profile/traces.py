"""A synthetic run of a program on a GPU, written in the formats of several profilers.

One description (what ran when, and what the CPU did) gives a PyTorch trace, a folder of rocprofv3's CSV files and its database, so
that the same answers can be asked of all three. No file here was recorded on a device.
"""
import csv
import gzip
import json
import os
import sqlite3
from dataclasses import dataclass, field

BASE_NS = 1_700_000_000_000_000  # where the clocks of these files stand

GEMM = ("Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x256x64_MI16x16x1_SN_LDSB0_AFC0_AFEM1_AFEM1_ASEM1_CLR1_CADS0_ISA942_WG32_8_1")
ADD = ("void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul> >"
       "(int, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul>)")
ATTENTION = "void ck_tile::kentry<256, 2, ck_tile::FmhaFwdKernel<ck_tile::FmhaFwdTilePartitioner<256>>>(ck_tile::FmhaFwdArgs)"
ALL_REDUCE = "ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)"
NORM = ("void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float>(int, float, float const*, float const*, "
        "float const*, float*, float*, float*)")


@dataclass
class Work:
    """On the device, in microseconds from the start."""
    name: str
    at: float
    length: float
    stream: int = 0
    kind: str = "kernel"  # kernel, copy
    direction: str = ""  # of a copy: HtoD, DtoH
    grid: tuple = (2048, 1, 1)  # workgroups
    block: tuple = (256, 1, 1)
    bytes: int = 0
    scratch: int = 0
    device: int = 0
    launched: float = None  # by a call that began then
    launch_length: float = 5
    call: str = "hipLaunchKernel"
    op: str = ""
    dims: list = None
    types: list = None
    values: list = None
    extra: dict = field(default_factory=dict)


@dataclass
class Cpu:
    """On the CPU."""
    name: str
    at: float
    length: float
    kind: str = "op"  # op, annotation, call, python


@dataclass
class Run:
    work: list = field(default_factory=list)
    cpu: list = field(default_factory=list)
    device: str = "AMD Instinct MI300X"
    gfx: str = "gfx942"
    cus: int = 304


def training(steps=3, with_steps=True, length=1000.0):
    """Each step of 1,000 us: 300 GEMM, 100 add, 50 nothing (the CPU is late), 150 attention, an all-reduce of 200 of which 100 lie
    beside the attention, 100 nothing (the CPU waited for the device), 100 layer norm, 10 copy to the host, 90 nothing (data loader)."""
    run = Run()
    for i in range(steps):
        t = i * length
        run.work += [
            Work(GEMM, t, 300, launched=t, op="aten::mm", dims=[[4096, 4096], [4096, 4096]], types=["c10::BFloat16", "c10::BFloat16"],
                 call="hipExtModuleLaunchKernel"),
            Work(ADD, t + 300, 100, launched=t + 5, op="aten::add", dims=[[4096, 4096], [4096, 4096], []],
                 types=["float", "float", "Scalar"]),
            # The launch is issued when the device has run dry.
            Work(ATTENTION, t + 450, 150, launched=t + 440, op="aten::_flash_attention_forward",
                 dims=[[4, 1024, 16, 128]] * 3, types=["c10::BFloat16"] * 3),
            Work(ALL_REDUCE, t + 500, 200, stream=1, launched=t + 460, grid=(64, 1, 1), op="nccl:all_reduce",
                 extra={"Collective name": "allreduce", "In msg nelems": 1 << 20, "dtype": "BFloat16", "Group size": 8}),
            Work(NORM, t + 800, 100, launched=t + 795, op="aten::native_layer_norm", dims=[[4096, 1024], [], [1024], [1024], []],
                 types=["float", "ScalarList", "float", "float", "Scalar"]),
            Work("Memcpy DtoH (Device -> Pageable)", t + 900, 10, kind="copy", direction="DtoH", bytes=4096, launched=t + 806,
                 call="hipMemcpyAsync"),
        ]
        run.cpu += [
            Cpu("aten::slow_op", t + 20, 418),  # in operators from the second launch to the third
            Cpu("hipStreamSynchronize", t + 470, 235, kind="call"),  # ends at 705, after the all-reduce
            Cpu("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", t + 911, 80, kind="annotation"),
        ]
        if with_steps:
            run.cpu.append(Cpu(f"ProfilerStep#{i + 2}", t, length, kind="annotation"))
    return run


# What the report must say of each step of training(): microseconds.
TRAINING = {"GEMM": 300, "elementwise": 100, "attention": 100, "communication": 150, "normalisation": 100, "memory": 10}
TRAINING_GAPS = {"launching": 50, "synchronise": 100, "data_loading": 90}


# --- PyTorch

def kineto(run, device_properties=True):
    events, external, correlation = [], 100, 1000
    pid, tid = 4242, 4242

    def us(t):
        return BASE_NS / 1000 + t

    for c in run.cpu:
        cat = {"op": "cpu_op", "annotation": "user_annotation", "call": "cuda_runtime", "python": "python_function"}[c.kind]
        external += 1
        events.append({"ph": "X", "cat": cat, "name": c.name, "pid": pid, "tid": tid, "ts": us(c.at), "dur": c.length,
                       "args": {"External id": external} if c.kind != "call" else {"cbid": 1, "correlation": 900_000 + external}})
    for w in run.work:
        external += 1
        correlation += 1
        if w.launched is not None:
            if w.op:
                args = {"External id": external, "Ev Idx": external}
                for key, value in (("Input Dims", w.dims), ("Input type", w.types), ("Concrete Inputs", w.values)):
                    if value is not None:
                        args[key] = value
                events.append({"ph": "X", "cat": "cpu_op", "name": w.op, "pid": pid, "tid": tid, "ts": us(w.launched - 1),
                               "dur": w.launch_length + 2, "args": args})
            events.append({"ph": "X", "cat": "cuda_runtime", "name": w.call, "pid": pid, "tid": tid, "ts": us(w.launched),
                           "dur": w.launch_length, "args": {"External id": external, "cid": 5, "correlation": correlation}})
            events.append({"ph": "s", "id": correlation, "pid": pid, "tid": tid, "ts": us(w.launched), "cat": "ac2g", "name": "ac2g"})
        args = {"External id": external, "device": w.device, "stream": w.stream, "correlation": correlation, **w.extra}
        if w.kind == "copy":
            args.update({"bytes": w.bytes, "memory bandwidth (GB/s)": w.bytes / w.length / 1e3})
        else:
            # This call is given the grid in work-items, and the profiler writes what the call was given.
            scale = w.block if w.call == "hipExtModuleLaunchKernel" else (1, 1, 1)
            args.update({"grid": [g * s for g, s in zip(w.grid, scale)], "block": list(w.block)})
        events.append({"ph": "X", "cat": "kernel" if w.kind == "kernel" else "gpu_memcpy", "name": w.name, "pid": w.device, "tid": w.stream,
                       "ts": us(w.at), "dur": w.length, "args": args})
    trace = {"schemaVersion": 1, "baseTimeNanoseconds": 0, "displayTimeUnit": "ms"}
    if device_properties:
        trace["deviceProperties"] = [{"id": 0, "name": run.device, "totalGlobalMem": 206141652992, "computeMajor": 9, "computeMinor": 4,
                                      "warpSize": 64, "numSms": run.cus}]
    trace["traceEvents"] = events
    return trace


def write_kineto(run, path, **kwargs):
    text = json.dumps(kineto(run, **kwargs))
    with (gzip.open(path, "wt") if str(path).endswith(".gz") else open(path, "w")) as f:
        f.write(text)
    return path


# --- rocprofv3, CSV

KERNEL_COLUMNS = ["Kind", "Agent_Id", "Queue_Id", "Stream_Id", "Thread_Id", "Dispatch_Id", "Kernel_Id", "Kernel_Name", "Correlation_Id",
                  "Start_Timestamp", "End_Timestamp", "LDS_Block_Size", "Scratch_Size", "VGPR_Count", "Accum_VGPR_Count", "SGPR_Count",
                  "Workgroup_Size_X", "Workgroup_Size_Y", "Workgroup_Size_Z", "Grid_Size_X", "Grid_Size_Y", "Grid_Size_Z"]
OLD_KERNEL_COLUMNS = ["Kind", "Agent_Id", "Queue_Id", "Kernel_Id", "Kernel_Name", "Correlation_Id", "Start_Timestamp", "End_Timestamp",
                      "Private_Segment_Size", "Group_Segment_Size", "Workgroup_Size_X", "Workgroup_Size_Y", "Workgroup_Size_Z",
                      "Grid_Size_X", "Grid_Size_Y", "Grid_Size_Z"]


def ns(t):
    return BASE_NS + round(t * 1000)


def _table(path, columns, rows):
    with open(path, "w", newline="") as f:
        writer = csv.writer(f, quoting=csv.QUOTE_NONNUMERIC)
        writer.writerow(columns)
        writer.writerows(rows)


def write_csv(run, folder, pid=4242, columns=KERNEL_COLUMNS, agent="Agent {}"):
    """Writes a folder host/pid_*.csv, as rocprofv3 --sys-trace --output-format csv does."""
    folder = os.path.join(folder, "host")
    os.makedirs(folder, exist_ok=True)
    name = os.path.join(folder, str(pid))
    kernels, copies, calls, markers = [], [], [], []
    for i, w in enumerate(run.work):
        number = i + 1
        node = agent.format(w.device + 1)
        if w.launched is not None:
            calls.append(["HIP_RUNTIME_API", w.call, pid, pid, number, ns(w.launched), ns(w.launched + w.launch_length)])
        if w.kind == "copy":
            kind = {"DtoH": "MEMORY_COPY_DEVICE_TO_HOST", "HtoD": "MEMORY_COPY_HOST_TO_DEVICE"}[w.direction]
            copies.append(["MEMORY_COPY", kind, w.stream, node, "Agent 0", number, ns(w.at), ns(w.at + w.length)])
            continue
        value = {"Kind": "KERNEL_DISPATCH", "Agent_Id": node, "Queue_Id": 1 + w.stream, "Stream_Id": w.stream, "Thread_Id": pid, "Dispatch_Id": number,
                 "Kernel_Id": number, "Kernel_Name": w.name, "Correlation_Id": number, "Start_Timestamp": ns(w.at), "End_Timestamp": ns(w.at + w.length),
                 "LDS_Block_Size": 0, "Scratch_Size": w.scratch, "VGPR_Count": 64, "Accum_VGPR_Count": 4, "SGPR_Count": 32, "Private_Segment_Size": 0, "Group_Segment_Size": 0}
        for k, axis in enumerate("XYZ"):
            value[f"Workgroup_Size_{axis}"] = w.block[k]
            value[f"Grid_Size_{axis}"] = w.block[k] * w.grid[k]
        kernels.append([value[c] for c in columns])
    for i, c in enumerate(run.cpu):
        row = [c.name, pid, pid, 5000 + i, ns(c.at), ns(c.at + c.length)]
        if c.kind == "call":
            calls.append(["HIP_RUNTIME_API", *row])
        else:
            markers.append(["MARKER_CORE_API", *row])
    api = ["Domain", "Function", "Process_Id", "Thread_Id", "Correlation_Id", "Start_Timestamp", "End_Timestamp"]
    _table(name + "_kernel_trace.csv", columns, kernels)
    _table(name + "_memory_copy_trace.csv", ["Kind", "Direction", "Stream_Id", "Source_Agent_Id", "Destination_Agent_Id", "Correlation_Id",
                                             "Start_Timestamp", "End_Timestamp"], copies)
    _table(name + "_hip_api_trace.csv", api, calls)
    _table(name + "_marker_api_trace.csv", api, markers)
    _table(name + "_agent_info.csv", ["Node_Id", "Logical_Node_Id", "Agent_Type", "Cu_Count", "Wave_Front_Size", "Name", "Vendor_Name", "Product_Name", "Model_Name"],
           [[0, 0, "CPU", 192, 0, "AMD EPYC", "AMD", "AMD EPYC", ""], [1, 1, "GPU", run.cus, 64, run.gfx, "AMD", run.device, ""]])
    return folder


# --- rocprofv3, database

def write_rocpd(run, path, suffix="_0000abcd", tracks=False):
    """`tracks`: where it ran stands in a table of tracks, as in version 4 of the schema."""
    if os.path.exists(path):
        os.remove(path)
    db = sqlite3.connect(path)
    s = suffix
    place = "track_id INTEGER" if tracks else "nid INTEGER, pid INTEGER, tid INTEGER, agent_id INTEGER, queue_id INTEGER, stream_id INTEGER"
    at = "track_id INTEGER" if tracks else "nid INTEGER, pid INTEGER, tid INTEGER"
    copy_place = "track_id INTEGER" if tracks else "nid INTEGER, pid INTEGER, tid INTEGER, queue_id INTEGER, stream_id INTEGER"
    db.executescript(f"""
        CREATE TABLE "rocpd_metadata{s}" (id INTEGER PRIMARY KEY, tag TEXT, value TEXT);
        CREATE TABLE "rocpd_string{s}" (id INTEGER PRIMARY KEY, guid TEXT, string TEXT UNIQUE);
        CREATE TABLE "rocpd_info_agent{s}" (id INTEGER PRIMARY KEY, guid TEXT, nid INTEGER, pid INTEGER, type TEXT, absolute_index INTEGER,
            logical_index INTEGER, type_index INTEGER, uuid INTEGER, name TEXT, model_name TEXT, vendor_name TEXT, product_name TEXT);
        CREATE TABLE "rocpd_info_kernel_symbol{s}" (id INTEGER PRIMARY KEY, guid TEXT, kernel_name TEXT, display_name TEXT,
            group_segment_size INTEGER, private_segment_size INTEGER, sgpr_count INTEGER, arch_vgpr_count INTEGER, accum_vgpr_count INTEGER);
        CREATE TABLE "rocpd_track{s}" (id INTEGER PRIMARY KEY, guid TEXT, nid INTEGER, pid INTEGER, tid INTEGER, agent_id INTEGER,
            queue_id INTEGER, stream_id INTEGER, name_id INTEGER);
        CREATE TABLE "rocpd_info_category{s}" (id INTEGER PRIMARY KEY, guid TEXT, name TEXT);
        CREATE TABLE "rocpd_event{s}" (id INTEGER PRIMARY KEY, guid TEXT, category_id INTEGER, stack_id INTEGER, parent_stack_id INTEGER, correlation_id INTEGER);
        CREATE TABLE "rocpd_region{s}" (id INTEGER PRIMARY KEY, guid TEXT, {at}, start BIGINT, "end" BIGINT, name_id INTEGER, event_id INTEGER);
        CREATE TABLE "rocpd_kernel_dispatch{s}" (id INTEGER PRIMARY KEY, guid TEXT, {place}, kernel_id INTEGER, dispatch_id INTEGER,
            start BIGINT, "end" BIGINT, private_segment_size INTEGER, group_segment_size INTEGER, workgroup_size_x INTEGER, workgroup_size_y INTEGER,
            workgroup_size_z INTEGER, grid_size_x INTEGER, grid_size_y INTEGER, grid_size_z INTEGER, region_name_id INTEGER, event_id INTEGER);
        CREATE TABLE "rocpd_memory_copy{s}" (id INTEGER PRIMARY KEY, guid TEXT, {copy_place}, start BIGINT, "end" BIGINT, name_id INTEGER,
            dst_agent_id INTEGER, src_agent_id INTEGER, size INTEGER, region_name_id INTEGER, event_id INTEGER);
        CREATE VIEW rocpd_kernel_dispatch AS SELECT * FROM "rocpd_kernel_dispatch{s}";
    """)
    ids = {}

    def string(text):
        if text not in ids:
            ids[text] = len(ids) + 1
            db.execute(f'INSERT INTO "rocpd_string{s}" VALUES (?, "g", ?)', (ids[text], text))
        return ids[text]

    def row(table, **values):
        names = ", ".join(f'"{k}"' for k in values)
        return db.execute(f'INSERT INTO "{table}{s}" ({names}) VALUES ({", ".join("?" * len(values))})', tuple(values.values())).lastrowid

    def category(name):
        if not tracks:
            return string(name)
        found = db.execute(f'SELECT id FROM "rocpd_info_category{s}" WHERE name = ?', (name,)).fetchone()
        return found[0] if found else row("rocpd_info_category", name=name)

    def event(kind, correlation):
        return row("rocpd_event", category_id=category(kind), correlation_id=correlation)

    def where(agent, stream):
        if not tracks:
            return {"nid": 1, "pid": 1, "tid": 1, "agent_id": agent, "queue_id": 1 + stream, "stream_id": stream}
        return {"track_id": row("rocpd_track", nid=1, pid=1, tid=1, agent_id=agent, queue_id=1 + stream, stream_id=stream)}

    row("rocpd_info_agent", type="CPU", absolute_index=0, name="AMD EPYC", product_name="AMD EPYC")
    row("rocpd_info_agent", type="GPU", absolute_index=1, name=run.gfx, product_name=run.device)
    symbols = {}

    def region(kind, name, start, length, correlation):
        place_ = {"track_id": row("rocpd_track", nid=1, pid=1, tid=1)} if tracks else {"nid": 1, "pid": 1, "tid": 1}
        row("rocpd_region", **place_, start=ns(start), end=ns(start + length), name_id=string(name), event_id=event(kind, correlation))

    for i, w in enumerate(run.work):
        number = i + 1
        if w.launched is not None:
            region("HIP_RUNTIME_API", w.call, w.launched, w.launch_length, number)
        if w.kind == "copy":
            kind = {"DtoH": "MEMORY_COPY_DEVICE_TO_HOST", "HtoD": "MEMORY_COPY_HOST_TO_DEVICE"}[w.direction]
            place_ = where(2, w.stream)
            place_.pop("agent_id", None)
            row("rocpd_memory_copy", **place_, start=ns(w.at), end=ns(w.at + w.length), name_id=string(kind),
                dst_agent_id=1 if w.direction == "DtoH" else 2, src_agent_id=2 if w.direction == "DtoH" else 1, size=w.bytes, event_id=event("MEMORY_COPY", number))
            continue
        if w.name not in symbols:
            symbols[w.name] = row("rocpd_info_kernel_symbol", kernel_name=w.name + ".kd", display_name=w.name, arch_vgpr_count=64, accum_vgpr_count=4)
        sizes = {f"workgroup_size_{a}": w.block[k] for k, a in enumerate("xyz")} | {f"grid_size_{a}": w.block[k] * w.grid[k] for k, a in enumerate("xyz")}
        row("rocpd_kernel_dispatch", **where(2, w.stream), kernel_id=symbols[w.name], dispatch_id=number, start=ns(w.at), end=ns(w.at + w.length),
            private_segment_size=0, group_segment_size=0, event_id=event("KERNEL_DISPATCH", number), **sizes)
    for i, c in enumerate(run.cpu):
        region("HIP_RUNTIME_API" if c.kind == "call" else "MARKER_CORE_API", c.name, c.at, c.length, 5000 + i)
    db.commit()
    db.close()
    return path
