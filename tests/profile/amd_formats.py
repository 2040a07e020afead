"""Writes the synthetic runs of traces.py in the older and rarer formats of AMD's profilers."""
import csv
import json

from traces import ns

COPIES = ["NONE", "HOST_TO_HOST", "HOST_TO_DEVICE", "DEVICE_TO_HOST", "DEVICE_TO_DEVICE"]


def rocprofv3_json(run, counters=False, times=True):
    """What rocprofv3 --output-format json writes. `counters`: with the counter SQ_WAVES of each dispatch; `times`: with timed dispatches."""
    api = sorted({w.call for w in run.work} | {c.name for c in run.cpu if c.kind == "call"})
    kernels = sorted({w.name for w in run.work if w.kind == "kernel"})
    kinds = [{"kind": "NONE", "operations": []}, {"kind": "HIP_RUNTIME_API", "operations": api},
             {"kind": "MARKER_CORE_API", "operations": ["roctxMarkA", "roctxRangePushA"]},
             {"kind": "MEMORY_COPY", "operations": ["MEMORY_COPY_" + c for c in COPIES]},
             {"kind": "KERNEL_DISPATCH", "operations": ["KERNEL_DISPATCH_NONE", "KERNEL_DISPATCH_ENQUEUE", "KERNEL_DISPATCH_COMPLETE"]}]
    agents = [{"size": 312, "id": {"handle": 9000}, "type": 1, "cu_count": 192, "name": "AMD EPYC", "product_name": "AMD EPYC", "node_id": 0, "logical_node_id": 0},
              {"size": 312, "id": {"handle": 9001}, "type": 2, "cu_count": run.cus, "wave_front_size": 64, "name": run.gfx, "product_name": run.device,
               "node_id": 1, "logical_node_id": 1, "mem_banks": [{"heap_type": 1, "size_in_bytes": 206141652992}]}]
    symbols = [{"size": 0, "kernel_id": 0, "kernel_name": "", "arch_vgpr_count": 0, "accum_vgpr_count": 0, "formatted_kernel_name": "0"}]
    symbols += [{"size": 88, "kernel_id": i + 1, "kernel_name": name + ".kd", "arch_vgpr_count": 64, "accum_vgpr_count": 4, "formatted_kernel_name": name}
                for i, name in enumerate(kernels)]
    records = {"kernel_dispatch": [], "hip_api": [], "hsa_api": [], "marker_api": [], "rccl_api": [], "memory_copy": []}
    counted, messages = [], []

    def record(kind, operation, at, length, correlation):
        return {"size": 48, "kind": kind, "operation": operation, "thread_id": 4242, "correlation_id": {"internal": correlation, "external": 0},
                "start_timestamp": ns(at), "end_timestamp": ns(at + length)}

    for i, w in enumerate(run.work):
        number = i + 1
        if w.launched is not None:
            records["hip_api"].append(record(1, api.index(w.call), w.launched, w.launch_length, number))
        if w.kind == "copy":
            to_host = w.direction == "DtoH"
            records["memory_copy"].append(record(3, 3 if to_host else 2, w.at, w.length, number) | {
                "src_agent_id": {"handle": 9001 if to_host else 9000}, "dst_agent_id": {"handle": 9000 if to_host else 9001}, "bytes": w.bytes,
                "stream_id": {"handle": w.stream}})
            continue
        info = {"size": 72, "agent_id": {"handle": 9001}, "queue_id": {"handle": 1 + w.stream}, "kernel_id": kernels.index(w.name) + 1, "dispatch_id": number,
                "private_segment_size": w.scratch, "group_segment_size": 0, "workgroup_size": dict(zip("xyz", w.block)),
                "grid_size": {a: g * b for a, g, b in zip("xyz", w.grid, w.block)}}
        if times:
            records["kernel_dispatch"].append(record(4, 2, w.at, w.length, number) | {"dispatch_info": info, "stream_id": {"handle": w.stream}})
        if counters:
            counted.append({"dispatch_data": {"start_timestamp": ns(w.at), "end_timestamp": ns(w.at + w.length), "dispatch_info": info},
                            "records": [{"counter_id": {"handle": 77}, "value": 50.0}, {"counter_id": {"handle": 77}, "value": 51.0}]})
    for i, c in enumerate(run.cpu):
        if c.kind == "call":
            records["hip_api"].append(record(1, api.index(c.name), c.at, c.length, 5000 + i))
        else:
            records["marker_api"].append(record(2, 1, c.at, c.length, 5000 + i))
            messages.append({"key": 5000 + i, "value": c.name})
    tool = {"metadata": {"pid": 4242, "init_time": 1, "fini_time": 2, "command": ["./program"]}, "agents": agents,
            "counters": [{"id": {"handle": 77}, "name": "SQ_WAVES"}],
            "strings": {"callback_records": [], "buffer_records": kinds, "marker_api": messages}, "kernel_symbols": symbols,
            "callback_records": {"counter_collection": counted}, "buffer_records": records}
    return {"rocprofiler-sdk-tool": [tool]}


def rocprof_v1_json(run):
    """What rocprof --sys-trace writes: all values are texts."""
    out = ['{ "traceEvents":[{}\n']
    for pid, label in ((0, "Markers and Ranges"), (2, "CPU HIP API"), (3, "CPU HSA API"), (1, "COPY"), (6, "GPU0"), (518, "GPU Barriers0")):
        out.append(',{"args":{"name":"%s"},"ph":"M","pid":%d,"name":"process_name","sort_index":%d}\n' % (label, pid, pid))

    def event(section, lane, name, at, length, **args):
        args = {"BeginNs": ns(at), "EndNs": ns(at + length), "pid": 4242, "tid": 4242, "Name": name, **args, "DurationNs": round(length * 1000)}
        head = {"ph": "X", "name": name, "pid": str(section), "tid": str(lane), "ts": str(ns(at) // 1000), "dur": str(max(1, int(length)))}
        out.append("," + json.dumps(head | {"args": {k: str(v) for k, v in args.items()}}) + "\n")

    for w in run.work:
        if w.launched is not None:
            event(2, 4242, w.call, w.launched, w.launch_length, args="( stream(0))", Data="")
        place = {"dev-id": w.device, "queue-id": 0, "stream-id": w.stream}
        if w.kind == "copy":
            event(1, w.stream, {"DtoH": "CopyDeviceToHost", "HtoD": "CopyHostToDevice"}[w.direction], w.at, w.length, **place)
        else:
            event(6 + w.device, w.stream, w.name, w.at, w.length, **place)
            event(518, w.stream, "<barrier packet>", w.at, w.length, **place)
        out.append(',{"ts":1,"ph":"s","cat":"DataFlow","id":1,"pid":2,"tid":4242,"name":"dep"}\n')
    for c in run.cpu:
        event(2 if c.kind == "call" else 0, 4242, c.name, c.at, c.length)
    return "".join(out) + '],\n"otherData": {\n    "CMD": "rocminfo"\n  }\n}'


PASS_COLUMNS = ["Dispatch_ID", "Kernel_Name", "GPU_ID", "Grid_Size", "Workgroup_Size", "LDS_Per_Workgroup", "Scratch_Per_Workitem", "Arch_VGPR", "Accum_VGPR",
                "SGPR", "wave_size", "obj", "SQ_WAVES", "TCC_HIT_sum", *[f"TCC_MISS[{i}]" for i in range(600)], "Start_Timestamp", "End_Timestamp"]


def write_rocprof_compute(run, folder):
    """The folder of rocprof-compute: each file measures all dispatches again, with other counters."""
    kernels = [w for w in run.work if w.kind == "kernel"]
    for name in ("SQ_IFETCH_LEVEL", "pmc_perf", "timestamps"):
        with open(folder / (name + ".csv"), "w", newline="") as f:
            rows = csv.writer(f)
            rows.writerow(PASS_COLUMNS)
            for i, w in enumerate(kernels):
                grid = w.grid[0] * w.block[0]
                rows.writerow([i, w.name + " [clone .kd]", 2, grid, w.block[0], 0, w.scratch, 64, 4, 32, 64, "0x7f"] + [8.0 * (i + 1), 100.0] + [5] * 600
                              + [ns(w.at), ns(w.at + w.length)])
    with open(folder / "sysinfo.csv", "w", newline="") as f:
        rows = csv.writer(f)
        rows.writerow(["workload_name", "command", "gpu_model", "gpu_arch", "cu_per_gpu"])
        rows.writerow(["run", "./program -n 3,4", "MI300X_A1", run.gfx, run.cus])
    return folder
