#include "pyflame/backends/cpu/dnn_conv.h"

#include <map>
#include <mutex>
#include <oneapi/dnnl/dnnl.hpp>
#include <unordered_map>
#include <utility>

#include "pyflame/backends/cpu/common.h"
#include "pyflame/backends/cpu/dnn.h"
#include "pyflame/backends/cpu/gemm.h"
#include "pyflame/base/error.h"

namespace pyflame::cpu {

namespace {

using dnn::engine;
using dnn::stream;
using dnnl::memory;

// Slots of this thread's scratch memory.
enum Slot : int { kFirst = 4, kSecond, kResult, kOwn };

memory::desc plain(const memory::dims& dims) {
  return {dims, memory::data_type::f32, dims.size() == 5 ? memory::format_tag::abcde : memory::format_tag::abcd};
}
// Planes of a volume, of whose channels each begins `step` elements after the one before.
memory::desc part_of(const memory::dims& dims, int64_t step) {
  if (!step) return plain(dims);
  return {dims, memory::data_type::f32, {dims[1] * step, step, dims[3] * dims[4], dims[4], 1}};
}
memory::desc chosen(const memory::dims& dims) { return {dims, memory::data_type::f32, memory::format_tag::any}; }

// Images in the caller's layout, and channels-last as the primitive needs them. If the two differ, they are copied
// before or after the call.
class Carried {
 public:
  Carried() = default;
  Carried(const memory::dims& dims, bool last, int64_t step)
      : outside_(last ? inside(dims) : part_of(dims, step)), inside_(inside(dims)) {
    if (last || dims[1] == 1) {
      outside_ = inside_;
      return;
    }
    in_ = dnnl::reorder({engine(), outside_, engine(), inside_});
    out_ = dnnl::reorder({engine(), inside_, engine(), outside_});
  }
  static memory::desc inside(const memory::dims& dims) {
    return {dims, memory::data_type::f32, dims.size() == 5 ? memory::format_tag::acdeb : memory::format_tag::acdb};
  }
  memory in(const void* data, int slot) const {
    memory from(outside_, engine(), const_cast<void*>(data));
    if (!in_) return from;
    memory to = room(slot);
    in_.execute(stream(), from, to);
    return to;
  }
  memory target(void* data, int slot) const { return in_ ? room(slot) : memory(outside_, engine(), data); }
  void finish(memory& from, void* data) const {
    if (!in_) return;
    memory to(outside_, engine(), data);
    out_.execute(stream(), from, to);
  }

 private:
  memory room(int slot) const { return memory(inside_, engine(), scratch_bytes(slot, inside_.get_size())); }
  memory::desc outside_, inside_;
  dnnl::reorder in_, out_;
};

// Weights, in the caller's layout or channels-last. Output channels are the slowest dim in both layouts, so a part of
// them is contiguous.
class Weights {
 public:
  Weights() = default;
  Weights(const memory::dims& dims, bool last, const memory::desc& inside) : bytes_(inside.get_size()) {
    constexpr int64_t kPart = 64;  // a multiple of all block sizes
    memory::dims part = dims;
    if (dims[0] % kPart == 0 && bytes_ == plain(dims).get_size()) part[0] = kPart;
    parts_ = dims[0] / part[0];
    outside_ = last ? Carried::inside(part) : plain(part);
    memory::dims at(dims.size(), 0);
    inside_ = inside.submemory_desc(part, at);
    if (parts_ > 1) {
      // If they are not the slowest dim in the library's layout, everything is one part.
      at[0] = kPart;
      const int64_t step = inside.submemory_desc(part, at).data.offset0;
      if (step * parts_ * static_cast<int64_t>(sizeof(float)) != static_cast<int64_t>(bytes_)) {
        parts_ = 1, inside_ = inside;
        outside_ = last ? Carried::inside(dims) : plain(dims);
      }
    }
    in_ = dnnl::reorder({engine(), outside_, engine(), inside_});
    out_ = dnnl::reorder({engine(), inside_, engine(), outside_});
  }
  size_t bytes() const { return bytes_; }
  int64_t parts() const { return parts_; }
  size_t part_bytes() const { return bytes_ / static_cast<size_t>(parts_); }
  void pack(int64_t part, const float* weight, void* to) const {
    memory from(outside_, engine(), const_cast<char*>(piece(part, weight)));
    memory packed(inside_, engine(), const_cast<char*>(piece(part, to)));
    in_.execute(stream(), from, packed);
  }
  void unpack(int64_t part, const void* from, float* weight) const {
    memory packed(inside_, engine(), const_cast<char*>(piece(part, from)));
    memory to(outside_, engine(), const_cast<char*>(piece(part, weight)));
    out_.execute(stream(), packed, to);
  }

 private:
  const char* piece(int64_t part, const void* of) const {
    return static_cast<const char*>(of) + static_cast<size_t>(part) * part_bytes();
  }
  size_t bytes_ = 0;
  int64_t parts_ = 1;
  memory::desc outside_, inside_;
  dnnl::reorder in_, out_;
};

class Library final : public DnnConv {
 public:
  Library(Pass pass, const Problem& p) : pass_(pass) {
    using dnnl::algorithm;
    const auto sizes = [&p](memory::dims dims, const std::array<int64_t, 3>& spatial) {
      dims.insert(dims.end(), spatial.begin() + (p.volume ? 0 : 1), spatial.end());
      return dims;
    };
    const memory::dims x = sizes({p.images, p.ic}, p.in), w = sizes({p.oc, p.ic}, p.kernel),
                       y = sizes({p.images, p.oc}, p.out);
    const memory::dims stride = sizes({}, p.stride), before = sizes({}, p.before), after = sizes({}, p.after);
    memory::dims dilation = sizes({}, p.dilation);
    for (auto& d : dilation) --d;
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    const memory::desc x_last = Carried::inside(x), y_last = Carried::inside(y);
    const auto kind = pass == Pass::forward ? dnnl::prop_kind::forward_inference : dnnl::prop_kind::forward_training;
    using Forward = dnnl::convolution_forward::desc;
    if (p.bias) bias_ = memory::desc({p.oc}, memory::data_type::f32, memory::format_tag::a);
    const auto direct = algorithm::convolution_direct;
    const dnnl::convolution_forward::primitive_desc forward(
        p.bias ? Forward(kind, direct, x_last, chosen(w), bias_, y_last, stride, dilation, before, after)
               : Forward(kind, direct, x_last, chosen(w), y_last, stride, dilation, before, after),
        attributes, engine());
    if (pass == Pass::forward) {
      take(forward, dnnl::convolution_forward(forward));
      a_ = Carried(x, p.a_last, p.a_step), b_ = Carried(y, p.b_last, p.b_step);
      weight_ = forward.weights_desc();
    } else if (pass == Pass::grad_input) {
      const dnnl::convolution_backward_data::primitive_desc d(
          {direct, x_last, chosen(w), y_last, stride, dilation, before, after}, attributes, engine(), forward);
      take(d, dnnl::convolution_backward_data(d));
      a_ = Carried(y, p.a_last, p.a_step), b_ = Carried(x, p.b_last, p.b_step);
      weight_ = d.weights_desc();
    } else {
      const dnnl::convolution_backward_weights::primitive_desc d(
          {direct, x_last, chosen(w), y_last, stride, dilation, before, after}, attributes, engine(), forward);
      take(d, dnnl::convolution_backward_weights(d));
      a_ = Carried(y, p.a_last, p.a_step), b_ = Carried(x, p.b_last, p.b_step);
      weight_ = d.diff_weights_desc();
    }
    weights_ = Weights(w, p.weight_last, weight_);
  }

  // oneDNN's other kernels unfold images as our own do.
  bool is_fast() const {
    return name_.find("brg") != name_.npos || (name_.find("jit") != name_.npos && name_.find("gemm") == name_.npos);
  }

  size_t weight_bytes() const override { return weights_.bytes(); }
  int64_t parts() const override { return weights_.parts(); }
  size_t part_bytes() const override { return weights_.part_bytes(); }
  bool same_weights(const DnnConv& other) const override {
    return weight_ == static_cast<const Library&>(other).weight_;
  }
  void pack(int64_t part, const float* weight, void* to) const override {
    use_one_library_thread();
    weights_.pack(part, weight, to);
  }
  void unpack(int64_t part, const void* from, float* weight) const override {
    use_one_library_thread();
    weights_.unpack(part, from, weight);
  }

  void run(const void* a, const void* b, void* out, const float* bias) const override {
    use_one_library_thread();
    const memory own(scratchpad_, engine(), scratch_bytes(kOwn, scratchpad_.get_size()));
    const memory first = a_.in(a, kFirst);
    if (pass_ == Pass::grad_weight) {
      primitive_.execute(stream(), {{DNNL_ARG_DIFF_DST, first},
                                    {DNNL_ARG_SRC, b_.in(b, kSecond)},
                                    {DNNL_ARG_DIFF_WEIGHTS, memory(weight_, engine(), out)},
                                    {DNNL_ARG_SCRATCHPAD, own}});
      return;
    }
    const bool forward = pass_ == Pass::forward;
    memory result = b_.target(out, kResult);
    std::unordered_map<int, memory> arguments{{forward ? DNNL_ARG_SRC : DNNL_ARG_DIFF_DST, first},
                                              {DNNL_ARG_WEIGHTS, memory(weight_, engine(), const_cast<void*>(b))},
                                              {forward ? DNNL_ARG_DST : DNNL_ARG_DIFF_SRC, result},
                                              {DNNL_ARG_SCRATCHPAD, own}};
    if (bias) arguments.emplace(DNNL_ARG_BIAS, memory(bias_, engine(), const_cast<float*>(bias)));
    primitive_.execute(stream(), arguments);
    b_.finish(result, out);
  }

 private:
  template <class Desc>
  void take(const Desc& d, const dnnl::primitive& p) {
    primitive_ = p;
    name_ = d.impl_info_str();
    scratchpad_ = d.scratchpad_desc();
  }

  Pass pass_;
  dnnl::primitive primitive_;
  std::string name_;
  Carried a_, b_;
  Weights weights_;
  memory::desc weight_, bias_, scratchpad_;
};

}  // namespace

std::shared_ptr<const DnnConv> DnnConv::find(Pass pass, const Problem& p) {
  using Key = std::pair<Pass, Problem>;
  static std::mutex mutex;
  static auto* known = new std::map<Key, std::shared_ptr<const DnnConv>>;
  constexpr size_t kMost = 1024;
  const Key key{pass, p};
  const std::lock_guard lock(mutex);
  if (const auto it = known->find(key); it != known->end()) return it->second;
  std::shared_ptr<const DnnConv> found;
  try {
    use_one_library_thread();  // a primitive depends on the number of threads for which it was made
    auto library = std::make_shared<Library>(pass, p);
    if (library->is_fast()) found = std::move(library);
  } catch (const dnnl::error&) {  // unsupported shape, or unsupported on this processor
  }
  if (known->size() >= kMost) known->clear();
  known->emplace(key, found);
  return found;
}

}  // namespace pyflame::cpu
