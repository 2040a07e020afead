// Groups of processes: bindings of distributed/group.h. pyflame/distributed makes collectives of these. Methods take addresses, because an
// asynchronous call runs on another thread than the one that recorded what it reads.
#include "distributed.h"

#include <nanobind/stl/optional.h>

#include "pyflame/base/fallbacks.h"
#include "pyflame/distributed/group.h"
#include "pyflame/record/emit.h"

namespace pyflame::python {

namespace {

using distributed::Call;
using distributed::Group;
using distributed::Reduction;

// Runs a call without the GIL. A signal whose handler raises ends it, with that exception.
template <class F>
void run_call(const std::string& signature, const std::string& text, double timeout, const F& fn) {
  std::optional<nb::python_error> raised;
  Call call{signature, text, timeout, {}};
  call.interrupted = [&raised] {
    const Locked held;
    if (!raised && PyErr_CheckSignals() != 0) raised.emplace();
    return raised.has_value();
  };
  try {
    const Unlocked u;
    fn(call);
  } catch (const Error&) {
    if (raised) throw nb::python_error(std::move(*raised));
    throw;
  }
}

template <class T = void>
T* at(uintptr_t address) {
  return reinterpret_cast<T*>(address);
}

Reduction reduction_from(const std::string& name) {
  static constexpr const char* kNames[] = {"sum", "avg", "product", "min", "max"};
  for (size_t i = 0; i < std::size(kNames); ++i)
    if (name == kNames[i]) return static_cast<Reduction>(i);
  PF_FAIL(Value, "ReduceOp: not available; got {}; expected SUM, AVG, PRODUCT, MIN or MAX", name);
}

void bind_group(nb::module_& m) {
  using Ints = std::vector<int>;
  using Sizes = std::vector<size_t>;
  nb::class_<Group> c(m, "_Group", "Connected processes; pyflame.distributed makes it.");
  c.def(nb::init<int, Ints, const Ints&, const Ints&, const Ints&, const Ints&>(), "rank"_a, "names"_a, "control"_a,
        "data"_a, "messages"_a, "memory"_a);
  c.def_static("memory_bytes", &Group::memory_bytes, "size"_a);
  c.def("transport", &Group::transport, "peer"_a);
  c.def("close", &Group::close);
  c.def("barrier", [](Group& g, const std::string& s, const std::string& t, double timeout) {
    run_call(s, t, timeout, [&](const Call& call) { g.barrier(call); });
  });
  c.def("all_reduce", [](Group& g, const std::string& s, const std::string& t, double timeout, uintptr_t data,
                         size_t count, DTypeArg dtype, const std::string& op) {
    const DType d = dtype.require("all_reduce");
    const Reduction r = reduction_from(op);
    run_call(s, t, timeout, [&](const Call& call) { g.all_reduce(call, at(data), count, d, r); });
  });
  c.def("reduce_scatter", [](Group& g, const std::string& s, const std::string& t, double timeout, uintptr_t in,
                             uintptr_t out, size_t count, DTypeArg dtype, const std::string& op) {
    const DType d = dtype.require("reduce_scatter");
    const Reduction r = reduction_from(op);
    run_call(s, t, timeout, [&](const Call& call) { g.reduce_scatter(call, at(in), at(out), count, d, r); });
  });
  c.def("reduce", [](Group& g, const std::string& s, const std::string& t, double timeout, uintptr_t data, size_t count,
                     DTypeArg dtype, const std::string& op, int root) {
    const DType d = dtype.require("reduce");
    const Reduction r = reduction_from(op);
    run_call(s, t, timeout, [&](const Call& call) { g.reduce(call, at(data), count, d, r, root); });
  });
  c.def("all_gather", [](Group& g, const std::string& s, const std::string& t, double timeout, uintptr_t in,
                         uintptr_t out, size_t bytes) {
    run_call(s, t, timeout, [&](const Call& call) { g.all_gather(call, at(in), at(out), bytes); });
  });
  c.def("broadcast",
        [](Group& g, const std::string& s, const std::string& t, double timeout, uintptr_t data, size_t bytes,
           int root) { run_call(s, t, timeout, [&](const Call& call) { g.broadcast(call, at(data), bytes, root); }); });
  c.def("exchange", [](Group& g, const std::string& s, const std::string& t, double timeout, uintptr_t in,
                       const Sizes& in_bytes, uintptr_t out, const Sizes& out_bytes) {
    run_call(s, t, timeout, [&](const Call& call) { g.exchange(call, at(in), in_bytes, at(out), out_bytes); });
  });
  c.def("send",
        [](Group& g, const std::string& s, const std::string& t, double timeout, int peer, uintptr_t data,
           size_t bytes) { run_call(s, t, timeout, [&](const Call& call) { g.send(call, peer, at(data), bytes); }); });
  c.def("recv",
        [](Group& g, const std::string& s, const std::string& t, double timeout, int peer, uintptr_t data,
           size_t bytes) { run_call(s, t, timeout, [&](const Call& call) { g.recv(call, peer, at(data), bytes); }); });
}

}  // namespace

void bind_distributed(nb::module_& m) {
  bind_group(m);
  m.def(
      "_host_address",
      [](const Tensor& x, bool write) {
        const Unlocked u;
        fix_layout(x);
        PF_CHECK(x.is_contiguous(), Runtime, "distributed: the tensor is not contiguous; got strides {}",
                 x.strides().str());
        return reinterpret_cast<uintptr_t>(write ? x.mutable_data() : x.data());
      },
      "tensor"_a, "write"_a, "Address of the first element of a contiguous tensor whose pending work is done.");
  m.def("_check_reduction", [](const std::string& text, const std::string& op, DTypeArg dtype) {
    distributed::check_reduction(text.c_str(), reduction_from(op), dtype.require("distributed"));
  });
  m.def(
      "_note_fallback",
      [](const std::string& op, const std::string& device, const std::string& ran_on, const std::string& reason,
         const std::string& message, double seconds) {
        note_fallback(op, device, ran_on, reason, message)
            .count(std::chrono::nanoseconds(static_cast<int64_t>(seconds * 1e9)));
      },
      "op"_a, "device"_a, "ran_on"_a, "reason"_a, "message"_a, "seconds"_a, "Adds a run to the ledger of fallbacks.");
}

}  // namespace pyflame::python
