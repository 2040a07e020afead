// The whole interface between the engine and a backend. The compiler cuts a window's graph into groups. For each group
// it asks the backend's implementations, best first, and takes the first one that accepts. The implementation makes an
// Executable, which is run many times with different pointers.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "pyflame/record/ir.h"

namespace pyflame {

// What the nodes of a group have in common (compile/patterns.def has one entry per kind).
enum class GroupKind : uint8_t {
  Single,    // one node of class Other
  Loop,      // elementwise nodes and reductions over one iteration space; see below
  Epilogue,  // nodes[0] is a matmul or conv2d; the others are Map nodes over its output's shape; see also Group::summed
};

// Role of a node in a Loop group. S is the iteration space, divided at `split`: S[0, split) are the outer dims
// ("rows"), S[split, rank) are the inner dims ("one row").
enum class Role : uint8_t {
  Map,        // elementwise over S (operands broadcast to S with stride 0)
  RowReduce,  // a Reduce node whose reduced axes (those of size > 1) are exactly the inner dims
  RowMap,     // elementwise over the outer dims: its output has S's rank with size 1 in the inner dims
  ColReduce,  // a Reduce node whose reduced axes are exactly the outer dims; no node of the group reads it
};

// Nodes that one implementation computes together.
struct Group {
  GroupKind kind = GroupKind::Single;
  std::vector<NodeId> nodes;  // in a valid order
  std::vector<Role> roles;    // Loop: one per node
  Dims space;                 // Loop: S. Operand shapes are aligned to S from the right, as in broadcasting
  int split = 0;              // Loop: number of outer dims (== rank if there is no reduction)
  // Epilogue: the operand of the matmul (0 or 1) whose sum over the depth is one of the nodes, or -1. The gradient of a
  // layer's weight is a matmul with the output's gradient, whose sum is the bias's gradient: libraries read it once for both.
  int summed = -1;
  // Values that nothing outside this group reads: their bindings have no memory, so they must not be stored.
  Indexed<BindingId, bool> elided;
  // The nodes with their operands aligned to the space. Empty: they are as in the graph.
  std::vector<Node> aligned;

  const Node& node(const Graph& g, size_t i) const { return aligned.empty() ? g.nodes[nodes[i]] : aligned[i]; }
  const Node& root(const Graph& g) const { return node(g, 0); }
  bool stores(const Operand& o) const { return !elided.contains(o.binding) || !elided[o.binding]; }
};

// A group as implementations get it.
struct Problem {
  const Graph& graph;
  const Group& group;
  const Node& node(size_t i) const { return group.node(graph, i); }
  const Node& root() const { return node(0); }
  size_t size() const { return group.nodes.size(); }
};

// Of each binding: pointer to the first element of its operands (null when elided).
using Pointers = IndexedView<BindingId, void* const>;

// What an Executable gets for one run.
struct RunContext {
  Pointers bindings;
  Params params;
  void* workspace;        // workspace() bytes, 64-byte aligned
  int device = 0;         // index of the device
  void* fault = nullptr;  // where kernels of the device report a value that they cannot use (kernels/device/fault.h),
  int32_t site = 0;       // with this number, which identifies the step
  template <class T>
  T* ptr(const Operand& o) const {
    return static_cast<T*>(bindings[o.binding]);
  }
  const Param& param(const Operand& o) const { return params[o.param]; }
};

// A group that is ready to run. It must not keep references to the Problem. Any thread may call run(), but only one at a time. It
// throws Error on failure (such as an IndexError for an index out of range) and must then leave memory outside its outputs intact.
class Executable {
 public:
  virtual ~Executable() = default;
  virtual void run(const RunContext& ctx) = 0;
  virtual size_t workspace() const { return 0; }
  virtual bool capturable() const { return true; }
  // From now on a run waits for the compiler, where something else would compute meanwhile. So it can be timed.
  virtual void end_stand_in() {}
  // Whether it computes the same bits in every run. If not, it is used only if the op's attribute any_order allows it.
  virtual bool repeats() const { return true; }
};

// Empty: accepted. Otherwise the reason of the refusal, for pf.explain().
using Refusal = std::optional<std::string>;

// What an implementation has besides what it lists: a library's other algorithms. There may be far more than can be measured. So each has a
// place in an order that is the same in every process with the same versions, and a search goes on behind the last place that an
// earlier one has looked at. The most promising come first.
class Enumeration {
 public:
  virtual ~Enumeration() = default;
  virtual size_t size() const = 0;
  // The configuration at a place. None: it cannot compute the problem, or it is at an earlier place or in the list.
  virtual std::optional<std::string> at(size_t place) const = 0;
};

// Further ways in which an implementation can compute a problem, besides the one that it takes by itself: tile sizes, a
// library's other algorithms. Each has a text ("tile=64x64,splits=2", "algorithm=3"), which means the same as long as PyFlame's and
// the library's versions do. Tuning measures them.
class Configurations {
 public:
  virtual std::vector<std::string> list(const Problem& p) const = 0;  // the most promising first
  // Whether there is an enumeration besides the list. Tuning measures it last, with a part of its budget.
  virtual bool enumerates() const { return false; }
  // It may ask a library. Null: there is none for this problem. It must not keep references to the Problem.
  virtual std::unique_ptr<Enumeration> enumerate(const Problem&) const { return nullptr; }
  // Error: there is none such.
  virtual std::unique_ptr<Executable> make(const Problem& p, const std::string& configuration) const = 0;
  // Whether make() has it. The list may leave some out.
  virtual bool has(const Problem& p, const std::string& configuration) const;
  // Those that differ in one part from this one, or from the implementation's own choice (""). They need not be in the list.
  virtual std::vector<std::string> neighbours(const Problem&, const std::string& /*configuration*/) const { return {}; }
  // Whether a text means the same for problems of other sizes that have it.
  virtual bool for_any_size() const { return false; }

 protected:
  ~Configurations() = default;  // they live as long as the process
};
// How many of the parts "name=value", which commas separate, are in one of two texts alone, or have other values.
size_t differing_parts(std::string_view a, std::string_view b);

// "one of tile=8x8 tile=16x16", for errors.
std::string one_of(const std::vector<std::string>& configurations);

// Those of a library, by functions.
class LibraryConfigurations final : public Configurations {
 public:
  using List = std::vector<std::string> (*)(const Problem&);
  using Make = std::unique_ptr<Executable> (*)(const Problem&, const std::string& configuration);
  using Enumerate = std::unique_ptr<Enumeration> (*)(const Problem&);

  constexpr LibraryConfigurations(List lists, Make makes, Enumerate enumerate_all = nullptr)
      : list_(lists), make_(makes), enumerate_(enumerate_all) {}
  std::vector<std::string> list(const Problem& p) const override { return list_(p); }
  bool enumerates() const override { return enumerate_ != nullptr; }
  std::unique_ptr<Enumeration> enumerate(const Problem& p) const override {
    return enumerate_ ? enumerate_(p) : nullptr;
  }
  std::unique_ptr<Executable> make(const Problem& p, const std::string& configuration) const override {
    return make_(p, configuration);
  }

 private:
  List list_;
  Make make_;
  Enumerate enumerate_;
};

struct Plugin;  // compile/plugins.h

// One implementation. accepts() says why it refuses a problem, or nothing; make() makes what computes it.
struct Impl {
  const char* name;  // "cpu.tile", "onednn.matmul", "reference"
  Refusal (*accepts)(const Problem&);
  std::unique_ptr<Executable> (*make)(const Problem&);
  const Configurations* configurations = nullptr;
  const Plugin* plugin = nullptr;  // not null: it comes from outside and stands in for accepts and make, which are null
};

// How many ops and how many bytes of results a window may have.
struct Limits {
  int first_ops, max_ops;  // window limits: after a sync point, and the largest
  int64_t first_bytes, max_bytes;
};

// What kernels reported (kernels/device/fault.h). A site is the number of one step in one run.
struct FaultReport {
  int32_t site = 0, kind = 0;  // site 0: nothing was reported here yet
  int64_t value = 0, limit = 0;
};
// The reports of one device.
struct FaultTable {
  int32_t claims = 0, unused = 0;  // how often an entry was taken
  std::array<FaultReport, 64> reports;
};

// Launches several steps as one. Steps are added in order, each with the earlier steps that must come before it.
// Afterwards, each can be brought up to date with other pointers and params. Nothing runs before launch().
class Replay {
 public:
  virtual ~Replay() = default;
  // Null: a step that launches nothing. Throws Error if the step cannot be part of a replay.
  virtual void add(Executable* e, const RunContext& ctx, std::span<const size_t> after) = 0;
  virtual void finish() = 0;
  virtual bool update(size_t step, Executable& e, const RunContext& ctx) = 0;  // false: the replay must be built anew
  virtual bool may_update() = 0;  // false: it is still running, and this device reads arguments late
  virtual void launch() = 0;
  virtual size_t nodes() const = 0;
};

// A point in the order of a device's work. The device notes when it reaches it.
class Moment {
 public:
  virtual ~Moment() = default;
  virtual bool passed() = 0;  // does not wait
  virtual void wait() = 0;
  virtual double ms_since(const Moment& earlier) const = 0;  // of the same device; both have passed
};

// What is queued afterwards waits until the host releases it, but for no longer than 50 ms: so the host may wait for such work by mistake,
// and only loses time.
class Pause {
 public:
  virtual ~Pause() = default;  // releases it
  // Whether the device was still waiting, or had not come so far. The second call says the same.
  virtual bool release() = 0;
};

// Bytes on their way to the host, behind all work that was queued before.
class Download {
 public:
  virtual ~Download() = default;
  virtual const void* wait() = 0;  // until they have arrived; they stay as long as this object
};

// The memory of a device that the host cannot address. All work on a device runs in the order in which it was queued
// (one stream), so freed memory may be reused at once. Any thread may call. Failures are Errors; their kind is Device
// if the device is lost for good.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  virtual void* allocate(size_t nbytes) = 0;                              // null if there is no more
  virtual void release(void* p) = 0;                                      // waits for work that may still use it
  virtual void from_host(void* to, const void* from, size_t nbytes) = 0;  // `from` may be changed after the return
  virtual void to_host(void* to, const void* from, size_t nbytes) = 0;    // complete after the return
  virtual std::unique_ptr<Download> download(const void* from, size_t nbytes) = 0;  // does not wait
  virtual void copy(void* to, const void* from, size_t nbytes) = 0;  // within the device, in stream order
  virtual void fill(void* to, uint8_t value, size_t nbytes) = 0;     // in stream order
  // From another device of the same type, in the stream order of both; false: only possible through the host.
  virtual bool copy_from(void* to, DeviceMemory& other, const void* from, size_t nbytes) = 0;
  virtual void wait() = 0;                             // until the device is idle
  virtual void room(size_t* free, size_t* total) = 0;  // bytes; used by all processes
  virtual void* fault() = 0;                           // a FaultTable on the device, zero at first; RunContext::fault
  virtual void read_fault(FaultTable* pinned) = 0;     // queues a copy; it has arrived when a later mark has passed
  virtual FaultTable* pinned_report() = 0;             // host memory for that, never freed
  virtual void pin_ahead(size_t nbytes) = 0;           // pins host memory for this many bytes in flight
  virtual uint64_t mark() = 0;                         // identifies all work that was queued so far
  virtual bool passed(uint64_t mark) = 0;              // whether that work is done; does not wait
  virtual std::unique_ptr<Moment> moment() = 0;        // after all work that was queued so far
  virtual std::unique_ptr<Pause> pause() = 0;
  virtual std::unique_ptr<Replay> make_replay() = 0;
  virtual std::string replay_unsafe() const = 0;  // why replays are known to be wrong here; empty: they are right
};

// Facts about a device, in the order in which they are printed.
struct DeviceInfo {
  std::string name, architecture;
  uint64_t total_memory = 0, free_memory = 0;  // bytes
  int64_t compute_units = 0, wave_size = 0;
  std::vector<std::pair<std::string, std::string>> extra;
};

// A result (N, C, H, W) that is about to be recorded.
struct ImageResult {
  OpId op;
  DType dtype;
  const Dims& shape;
  std::array<const Dims*, 2> ins;  // shapes of the op's first inputs; null: there is none, or it is a number
  MemoryFormat given;              // channels_last where an input is
};

// Recurrent layers that are about to be recorded: x is [steps, batch, inputs].
struct RecurrentCase {
  RecurrentAttrs attrs;
  DType dtype;
  int64_t steps, batch, inputs;
};

// One kind of device: its implementations, its memory, and what the engine asks about it.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual const char* name() const = 0;
  virtual int device_count() const { return 1; }
  virtual std::string absence() const { return ""; }                     // why device_count() is 0
  virtual DeviceMemory* memory(int /*index*/) const { return nullptr; }  // null: the host's memory
  virtual void* stream(int /*index*/) const { return nullptr; }          // in which the device's work is queued
  virtual DeviceInfo info(int index) const;                              // of the host, unless overridden
  virtual std::string libraries(int /*index*/) const { return ""; }      // names and versions of those that are used
  // Implementations for a group, best first; the last one accepts everything.
  virtual std::span<const Impl> impls(const Problem& p) const = 0;
  // Whether the last one is the slow reference loops. Then groups are split to avoid it, and users are told about it.
  virtual bool last_is_slow() const { return true; }
  virtual bool fuses() const { return true; }  // false: every node is its own group (reference)
  // For how many nodes of a loop, from its first one on, a kernel has registers. A longer loop is cut there.
  virtual size_t most_nodes(const Problem& loop) const { return loop.size(); }
  virtual bool executes() const { return true; }                          // false: it only plans (null)
  virtual bool has_bias_gradient_epilogue(DType) const { return false; }  // whether an entry accepts Group::summed
  // The memory format of an op's result, if the op keeps the layout of its input. A backend that computes channels-last images without
  // a copy says so here.
  virtual MemoryFormat preferred_format(const ImageResult&) const { return MemoryFormat::contiguous; }
  // Whether loops over channels-last images have their dims in the order of memory (N, H, W, C).
  virtual bool loops_in_memory_order() const { return false; }
  // Whether the op is recorded as elementwise ops and reductions, because the backend fuses them with what precedes and follows.
  virtual bool composes(OpId) const { return false; }
  // Whether convolutions take volumes. If not, they are recorded as those of images (ops/conv3d.cpp).
  virtual bool convolves_volumes() const { return false; }
  // Whether a device multiplies matrices of these two dtypes of 8-bit floats. If not, they are decoded first (ops/scaled_mm.cpp).
  virtual bool multiplies_float8(int /*index*/, DType, DType) const { return false; }
  // Whether there are kernels for weights in GGUF's blocks (ops/quantized.cpp).
  virtual bool computes_with_blocks() const { return false; }
  // The order in which quantized_linear takes weights fastest: tiles (tensor/weight_tiles.h), or planes (tensor/weight_planes.h).
  virtual bool blocks_in_planes() const { return false; }
  // For how many rows of the input it is faster to multiply with blocks than to decode them first.
  virtual int64_t most_rows_of_blocks() const { return INT64_MAX; }
  // How many bytes the op `recurrent` keeps for its gradient. None: there is no implementation, for the reason in `why`; then the layers are
  // recorded step by step.
  virtual std::optional<int64_t> recurrent_bytes(int /*index*/, const RecurrentCase&, std::string* why) const {
    if (why) *why = "this device computes recurrent layers step by step";
    return std::nullopt;
  }
  virtual Limits limits() const { return {512, 512, int64_t{1} << 30, int64_t{1} << 30}; }
};

// Null if this build has no such backend. Each backend defines one `const Backend& <name>_backend()`.
const Backend* find_backend(DeviceType type);

}  // namespace pyflame
