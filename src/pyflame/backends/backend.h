// The whole interface between the engine and a backend. The compiler cuts a window's graph into groups; for each group it asks
// the backend's implementations, best first, and keeps the first that accepts. What it gets back is an Executable, which is
// run many times with fresh pointers.
#pragma once
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

// How the nodes of a group hang together (compile/patterns.def has one entry per kind).
enum class GroupKind : uint8_t {
  Single,    // one node of class Other
  Loop,      // elementwise nodes and reductions over one iteration space; see below
  Epilogue,  // nodes[0] is a matmul or conv2d; the others are Map nodes over its output's shape; see also Group::summed
};

// Role of a node in a Loop group. S is the iteration space, cut at `split`: S[0, split) are the outer dims ("rows"),
// S[split, rank) the inner ones ("one row").
enum class Role : uint8_t {
  Map,        // elementwise over S (operands broadcast to S with stride 0)
  RowReduce,  // a Reduce node whose reduced axes (those of size > 1) are exactly the inner dims
  RowMap,     // elementwise over the outer dims: its output has S's rank with size 1 in the inner dims
  ColReduce,  // a Reduce node whose reduced axes are exactly the outer dims; nothing in the group reads it
};

struct Group {
  GroupKind kind = GroupKind::Single;
  std::vector<int32_t> nodes;  // indices into graph.nodes, in a valid order
  std::vector<Role> roles;     // Loop: one per node
  Dims space;                  // Loop: S. Operand shapes are aligned to S from the right, as broadcasting does
  int split = 0;               // Loop: number of outer dims (== rank when there is no reduction)
  // Epilogue: the operand of the product (0 or 1) of which one of the nodes is the sum over the depth, or -1. A layer's gradient by
  // its weight is a product with its output's gradient, whose sum is the bias's: libraries read it once for both.
  int summed = -1;
  // Values that nobody reads outside this group: their bindings have no memory and must not be stored.
  std::vector<bool> elided;  // by graph binding index
};

// A group as an implementation sees it.
struct Problem {
  const Graph& graph;
  const Group& group;
  const Node& node(size_t i) const { return graph.nodes[static_cast<size_t>(group.nodes[i])]; }
  const Node& root() const { return node(0); }
  size_t size() const { return group.nodes.size(); }
};

struct RunContext {
  void* const* bindings;  // by graph binding index: pointer to the operand's first element (null when elided)
  const Param* params;    // by param index
  void* workspace;        // workspace() bytes, 64-byte aligned
  int device = 0;         // index of the device
  void* fault = nullptr;  // where kernels of the device report a value that they cannot use (kernels/device/fault.h),
  int32_t site = 0;       // with this as the step's name
  template <class T>
  T* ptr(const Operand& o) const {
    return static_cast<T*>(bindings[o.index]);
  }
};

// A group made ready for running. It must not keep references to the Problem. run() may be called from any one thread at a time;
// it throws Error on failure (an IndexError for an index out of range, say) and must then leave memory outside its outputs intact.
class Executable {
 public:
  virtual ~Executable() = default;
  virtual void run(const RunContext& ctx) = 0;
  virtual size_t workspace() const { return 0; }
  virtual bool capturable() const { return true; }
  // Whether it computes the same bits in every run. One that does not is made only where the op's attribute any_order allows it.
  virtual bool repeats() const { return true; }
};

// Empty: accepted. Otherwise the reason for the refusal, for pf.explain().
using Refusal = std::optional<std::string>;

struct Impl {
  const char* name;  // "cpu.tile", "onednn.matmul", "reference"
  Refusal (*accepts)(const Problem&);
  std::unique_ptr<Executable> (*make)(const Problem&);
};

struct Limits {
  int first_ops, max_ops;  // window limits: at first after a sync point, and at most
  int64_t first_bytes, max_bytes;
};

// What a kernel reported (kernels/device/fault.h); kind 0: nothing.
struct FaultReport {
  int32_t kind = 0, site = 0;
  int64_t value = 0, limit = 0;
};

// The launches of several steps as one. Steps are added in order, each with the earlier ones that it has to come after; afterwards each
// can be brought up to date with other pointers and params. Nothing runs before launch().
class Replay {
 public:
  virtual ~Replay() = default;
  // Null: a step that launches nothing. Error when it cannot be in a replay.
  virtual void add(Executable* e, const RunContext& ctx, std::span<const size_t> after) = 0;
  virtual void finish() = 0;
  virtual bool update(size_t step, Executable& e, const RunContext& ctx) = 0;  // false: it has to be built anew
  virtual bool may_update() = 0;  // false: it is still running, and this device reads arguments late
  virtual void launch() = 0;
  virtual size_t nodes() const = 0;
};

// The memory of a device that the host cannot address. Everything on a device happens in the order in which it was asked for (one
// stream), so memory that is given back may be handed out again at once. Any thread may call; failures are Errors, of kind Device when
// the device is gone for good.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;
  virtual void* allocate(size_t nbytes) = 0;                              // null when there is no more
  virtual void release(void* p) = 0;                                      // waits for what may still use it
  virtual void from_host(void* to, const void* from, size_t nbytes) = 0;  // `from` may be changed when it returns
  virtual void to_host(void* to, const void* from, size_t nbytes) = 0;    // complete when it returns
  virtual void copy(void* to, const void* from, size_t nbytes) = 0;       // within the device, in order
  virtual void fill(void* to, uint8_t value, size_t nbytes) = 0;          // in order
  // From another device of the same type, in the order of both; false: there is no way but through the host.
  virtual bool copy_from(void* to, DeviceMemory& other, const void* from, size_t nbytes) = 0;
  virtual void wait() = 0;                             // until the device has nothing left to do
  virtual void room(size_t* free, size_t* total) = 0;  // bytes, of all processes
  virtual void* fault() = 0;                           // a FaultReport of the device, zero at first; RunContext::fault
  virtual void read_fault(FaultReport* pinned) = 0;    // asks for a copy; there once a later mark has passed
  virtual FaultReport* pinned_report() = 0;            // memory for that, never freed
  virtual void pin_ahead(size_t nbytes) = 0;           // host memory for so many bytes on their way at once
  virtual uint64_t mark() = 0;                         // names what was asked so far
  virtual bool passed(uint64_t mark) = 0;              // whether that is done; does not wait
  virtual std::unique_ptr<Replay> make_replay() = 0;
  virtual std::string replay_unsafe() const = 0;  // why replays are known to be wrong here; empty: they are not
};

// Facts about a device in the order to print them.
struct DeviceInfo {
  std::string name, architecture;
  uint64_t total_memory = 0, free_memory = 0;  // bytes
  int64_t compute_units = 0, wave_size = 0;
  std::vector<std::pair<std::string, std::string>> extra;
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual const char* name() const = 0;
  virtual int device_count() const { return 1; }
  virtual std::string absence() const { return ""; }  // why there is no device, where device_count() is 0
  virtual DeviceMemory* memory(int /*index*/) const { return nullptr; }  // null: the host's own
  virtual DeviceInfo info(int index) const;                              // of the host, unless overridden
  virtual std::string libraries(int /*index*/) const { return ""; }  // that entries compute with: names and versions
  // Implementations for a group, best first; the last one takes everything.
  virtual std::span<const Impl> impls(const Problem& p) const = 0;
  // Whether that last one is the reference's slow loops: a group is cut rather than left to them, and users are told.
  virtual bool last_is_slow() const { return true; }
  virtual bool fuses() const { return true; }     // false: every node is a group of its own (reference)
  virtual bool executes() const { return true; }  // false: plans only (null)
  virtual bool sums_beside_products(DType) const { return false; }  // whether an entry takes Group::summed
  virtual Limits limits() const { return {512, 512, int64_t{1} << 30, int64_t{1} << 30}; }
};

// Null when this build has none for the type. Each backend defines one `const Backend& <name>_backend()`.
const Backend* find_backend(DeviceType type);

}  // namespace pyflame
