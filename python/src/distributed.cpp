// Groups of processes: bindings of distributed/group.h. pyflame/distributed makes collectives of these. Methods take addresses, because an
// asynchronous call runs on another thread than the one that recorded what it reads.
#include "distributed.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/tuple.h>

#include <algorithm>
#include <mutex>

#include "pyflame/base/fallbacks.h"
#include "pyflame/distributed/direct.h"
#include "pyflame/distributed/group.h"
#include "pyflame/record/emit.h"
#include "pyflame/record/recorder.h"
#include "pyflame/runtime/communicators.h"
#include "pyflame/runtime/device_times.h"
#include "pyflame/runtime/in_flight.h"
#include "pyflame/runtime/taint.h"
#include "pyflame/tensor/grad_node.h"

namespace pyflame::python {

namespace {

using distributed::Call;
using distributed::Group;
using distributed::Reduction;

// What a rank says about its call: (signature, text, timeout), and for profiles (op, dtype, bytes of an element).
using Said = std::tuple<std::string, std::string, double, std::string, std::string, size_t>;

// Runs a call without the GIL. A signal whose handler raises ends it, with that exception.
template <class F>
void run_call(const Said& said, const F& fn) {
  std::optional<nb::python_error> raised;
  const auto& [signature, text, timeout, op, dtype, item] = said;
  Call call{signature, text, timeout, {}, op, dtype, item};
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
  c.def(nb::init<int, Ints, const Ints&, const Ints&, const Ints&, const Ints&, Ints>(), "rank"_a, "names"_a,
        "control"_a, "data"_a, "messages"_a, "memory"_a, "pids"_a);
  c.def_static("reaches_memory", [](int pid, uintptr_t address, const nb::bytes& bytes) {
    return distributed::reaches_memory(pid, address, {bytes.c_str(), bytes.size()});
  });
  c.def_static("let_siblings_reach", &distributed::let_siblings_reach);
  c.def_static("memory_bytes", &Group::memory_bytes, "size"_a);
  c.def("transport", &Group::transport, "peer"_a);
  c.def("set_label", &Group::set_label, "name"_a);
  c.def("close", &Group::close);
  c.def("gone", &Group::gone);
  c.def("refuse", [](Group& g, const std::string& text) {
    const Unlocked u;
    g.refuse({{}, text, 0, {}});
  });
  c.def("barrier", [](Group& g, const Said& said) { run_call(said, [&](const Call& call) { g.barrier(call); }); });
  c.def("all_reduce",
        [](Group& g, const Said& said, uintptr_t data, size_t count, DTypeArg dtype, const std::string& op) {
          const DType d = dtype.require("all_reduce");
          const Reduction r = reduction_from(op);
          run_call(said, [&](const Call& call) { g.all_reduce(call, at(data), count, d, r); });
        });
  c.def("reduce_scatter", [](Group& g, const Said& said, uintptr_t in, uintptr_t out, size_t count, DTypeArg dtype,
                             const std::string& op) {
    const DType d = dtype.require("reduce_scatter");
    const Reduction r = reduction_from(op);
    run_call(said, [&](const Call& call) { g.reduce_scatter(call, at(in), at(out), count, d, r); });
  });
  c.def("reduce",
        [](Group& g, const Said& said, uintptr_t data, size_t count, DTypeArg dtype, const std::string& op, int root) {
          const DType d = dtype.require("reduce");
          const Reduction r = reduction_from(op);
          run_call(said, [&](const Call& call) { g.reduce(call, at(data), count, d, r, root); });
        });
  c.def("all_gather", [](Group& g, const Said& said, uintptr_t in, uintptr_t out, size_t bytes) {
    run_call(said, [&](const Call& call) { g.all_gather(call, at(in), at(out), bytes); });
  });
  c.def("broadcast", [](Group& g, const Said& said, uintptr_t data, size_t bytes, int root) {
    run_call(said, [&](const Call& call) { g.broadcast(call, at(data), bytes, root); });
  });
  c.def("exchange",
        [](Group& g, const Said& said, uintptr_t in, const Sizes& in_bytes, uintptr_t out, const Sizes& out_bytes) {
          run_call(said, [&](const Call& call) { g.exchange(call, at(in), in_bytes, at(out), out_bytes); });
        });
  c.def("send", [](Group& g, const Said& said, int peer, uintptr_t data, size_t bytes) {
    run_call(said, [&](const Call& call) { g.send(call, peer, at(data), bytes); });
  });
  c.def("recv", [](Group& g, const Said& said, int peer, uintptr_t data, size_t bytes) {
    run_call(said, [&](const Call& call) { g.recv(call, peer, at(data), bytes); });
  });
  c.def("check_paths", [](Group& g, const std::string& text, double timeout) {
    std::vector<std::vector<uint32_t>> wrong;
    run_call({{}, text, timeout, {}, {}, 0}, [&](const Call& call) { wrong = g.check_paths(call); });
    return wrong;
  });
}

// The memory of a tensor for work that is queued behind all that computes it. `write`: as an in-place op.
void* device_address(const Tensor& x, bool write) {
  fix_layout(x);
  PF_CHECK(x.is_contiguous(), Runtime, "distributed: the tensor is not contiguous; got strides {}", x.strides().str());
  void* at = write ? x.mutable_data() : const_cast<void*>(x.data());
  raise_if_tainted(*x.storage());
  return at;
}

// A collective on a device, with the tensors that it uses. Memory that was freed is taken again in the order of the device's own stream, so
// the tensors live until that stream has been told to wait.
class DeviceCollective {
 public:
  DeviceCollective(std::unique_ptr<QueuedCollective> queued, std::vector<Tensor> used, std::vector<uint64_t> written)
      : queued_(std::move(queued)), used_(std::move(used)), written_(std::move(written)) {}
  ~DeviceCollective() {
    try {
      join();
    } catch (const Error&) {  // the device is lost: whoever uses it next is told
    }
  }
  DeviceCollective(const DeviceCollective&) = delete;
  DeviceCollective& operator=(const DeviceCollective&) = delete;
  // What is recorded from now on comes after it.
  void join() {
    const std::lock_guard lock(mutex_);
    if (used_.empty()) return;
    queued_->join();
    used_.clear();
  }
  bool passed() { return queued_->passed(); }
  void wait() { queued_->wait(); }
  void failed(const std::string& message) const { taint(written_, ErrorKind::Runtime, message); }

 private:
  std::mutex mutex_;
  std::unique_ptr<QueuedCollective> queued_;
  std::vector<Tensor> used_;
  std::vector<uint64_t> written_;  // ids of storages
};

Collective::Combine combine_from(const std::string& name) {
  return static_cast<Collective::Combine>(reduction_from(name));
}

using Queued = std::shared_ptr<DeviceCollective>;

Queued queue_collective(Communicator& to, Collective c, const Tensor* in, const Tensor* out) {
  const Unlocked u;
  std::vector<Tensor> used;
  std::vector<uint64_t> written;
  if (out) {
    c.out = device_address(*out, true);
    c.in = c.out;
    c.dtype = out->dtype();
    used.push_back(*out);
    written.push_back(out->storage()->id);
  }
  if (in) {
    c.in = device_address(*in, false);
    c.dtype = in->dtype();
    used.push_back(*in);
    if (c.kind == Collective::Kind::broadcast) c.out = const_cast<void*>(c.in);  // the root keeps what it has
  }
  return std::make_shared<DeviceCollective>(profiler::queue_collective(to, c, used[0].device()), std::move(used),
                                            std::move(written));
}

size_t numel(const Tensor& x) { return static_cast<size_t>(x.numel()); }

// Averages tensors of one dtype over all ranks, each from where it is: copies of many small ones would take longer than their reduction.
std::pair<Queued, Tensors> averages(Communicator& to, const Tensors& in) {
  const grad_mode::Guard off(false);
  Collective what{.kind = Collective::Kind::all_reduce, .dtype = in[0].dtype(), .combine = Collective::Combine::avg};
  Tensors out, used;
  std::vector<uint64_t> written;
  for (const Tensor& x : in) {
    used.push_back(contiguous(x));
    out.push_back(empty(x.shape(), x.dtype(), x.device()));
  }
  for (size_t i = 0; i < in.size(); ++i) {
    what.sends.push_back({0, device_address(used[i], false), numel(used[i])});
    what.takes.push_back({0, device_address(out[i], true), numel(out[i])});
    written.push_back(out[i].storage()->id);
  }
  used.insert(used.end(), out.begin(), out.end());
  return {std::make_shared<DeviceCollective>(profiler::queue_collective(to, what, in[0].device()), std::move(used),
                                             std::move(written)),
          std::move(out)};
}

// Whether two of these parts share bytes.
bool overlap(std::vector<Collective::Part> parts, DType dtype) {
  std::sort(parts.begin(), parts.end(), [](const auto& a, const auto& b) { return a.data < b.data; });
  for (size_t i = 1; i < parts.size(); ++i) {
    const char* const end = static_cast<char*>(parts[i - 1].data) + parts[i - 1].count * dtype_size(dtype);
    if (parts[i].count && static_cast<char*>(parts[i].data) < end) return true;
  }
  return false;
}

// Averages tensors of one dtype over all ranks in place, in the order of the device's work: for small ones. Memory is reused in that order, so
// the collective keeps no tensor.
Queued average_in_place(Communicator& to, const Tensors& all) {
  const grad_mode::Guard off(false);
  Collective what{.kind = Collective::Kind::all_reduce,
                  .dtype = all[0].dtype(),
                  .combine = Collective::Combine::avg,
                  .in_order = true};
  Tensors flat;
  std::vector<uint64_t> written;
  const auto take = [&](const auto& as_flat) {
    flat.clear(), what.takes.clear();
    for (const Tensor& x : all) flat.push_back(as_flat(x.detach()));
    for (const Tensor& x : flat) what.takes.push_back({0, device_address(x, true), numel(x)});
  };
  take([](const Tensor& x) { return contiguous(x); });
  if (overlap(what.takes, what.dtype)) take([](const Tensor& x) { return contiguous(clone(x)); });
  what.sends = what.takes;
  for (size_t i = 0; i < all.size(); ++i) {
    written.push_back(flat[i].storage()->id);
    if (flat[i].storage() != all[i].storage()) written.push_back(all[i].storage()->id);
  }
  auto queued = std::make_shared<DeviceCollective>(profiler::queue_collective(to, what, all[0].device()), Tensors(),
                                                   std::move(written));
  for (size_t i = 0; i < all.size(); ++i)
    if (flat[i].storage() != all[i].storage()) copy_(all[i].detach(), flat[i]);
  return queued;
}

void bind_communicator(nb::module_& m) {
  using Parts = std::vector<std::pair<int, Tensor>>;
  nb::class_<Communicator> c(m, "_Communicator", "The devices of a group; pyflame.distributed makes it.");
  c.def("set_group",
        [](Communicator& of, const std::string& library, const std::string& name, const std::vector<int>& ranks) {
          of.named.library = library;
          of.named.group = {name, ranks};
        });
  c.def("set_call", [](Communicator& of, const std::string& op, const std::string& text) {
    of.named.op = op;
    of.named.call = text;
  });
  c.def("failure", [](Communicator& of) {
    const Unlocked u;
    return of.failure();
  });
  c.def("abort", [](Communicator& of) {
    const Unlocked u;
    of.abort();
  });
  c.def("all_reduce", [](Communicator& to, const Tensor& x, const std::string& op) {
    return queue_collective(to, {.kind = Collective::Kind::all_reduce, .combine = combine_from(op), .count = numel(x)},
                            nullptr, &x);
  });
  c.def(
      "averages",
      [](Communicator& to, const Tensors& in) {
        const Unlocked u;
        return averages(to, in);
      },
      "tensors"_a, "(the collective, the averages of the tensors over the ranks in new tensors)");
  c.def(
      "average_in_place",
      [](Communicator& to, const Tensors& all) {
        const Unlocked u;
        return average_in_place(to, all);
      },
      "tensors"_a,
      "Averages small tensors over the ranks, between what was recorded before and what is recorded afterwards.");
  c.def("reduce", [](Communicator& to, const Tensor& x, const std::string& op, int root, bool here) {
    return queue_collective(
        to, {.kind = Collective::Kind::reduce, .combine = combine_from(op), .count = numel(x), .root = root},
        here ? nullptr : &x, here ? &x : nullptr);
  });
  c.def("broadcast", [](Communicator& to, const Tensor& x, int root, bool here) {
    return queue_collective(to, {.kind = Collective::Kind::broadcast, .count = numel(x), .root = root},
                            here ? &x : nullptr, here ? nullptr : &x);
  });
  c.def("all_gather", [](Communicator& to, const Tensor& in, const Tensor& out) {
    return queue_collective(to, {.kind = Collective::Kind::all_gather, .count = numel(in)}, &in, &out);
  });
  c.def("reduce_scatter", [](Communicator& to, const Tensor& in, const Tensor& out, const std::string& op) {
    return queue_collective(
        to, {.kind = Collective::Kind::reduce_scatter, .combine = combine_from(op), .count = numel(out)}, &in, &out);
  });
  c.def("exchange", [](Communicator& to, const Parts& sends, const Parts& takes) {
    const Unlocked u;
    Collective what{.kind = Collective::Kind::exchange};
    std::vector<Tensor> used;
    std::vector<uint64_t> written;
    for (const bool send : {true, false})
      for (const auto& [peer, x] : send ? sends : takes) {
        (send ? what.sends : what.takes).push_back({peer, device_address(x, !send), numel(x)});
        what.dtype = x.dtype();
        used.push_back(x);
        if (!send) written.push_back(x.storage()->id);
      }
    return std::make_shared<DeviceCollective>(profiler::queue_collective(to, what, used[0].device()), std::move(used),
                                              std::move(written));
  });
}

void bind_device_collectives(nb::module_& m) {
  nb::class_<DeviceCollective>(m, "_DeviceCollective", "A collective that was queued on a device.")
      .def(
          "join",
          [](DeviceCollective& c) {
            const Unlocked u;
            c.join();
          },
          "What is recorded from now on comes after it.")
      .def("passed",
           [](DeviceCollective& c) {
             const Unlocked u;
             return c.passed();
           })
      .def("wait",
           [](DeviceCollective& c) {
             const Unlocked u;
             c.wait();
           })
      .def(
          "failed", [](DeviceCollective& c, const std::string& message) { c.failed(message); }, "message"_a);
  m.def(
      "_communicator_library",
      [](nb::handle device) {
        std::string why;
        const Device d = device_from(device);
        const CommunicatorLibrary* library = communicators(d.type, &why);
        return std::make_tuple(library ? library->version() : "", why);
      },
      "device"_a, "(name and version of the library of collectives, why there is none)");
  m.def("_communicator_takes", [](nb::handle device, DTypeArg dtype) {
    const CommunicatorLibrary* library = communicators(device_from(device).type, nullptr);
    return library && library->takes(dtype.require("distributed"));
  });
  m.def("_communicator_id", [](nb::handle device) {
    const std::string id = communicators(device_from(device).type, nullptr)->new_id();
    return nb::bytes(id.data(), id.size());
  });
  m.def(
      "_connect_devices",
      [](nb::handle device, const nb::bytes& id, int rank, int size) {
        const Device d = device_from(device);
        const std::string bytes(id.c_str(), id.size());
        const Unlocked u;
        cut_window();
        return communicators(d.type, nullptr)->connect(d.index, bytes, rank, size).release();
      },
      nb::rv_policy::take_ownership);
}

}  // namespace

void bind_distributed(nb::module_& m) {
  m.def(
      "_set_job",
      [](int rank, int size) {
        events::set_job({rank, size});
      },
      "rank"_a, "size"_a);
  bind_group(m);
  bind_communicator(m);
  bind_device_collectives(m);
  bind_gradient_buckets(m);
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
  m.def(
      "_mark_written", [](const Tensor& x) { x.storage()->version.fetch_add(1, std::memory_order_relaxed); },
      "tensor"_a, "For autograd, as if the tensor had been written in place.");
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
