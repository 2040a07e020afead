"""Writes the synthetic runs of traces.py as JAX's profiler does: a protobuf of planes, lines and events."""


def varint(value):
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(out + bytes([value]))


def field(number, value):
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


class Plane:
    """The tables of names follow the lines, so that a reader cannot go through a plane once only."""

    def __init__(self, name):
        self.name, self.lines, self.names, self.stat_names, self.facts = name, {}, {}, {}, b""

    def number(self, table, name):
        return table.setdefault(name, len(table) + 1)

    def stat(self, name, value):
        key = field(1, self.number(self.stat_names, name))
        # Texts are references to the table of names, as the profiler writes them.
        return key + (field(3, value) if isinstance(value, int) else field(7, self.number(self.stat_names, value)))

    def event(self, line, name, at, length, **stats):
        body = field(1, self.number(self.names, name)) + field(2, round(at * 1e6)) + field(3, round(length * 1e6))
        self.lines.setdefault(line, []).append(body + b"".join(field(4, self.stat(k, v)) for k, v in stats.items()))

    def bytes(self):
        out = field(1, 7) + field(2, self.name)
        for i, (name, events) in enumerate(self.lines.items()):
            out += field(3, field(1, i + 1) + field(2, name) + field(3, 5_000_000) + b"".join(field(4, e) for e in events))
        for name, number in self.names.items():
            out += field(4, field(1, number) + field(2, field(1, number) + field(2, name)))
        for name, number in self.stat_names.items():
            out += field(5, field(1, number) + field(2, field(1, number) + field(2, name)))
        return out + self.facts


def xplane(run):
    device, host = Plane("/device:GPU:0"), Plane("/host:CPU")
    for name, value in (("core_count", run.cus), ("memory_size", 206141652992), ("compute_cap_major", 9), ("compute_cap_minor", 4)):
        device.facts += field(6, device.stat(name, value))
    early = 1000  # microseconds: offsets are not negative
    for i, w in enumerate(run.work):
        if w.launched is not None:
            host.event("Host Threads/1", w.call, w.launched + early, w.launch_length, correlation_id=i + 1, **({"hlo_op": w.op} if w.op else {}))
        line = f"Stream #{w.stream + 2}(Kernel)"
        if w.kind == "copy":
            name = {"DtoH": "MemcpyD2H", "HtoD": "MemcpyH2D"}[w.direction]
            device.event(line, name, w.at + early, w.length, correlation_id=i + 1, memcpy_details=f"kind_src:device kind_dst:pageable size:{w.bytes} dest:0 async:1")
            continue
        details = " grid:{},{},{} block:{},{},{} private_mem:0 group_mem:512 occ_pct:0".format(*w.grid, *w.block)
        device.event(line, w.name + ".kd", w.at + early, w.length, correlation_id=i + 1, kernel_details=details)
        device.event("XLA Ops", "fusion", w.at + early, w.length)  # a derived line
    for c in run.cpu:
        step = {"step_num": int(c.name.split("#")[1])} if c.name.startswith("ProfilerStep#") else {}
        host.event("python", "train" if step else c.name, c.at + early, c.length, **step)
    host.event("python", "$data.py:12 load", early, 300)
    empty = Plane("/device:GPU:1")
    return b"".join(field(1, p.bytes()) for p in (Plane("/host:metadata"), device, empty, host)) + field(4, "hostname")
