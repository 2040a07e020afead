// The contents of a profile: one model for Kineto traces, rocprofv3 and rocpd, so that everything after the importers
// is written once. Times are whole nanoseconds (files have decimals of microseconds; this is exact, a double would not
// be). Names are interned. Each vector has a limit, so that a hostile or endless file uses limited memory.
#pragma once
#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace pyflame::tools::profile {

using NameId = uint32_t;  // 0 is the empty name

class Names {
 public:
  Names() { intern(""); }
  Names(Names&&) = default;
  Names& operator=(Names&&) = default;
  Names(const Names&) = delete;
  Names& operator=(const Names&) = delete;
  // Longer texts are cut.
  NameId intern(std::string_view text);
  const std::string& operator[](NameId id) const { return texts_[id < texts_.size() ? id : 0]; }
  size_t size() const { return texts_.size(); }

 private:
  std::deque<std::string> texts_;
  std::unordered_map<std::string_view, NameId> ids_;
};

enum class GpuKind : uint8_t { kernel, copy, set };
enum class Direction : uint8_t { unknown, host_to_device, device_to_host, device_to_device, peer, host_to_host };
enum class HostMemory : uint8_t { unknown, pageable, pinned };

// A kernel, a copy or a fill on a device.
struct GpuEvent {
  int64_t start = 0, end = 0;
  NameId name = 0;
  int32_t device = 0, stream = 0;
  GpuKind kind = GpuKind::kernel;
  Direction direction = Direction::unknown;
  HostMemory host = HostMemory::unknown;
  bool grid_in_threads = false;              // as in the file; link() converts grids to workgroups
  bool grid_as_run = false;                  // the grid is that of the kernel, not an argument of its launch
  std::array<uint32_t, 3> grid = {0, 0, 0};  // in workgroups; zeros if unknown
  std::array<uint32_t, 3> block = {0, 0, 0};
  int32_t vgpr = -1, lds = -1, scratch = -1;
  int32_t process = 0;                     // the program (or file) to which the correlation numbers belong
  uint64_t correlation = 0, external = 0;  // 0: none
  int64_t bytes = -1;                      // of a copy, a fill or a collective; of a step of PyFlame
  double flops = -1;                       // of a step of PyFlame
  NameId work = 0;                         // the kind of work, if the file has it
  NameId dtype = 0;                        // of a step of PyFlame: of its first input, such as "bf16"
  NameId collective = 0;                   // "all_reduce"; for communication only
  int32_t group = 0;                       // number of ranks in the collective
  int32_t call = -1, op = -1;              // what launched it: indices into calls and ops, set by link()
};

// Work on the CPU that a framework or the user has named: an operator, an annotation, a marker.
struct CpuOp {
  int64_t start = 0, end = 0;
  NameId name = 0;
  NameId dims = 0, types = 0, values = 0;  // as JSON text: [[8,512],[]], ["float","Scalar"], ["","1"]
  bool annotation = false;
  int32_t process = 0;
  uint64_t thread = 0, external = 0;
  int32_t parent = -1;  // the operator around it, set by link()
};

// A call of the runtime or of the driver.
struct ApiCall {
  int64_t start = 0, end = 0;
  NameId name = 0;
  int32_t process = 0;
  uint64_t thread = 0, correlation = 0, external = 0;
  int32_t op = -1;  // the innermost operator that contains it, set by link()
};

// A Python function that ran for long enough to explain a wait of the device (kMinFrame), or a module.
struct Frame {
  int64_t start = 0, end = 0;
  NameId name = 0;
  int32_t process = 0;
  uint64_t thread = 0;
};
constexpr int64_t kMinFrame = 200'000;

// A call of a collective as the trace of one rank has it. The ranks of a job are compared by these (ranks.h).
struct Collective {
  int64_t start = 0, end = 0;
  NameId name = 0;   // "allreduce", or the kernel's name if the trace has no more
  NameId group = 0;  // the process group: its name and its ranks
  NameId dtype = 0;
  int64_t elements = -1, sequence = -1;  // of the input; the number in the group. -1: unknown
  int64_t bytes = -1;
  int32_t process = 0, size = 0;  // number of ranks in the group
};

// A file, or a part of a merged file, that is the trace of one rank. -1: the trace does not name it.
struct RankTrace {
  int32_t process = 0, rank = -1, world = -1;
};

struct Device {
  int32_t id = 0;
  std::string name, gfx;  // "AMD Instinct MI300X", "gfx942"; empty if the file does not have it
  int cus = 0, wave = 0;
  int major = 0, minor = 0;
  int64_t memory_bytes = 0;
};

// Totals without times of single calls: the contents of a statistics file.
struct KernelTotal {
  NameId name = 0;
  GpuKind kind = GpuKind::kernel;
  int64_t calls = 0;
  double total_ns = 0, min_ns = 0, max_ns = 0;
};

struct Counter {
  double sum = 0;
  int64_t count = 0;
};

// What the CPU was measured to do at most, as `pyflame profile` writes it into a trace.
struct Ceilings {
  double gbs = 0;
  std::map<std::string, double, std::less<>> tflops;  // by "fp32"
  std::string text;                                   // the figures, and when they were measured
  double peak(std::string_view dtype) const {
    const auto found = tflops.find(dtype);
    return found == tflops.end() ? 0 : found->second;
  }
};

struct Trace {
  Names names;
  std::vector<GpuEvent> gpu;
  std::vector<CpuOp> ops;
  std::vector<ApiCall> calls;
  std::vector<Frame> frames;
  std::vector<Collective> collectives;
  std::vector<RankTrace> ranks;
  std::vector<Device> devices;
  std::vector<KernelTotal> totals;
  std::map<std::pair<NameId, NameId>, Counter> counters;  // by kernel and counter
  int64_t python_calls = 0;                               // recorded Python functions, of which the long ones are kept
  bool truncated = false;                                 // a file ended before the trace did
  bool own = false;                                       // recorded by pf.profiler, whose steps name their work
  bool on_host = false;                // and its steps have the host's times: of the CPU, or of launches
  bool operators = false;              // on_host, and the work is PyTorch's operators (host_work.h)
  std::optional<Ceilings> ceilings;    // only where on_host
  int64_t dropped = 0;                 // events beyond the limits
  std::vector<std::string> fallbacks;  // what pf.fallbacks() had, the most time first: one sentence each

  bool empty() const { return gpu.empty() && ops.empty() && calls.empty() && totals.empty() && counters.empty(); }
  // Each returns whether there was room.
  bool add(const GpuEvent& e);
  bool add(const CpuOp& op);
  bool add(const ApiCall& call);
  bool add(const Frame& frame);
  bool add(const Collective& collective);
  // Removes the events of these processes. Call it before link().
  void remove_processes(const std::vector<int32_t>& processes);
  Device& device(int32_t id);  // found or added
};

// Times outside of this range are invalid: ±126 years in ns, so that sums of two do not overflow.
constexpr int64_t kMaxTime = int64_t{4} * 1000 * 1000 * 1000 * 1000 * 1000 * 1000;

// Sorts by time, finds the launch call and the operator of each GPU event, and converts grids to workgroups. Call it
// once, after the last file.
void link(Trace& trace);

}  // namespace pyflame::tools::profile
