"""Synthetic recorded machines: trees in the format of src/tools/system/host.h.

None of them was recorded on hardware. They are made from what is published about each kind of machine: the keys of KFD's topology
files and their encodings, PCI ids, compute units, memory and link speeds of the products, the layout of sysfs, modprobe and ROCm's
installation folders. A machine is a few lines over the builders of this file; MACHINES names them all.
"""
import json
import pathlib

GIB = 1 << 30
RENDER, VIDEO = 109, 44
USER = {"uid": 1000, "name": "user", "groups": [{"id": 1000, "name": "user"}, {"id": VIDEO, "name": "video"}, {"id": RENDER, "name": "render"}]}
LIBRARIES = {"amdhip64": "{0}", "hsa-runtime64": "1", "rocblas": "4", "hipblaslt": "0", "MIOpen": "1", "rccl": "1", "hiprtc": "{0}"}
ROCBLAS = ["gfx908", "gfx90a", "gfx942", "gfx1030", "gfx1100", "gfx1101", "gfx1102", "gfx1200", "gfx1201"]
MIOPEN = ["gfx90878", "gfx90a68", "gfx90a6e", "gfx942130", "gfx103036"]
# KFD's bits of an io_link: no 32-bit and no 64-bit atomics.
NO_ATOMICS = 0xC
XGMI, PCIE = 11, 2


def version_number(gfx):
    """ "gfx90a" → 90010: two decimal digits each for minor and stepping."""
    digits = gfx[3:]
    return int(digits[:-2]) * 10000 + int(digits[-2], 16) * 100 + int(digits[-1], 16)


class Machine:
    """Files and the record beside them. Contents are text; a path given twice keeps the last contents."""

    def __init__(self, sockets=1, cpus=32, memory=128, kernel="6.8.0-45-generic", os=("ubuntu", "22.04", "Ubuntu 22.04.5 LTS"), cmdline="iommu=pt",
                 rocm="6.3.0", driver="6.10.5", user=USER, env=None, shm=64, home="ext4", memlock="unlimited"):
        self.files, self.links, self.nodes, self.listed, self.unreadable = {}, {}, {}, {}, {}
        self.user, self.env = user, {"HOME": "/home/user", "PATH": "/usr/bin:/bin", **(env or {})}
        self.spaces = {"/dev/shm": {"type": "tmpfs", "bytes": int(shm * GIB), "free": int(shm * GIB)}, "/home/user": {"type": home, "bytes": 1 << 40, "free": 1 << 39}}
        self.kernel, self.sockets, self.next_node, self.gpus = kernel, sockets, 0, []
        self.file("/etc/os-release", f'PRETTY_NAME="{os[2]}"\nID={os[0]}\nVERSION_ID="{os[1]}"\n' + ("ID_LIKE=debian\n" if os[0] == "ubuntu" else ""))
        self.file("/proc/sys/kernel/osrelease", kernel)
        self.file("/proc/cmdline", f"BOOT_IMAGE=/vmlinuz-{kernel} root=/dev/sda1 ro {cmdline}")
        self.file("/proc/version", f"Linux version {kernel} (buildd@host) (gcc 11.4.0) #1 SMP")
        self.file("/proc/meminfo", f"MemTotal:       {memory * GIB // 1024} kB\nMemFree:        {memory * GIB // 2048} kB")
        self.file("/proc/cpuinfo", "processor\t: 0\nvendor_id\t: AuthenticAMD\nflags\t\t: fpu vme sse2 avx2 svm")
        self.file("/proc/self/status", "Name:\tpyflame\nSeccomp:\t0")
        self.memlock(memlock)
        self.file("/proc/1/cgroup", "0::/init.scope")
        self.file("/proc/self/mountinfo", "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw")
        self.file("/proc/sys/kernel/numa_balancing", "0")
        self.file("/proc/sys/vm/compaction_proactiveness", "20")
        self.file("/proc/sys/vm/compact_unevictable_allowed", "1")
        self.file("/sys/kernel/mm/transparent_hugepage/enabled", "[always] madvise never")
        self.file("/sys/devices/system/cpu/online", f"0-{cpus - 1}")
        self.file("/sys/devices/system/cpu/smt/active", "1")
        self.file("/sys/devices/system/node/online", f"0-{sockets - 1}" if sockets > 1 else "0")
        for cpu in range(min(cpus, 4)):
            self.file(f"/sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor", "performance")
        self.file("/sys/class/iommu/ivhd0/amd-iommu/version", "2")
        if driver is not None:
            self.driver(driver)
        if rocm:
            self.rocm(rocm)
        if driver is not None:
            for _ in range(sockets):
                self.cpu_node(cpus // sockets)

    # --- the tree

    def file(self, path, text):
        self.files[path] = text if text.endswith("\n") else text + "\n"
        return self

    def drop(self, prefix):
        """Everything at and below a path is gone."""
        for table in (self.files, self.links, self.nodes, self.listed, self.unreadable, self.spaces):
            for path in [p for p in table if p == prefix or p.startswith(prefix + "/")]:
                del table[path]
        return self

    def record(self):
        return {"schema": "pyflame.record/1", "env": self.env, "user": self.user, "nodes": self.nodes, "links": self.links, "listed": self.listed,
                "unreadable": self.unreadable, "filesystems": self.spaces}

    def write(self, folder):
        folder = pathlib.Path(folder)
        for path, text in self.files.items():
            target = folder / path.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text, encoding="utf-8")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "pyflame-record.json").write_text(json.dumps(self.record(), indent=1), encoding="utf-8")
        return folder

    # --- settings and software

    def memlock(self, value):
        return self.file("/proc/self/limits", "Limit                     Soft Limit           Hard Limit           Units     \n"
                         f"Max locked memory         {value:<20} {value:<20} bytes     \n"
                         "Max open files            65536                1048576              files     ")

    def device(self, path, gid=RENDER, group="render", mode="0660"):
        self.nodes[path] = {"mode": mode, "uid": 0, "gid": gid, "owner": "root", "group": group}
        return self

    def driver(self, version):
        """The amdgpu module: of AMD's package with a version of its own, or ("") of the kernel."""
        self.file("/sys/module/amdgpu/initstate", "live")
        if version:
            self.file("/sys/module/amdgpu/version", version)
            self.file(f"/usr/src/amdgpu-{version}-2125197.22.04/dkms.conf", 'PACKAGE_NAME="amdgpu"')
            self.listed[f"/lib/modules/{self.kernel}/updates/dkms"] = ["amdgpu.ko"]
        else:
            self.listed[f"/lib/modules/{self.kernel}/kernel/drivers/gpu/drm/amd/amdgpu"] = ["amdgpu.ko.zst"]
        return self.device("/dev/kfd")

    def rocm(self, version, default=True):
        root, major = f"/opt/rocm-{version}", version.split(".")[0]
        number = "".join(f"{int(p):02d}" for p in version.split(".")).lstrip("0")
        self.file(root + "/.info/version", version + "-39")
        names = []
        for stem, so in LIBRARIES.items():
            so = so.format(major)
            names += [f"lib{stem}.so", f"lib{stem}.so.{so}", f"lib{stem}.so.{so}.{version.split('.')[1]}.{number}"]
        self.listed[root + "/lib"] = names
        archs = ROCBLAS + (["gfx950", "gfx1150", "gfx1151"] if int(major) >= 7 else [])
        for library in ("rocblas", "hipblaslt"):
            self.listed[f"{root}/lib/{library}/library"] = [f"TensileLibrary_lazy_{g}.dat" for g in archs]
        self.listed[root + "/share/miopen/db"] = [f"{g}.HIP.fdb.txt" for g in MIOPEN]
        if default:
            self.links["/opt/rocm"] = root
        return self

    def python(self, packages, hip=None, bundled=True):
        """A virtual environment with these packages: {"torch": "2.5.1+rocm6.2"}."""
        site = "/home/user/venv/lib/python3.10/site-packages"
        self.env["VIRTUAL_ENV"] = "/home/user/venv"
        self.listed.setdefault(site, [])
        for name, version in packages.items():
            self.listed[site] += [name, f"{name}-{version}.dist-info"]
        if hip:
            self.file(site + "/torch/version.py", f"__version__ = '{packages['torch']}'\ndebug = False\ncuda = None\nhip = '{hip}'")
            if bundled:
                self.listed[site + "/torch/lib"] = ["libamdhip64.so", "libhsa-runtime64.so"]
        return self

    # --- the topology

    def node(self, **properties):
        number = self.next_node
        self.next_node += 1
        folder = f"/sys/class/kfd/kfd/topology/nodes/{number}"
        self.file(folder + "/gpu_id", str(properties.pop("gpu_id", 0)))
        self.file(folder + "/properties", "".join(f"{key} {value}\n" for key, value in properties.items()))
        return number, folder

    def cpu_node(self, cores):
        return self.node(cpu_cores_count=cores, simd_count=0, mem_banks_count=1, caches_count=cores, io_links_count=1, p2p_links_count=0, cpu_core_id_base=0, simd_id_base=0,
                         max_waves_per_simd=0, lds_size_in_kb=0, wave_front_size=0, array_count=0, simd_per_cu=0, gfx_target_version=0, vendor_id=0, device_id=0, location_id=0,
                         domain=0, drm_render_minor=0, num_xcc=0, max_engine_clk_ccompute=3700)

    def link(self, folder, kind, number, source, target, type_, weight, bandwidth=0, flags=1):
        self.file(f"{folder}/{kind}/{number}/properties", f"type {type_}\nversion_major 0\nversion_minor 0\nnode_from {source}\nnode_to {target}\nweight {weight}\n"
                  f"min_latency 0\nmax_latency 0\nmin_bandwidth {bandwidth}\nmax_bandwidth {bandwidth}\nrecommended_transfer_size 0\nflags {flags}")

    def gpu(self, gfx, cus, device, bus, vram, revision=0, function=0, part=0, card=None, xccs=1, socket=0, hive=0, path=(), speed="16.0 GT/s PCIe", width=16, slot=None, integrated=False,
            atomics=True, level="auto", partition=None, memory=None, ue=0, pci_class="0x030000", clock=2400, power=300, own_device=True, cpu_cores=0, used=None):
        """A GPU: its KFD node, its PCI device with the bridges above it, its render node."""
        cdna = not gfx.startswith("gfx1")
        minor, address = 128 + len(self.gpus), f"0000:{bus:02x}:00.{function}"
        unique = 0 if integrated else 0x1000_0000_0000_0000 + (bus << 8 | function) * 0x10001
        simds = 4 if cdna else 2
        node, folder = self.node(gpu_id=1000 + 7 * len(self.gpus), cpu_cores_count=cpu_cores, simd_count=cus * simds, mem_banks_count=1, caches_count=100, io_links_count=1, p2p_links_count=0,
                                 cpu_core_id_base=0, simd_id_base=2147487744, max_waves_per_simd=8 if cdna else 16, lds_size_in_kb=64, gds_size_in_kb=0, num_gws=64,
                                 wave_front_size=64 if cdna else 32, array_count=32 if cdna else 12, simd_arrays_per_engine=1, cu_per_simd_array=10, simd_per_cu=simds,
                                 max_slots_scratch_cu=32, gfx_target_version=version_number(gfx), vendor_id=4098, device_id=device, location_id=part << 28 | bus << 8 | function, domain=0,
                                 drm_render_minor=minor, hive_id=hive, num_sdma_engines=2, num_sdma_xgmi_engines=14 if hive else 0, num_sdma_queues_per_engine=8, num_cp_queues=24,
                                 max_engine_clk_fcompute=clock, local_mem_size=0, fw_version=170, capability=671588992, debug_prop=1495, sdma_fw_version=24, unique_id=unique,
                                 num_xcc=xccs, max_engine_clk_ccompute=3700)
        self.file(folder + "/mem_banks/0/properties", f"heap_type 1\nsize_in_bytes {int(vram * GIB)}\nflags 0\nwidth 8192\nmem_clk_max 1300")
        self.link(folder, "io_links", 0, node, socket, PCIE, 20, flags=1 if atomics else 1 | NO_ATOMICS)
        self.device(f"/dev/dri/renderD{minor}")
        self.gpus.append((node, folder, address))
        if own_device:
            self.pci(address, device, path, revision=revision, pci_class=pci_class, numa=socket if self.sockets > 1 else -1, speed=speed, width=width, slot=slot)
            base = f"/sys/bus/pci/devices/{address}"
            total = int((card or vram) * GIB)
            bar = 256 << 20 if integrated else total
            for name, value in {"mem_info_vram_total": total, "mem_info_vram_used": int((used if used is not None else 0.02) * GIB), "mem_info_vis_vram_total": total, "mem_info_gtt_total": 16 * GIB,
                                "mem_info_gtt_used": 8 << 20, "gpu_busy_percent": 0, "power_dpm_force_performance_level": level, "unique_id": f"{unique:016x}"}.items():
                self.file(f"{base}/{name}", str(value))
            self.file(base + "/resource", f"0x{bus << 36:016x} 0x{(bus << 36) + bar - 1:016x} 0x000000000014220c\n0x0 0x0 0x0")
            if partition:
                self.file(base + "/current_compute_partition", partition)
                self.file(base + "/current_memory_partition", memory or "NPS1")
            if cdna:
                for block in ("umc", "sdma", "gfx", "xgmi_wafl"):
                    self.file(f"{base}/ras/{block}_err_count", f"ue: {ue if block == 'umc' else 0}\nce: 0")
            hwmon = f"{base}/hwmon/hwmon{len(self.gpus)}"
            for name, value in {"power1_cap": power, "power1_cap_default": power, "power1_cap_max": power}.items():
                self.file(f"{hwmon}/{name}", str(value * 1000000))
            for i, (label, now, limit) in enumerate((("edge", 42, 100), ("junction", 46, 110), ("mem", 40, 105)), 1):
                self.file(f"{hwmon}/temp{i}_label", label)
                self.file(f"{hwmon}/temp{i}_input", str(now * 1000))
                self.file(f"{hwmon}/temp{i}_crit", str(limit * 1000))
            self.links[base + "/driver"] = "/sys/bus/pci/drivers/amdgpu"
        return self

    def pci(self, address, device, path=(), revision=0, pci_class="0x030000", numa=-1, speed="16.0 GT/s PCIe", width=16, slot=None, vendor="0x1002"):
        """The device and the bridges on its way. A Radeon card's own switch runs at full speed inside whatever the slot gives; `slot` is what the slot gives."""
        for number, part in enumerate((*path, address)):
            base, own = f"/sys/bus/pci/devices/{part}", part == address
            card = own or number > 0  # the first bridge is the root port
            now, lanes = (speed, width) if own or not slot else slot
            self.file(base + "/vendor", vendor if card else "0x1022")
            self.file(base + "/device", f"0x{device if own else 0x1478 + number if card else 0x14ab:04x}")
            self.file(base + "/class", pci_class if own else "0x060400")
            for name, value in {"current_link_speed": now, "max_link_speed": speed, "current_link_width": lanes, "max_link_width": width}.items():
                self.file(f"{base}/{name}", str(value))
            self.links[base] = "/sys/devices/pci0000:00/" + "/".join((*path, address)[:number + 1])
        base = f"/sys/bus/pci/devices/{address}"
        self.file(base + "/revision", f"0x{revision:02x}")
        self.file(base + "/numa_node", str(numa))
        group = 10 + len(self.gpus)
        self.links[base + "/iommu_group"] = f"/sys/kernel/iommu_groups/{group}"
        self.file(f"/sys/kernel/iommu_groups/{group}/type", "identity")
        return self

    def mesh(self, bandwidth=64000, weight=15, groups=None):
        """xGMI from each GPU to each other one (of its group)."""
        for i, (node, folder, _) in enumerate(self.gpus):
            number = 1
            for j, (other, _, _) in enumerate(self.gpus):
                if i != j and (groups is None or any(i in g and j in g for g in groups)):
                    self.link(folder, "io_links", number, node, other, XGMI, weight, bandwidth)
                    number += 1
        return self

    def no_driver(self):
        """What is left in /sys when the module is not loaded: the PCI devices and nothing of the driver."""
        self.drop("/sys/class/kfd").drop("/sys/module/amdgpu").drop("/dev")
        self.spaces["/dev/shm"] = {"type": "tmpfs", "bytes": 64 * GIB, "free": 64 * GIB}
        for _, _, address in self.gpus:
            base = f"/sys/bus/pci/devices/{address}"
            self.links.pop(base + "/driver", None)
            for path in [p for p in self.files if p.startswith(base + "/")]:
                if any(word in path for word in ("mem_info", "gpu_busy", "power_dpm", "hwmon", "ras/", "partition")):
                    del self.files[path]
        return self

    def container(self, kind="docker"):
        self.file({"docker": "/.dockerenv", "podman": "/run/.containerenv"}[kind], "")
        self.file("/proc/self/status", "Name:\tpyflame\nSeccomp:\t2")
        self.spaces["/dev/shm"] = {"type": "tmpfs", "bytes": 64 << 20, "free": 64 << 20}
        return self


def radeon(i):
    """The PCI path to a Radeon card: the root port and the two halves of the card's switch."""
    return f"0000:00:0{i + 1}.1", f"0000:{3 * i + 1:02x}:00.0", f"0000:{3 * i + 2:02x}:00.0"


def instinct(sockets=2, **options):
    options = {"cpus": 192, "memory": 2048, "cmdline": "iommu=pt pci=realloc=off", **options}
    return Machine(sockets=sockets, **options)


def desktop(**options):
    return Machine(**{"cpus": 32, "memory": 64, "memlock": "8388608", "shm": 32, **options})


def mi300x(count=8, **options):
    gpu = {key: options.pop(key) for key in ("level", "ue", "partition", "used", "speed", "slot", "atomics") if key in options}
    gpu.setdefault("partition", "SPX")
    m = instinct(**options)
    for i in range(count):
        m.gpu("gfx942", 304, 0x74A1, 0x05 + 0x20 * i, 192, xccs=8, socket=i // 4 if count > 4 else 0, hive=0x7B1E5, pci_class="0x120000", clock=2100, power=750,
              path=(f"0000:{0x04 + 0x20 * i:02x}:01.1",), **{"speed": "32.0 GT/s PCIe", **gpu})
    return m.mesh()


def mi300x_cpx(by_function=False):
    """One card as eight devices. Kernels tell them apart by the upper bits of the location, or by the function."""
    m = instinct(sockets=1)
    for part in range(8):
        m.gpu("gfx942", 38, 0x74A1, 0x05, 24, card=192, **{"function" if by_function else "part": part}, xccs=1, hive=0x7B1E5, pci_class="0x120000", clock=2100, power=750, path=("0000:04:01.1",), speed="32.0 GT/s PCIe",
              partition="CPX", memory="NPS4", own_device=part == 0)
    return m


def mi100(**options):
    """Four cards of PCIe with a bridge between each two: three links of 92 GB/s a card, both directions together."""
    m = instinct(**{"cpus": 64, "memory": 512, "sockets": 1, **options})
    for i in range(4):
        m.gpu("gfx908", 120, 0x738C, 0x23 + 0x20 * i, 32, revision=1, hive=0x1A2B, pci_class="0x038000", clock=1502, power=290, path=(f"0000:{0x20 + 0x20 * i:02x}:01.1",))
    return m.mesh(bandwidth=46000)


def mi250x():
    m = instinct(cpus=64, memory=512, sockets=1, rocm="6.3.0")
    for i in range(8):
        m.gpu("gfx90a", 110, 0x7408, 0xC1 + 4 * i, 64, revision=1, hive=0x5EED, pci_class="0x038000", clock=1700, power=560, path=(f"0000:{0xC0 + 4 * i:02x}:00.0",))
    m.mesh(bandwidth=50000)
    for i in range(0, 8, 2):  # the two halves of a card have four links
        for a, b in ((i, i + 1), (i + 1, i)):
            node, folder, _ = m.gpus[a]
            m.link(folder, "io_links", 1 + (b if b < a else b - 1), node, m.gpus[b][0], XGMI, 15, 200000)
    return m


def rx7900xt(count=2, igpu=True, igpu_first=False, **options):
    gpu = {key: options.pop(key) for key in ("level", "slot", "atomics", "used") if key in options}
    m = desktop(**options)

    def integrated():
        m.gpu("gfx1036", 2, 0x164E, 0x0F, 0.5, revision=0xC9, integrated=True, path=("0000:00:08.1",), speed="16.0 GT/s PCIe", clock=2200, power=15)
    if igpu and igpu_first:
        integrated()
    for i in range(count):
        m.gpu("gfx1100", 84, 0x744C, 3 * i + 3, 20, revision=0xCC, path=radeon(i), power=315, **gpu)
    if igpu and not igpu_first:
        integrated()
    for i, (node, folder, _) in enumerate(m.gpus):
        for j, (other, _, _) in enumerate(m.gpus):
            if i != j:
                m.link(folder, "p2p_links", j, node, other, PCIE, 40)
    return m


def rx9070xt(**options):
    m = desktop(**{"rocm": "6.4.1", "driver": "6.12.12", "os": ("ubuntu", "24.04", "Ubuntu 24.04.2 LTS"), **options})
    return m.gpu("gfx1201", 64, 0x7550, 3, 16, revision=0xC0, path=radeon(0), speed="32.0 GT/s PCIe", power=304)


def strix_halo():
    m = desktop(rocm="7.2.0", driver="", kernel="6.17.0-5-generic", memory=128, os=("ubuntu", "24.04", "Ubuntu 24.04.3 LTS"))
    return m.gpu("gfx1151", 40, 0x1586, 0xC1, 0.5, revision=0xC1, integrated=True, path=("0000:00:08.1",), clock=2900, power=120)


def no_module():
    """A fresh Ubuntu server: the card is there, the package with the driver is not."""
    return rx7900xt(1, igpu=False, driver="").drop("/lib/modules").no_driver()


def blacklisted():
    m = rx7900xt(1, igpu=False).no_driver()
    return m.file("/etc/modprobe.d/blacklist-amdgpu.conf", "# for passing the card through\nblacklist amdgpu\n")


def no_permission():
    return rx7900xt(1, igpu=False, user={"uid": 1000, "name": "user", "groups": [{"id": 1000, "name": "user"}]})


def container_without_kfd():
    m = mi300x(user={"uid": 0, "name": "root", "groups": [{"id": 0, "name": "root"}]}).container()
    return m.drop("/dev/kfd").drop("/dev/dri")


def container_without_group():
    return mi300x(user={"uid": 1000, "name": "user", "groups": [{"id": 1000, "name": "user"}]}).container()


def stacked_filters():
    return rx7900xt(2, igpu=False, env={"ROCR_VISIBLE_DEVICES": "1", "HIP_VISIBLE_DEVICES": "1"})


def override(gfx, cus, device, revision, vram, value):
    m = desktop(env={"HSA_OVERRIDE_GFX_VERSION": value})
    return m.gpu(gfx, cus, device, 3, vram, revision=revision, path=radeon(0), power=230)


def wsl():
    m = Machine(rocm="6.3.0", driver=None, kernel="5.15.167.4-microsoft-standard-WSL2", cmdline="WSL_ROOT_INIT=1")
    return m.device("/dev/dxg", 0, "root", "0666")


def no_atomics():
    """The driver has the card, KFD left it out: an old board's slot behind the chip set."""
    m = rx7900xt(1, igpu=False)
    node = m.gpus[0][1]
    return m.drop(node)


def shared_memory():
    return mi300x().container()


def numa_balancing():
    return mi300x().file("/proc/sys/kernel/numa_balancing", "1")


def two_versions():
    m = rx7900xt(1, igpu=False).rocm("6.1.2", default=False)
    return m.python({"torch": "2.7.1+rocm6.2.4", "pytorch_triton_rocm": "3.3.1"}, hip="6.2.41134-65d174c3e")


def graphs_corrupt():
    """The releases of the HIP runtime that replay graphs wrongly on gfx942."""
    return mi300x(rocm="7.2.1", driver="6.16.13")


def unknown_gfx():
    return desktop().gpu("gfx1399", 48, 0x7AAA, 3, 24, path=radeon(0))


def without_rocm():
    return rx7900xt(1, igpu=False, rocm=None)


def mismatch():
    """A framework built against another major release, without libraries of its own."""
    return rx7900xt(1, igpu=False).python({"torch": "2.1.0"}, hip="5.6.31061-8c743ae5d", bundled=False)


MACHINES = {
    "mi300x": mi300x,
    "mi300x_cpx": mi300x_cpx,
    "mi300x_cpx_older_kernel": lambda: mi300x_cpx(by_function=True),
    "mi100": mi100,
    "mi250x": mi250x,
    "rx7900xt": rx7900xt,
    "rx7900xt_igpu_first": lambda: rx7900xt(1, igpu_first=True),
    "rx9070xt": rx9070xt,
    "strix_halo": strix_halo,
    "no_module": no_module,
    "blacklisted": blacklisted,
    "no_permission": no_permission,
    "container_without_kfd": container_without_kfd,
    "container_without_group": container_without_group,
    "stacked_filters": stacked_filters,
    "override_same_family": lambda: override("gfx1031", 40, 0x73DF, 0xC1, 12, "10.3.0"),
    "override_mi100_as_mi200": lambda: mi100(env={"HSA_OVERRIDE_GFX_VERSION": "9.0.10"}),
    "override_other_family": lambda: override("gfx1102", 32, 0x7480, 0xCF, 8, "10.3.0"),
    "wsl": wsl,
    "no_atomics": no_atomics,
    "slow_link": lambda: rx7900xt(1, igpu=False, slot=("8.0 GT/s PCIe", 4)),
    "low_clocks": lambda: rx7900xt(1, igpu=False, level="low"),
    "memory_errors": lambda: mi300x(ue=3),
    "shared_memory": shared_memory,
    "numa_balancing": numa_balancing,
    "nfs_home": lambda: mi300x(home="nfs"),
    "two_versions": two_versions,
    "graphs_corrupt": graphs_corrupt,
    "unknown_gfx": unknown_gfx,
    "without_rocm": without_rocm,
    "mismatch": mismatch,
}
