// What DistributedDataParallel does for each parameter in each step: it collects gradients in buckets while the backward pass goes on.
#include <nanobind/stl/shared_ptr.h>

#include "distributed.h"
#include "pyflame/autograd/autograd.h"
#include "pyflame/autograd/ready.h"
#include "pyflame/ops/ops.h"
#include "pyflame/tensor/grad_node.h"

namespace pyflame::python {

namespace {

using Flags = std::vector<std::vector<bool>>;

// The gradients of one backward pass after the other. Buckets start in their order, whatever the order of the gradients is, so
// all ranks start them in one order.
class GradientBuckets {
 public:
  // early: start(gradients) is called for each bucket as soon as all of its gradients are known. finish() is called at the end of
  // a backward pass that used one of the leaves.
  GradientBuckets(std::vector<Tensors> leaves, nb::handle start, nb::handle finish)
      : leaves_(std::move(leaves)), start_(std::make_shared<Held>(start)), finish_(std::make_shared<Held>(finish)) {
    for (const Tensors& bucket : leaves_) {
      used_.emplace_back(bucket.size());
      fresh_.emplace_back(bucket.size());
      ready_.emplace_back(bucket.size());
    }
    missing_.resize(leaves_.size());
    begin(true);
  }

  // Hears of each gradient. The hooks do not keep the object.
  static std::shared_ptr<GradientBuckets> watched(std::vector<Tensors> leaves, bool early, nb::handle start,
                                                  nb::handle finish) {
    auto made = std::make_shared<GradientBuckets>(std::move(leaves), start, finish);
    const std::weak_ptr<GradientBuckets> weak = made;
    for (size_t k = 0; k < made->leaves_.size(); ++k)
      for (size_t i = 0; i < made->leaves_[k].size(); ++i) {
        const Tensor& leaf = made->leaves_[k][i];
        autograd::register_post_hook(leaf, [weak, k, i] {
          if (const auto self = weak.lock()) self->used(k, i);
        });
        if (early)
          autograd::register_ready_hook(leaf, [weak, k, i](const Tensor& g) {
            if (const auto self = weak.lock()) self->ready(k, i, g);
          });
      }
    return made;
  }

  // Forgets what an earlier pass left. on: whether the next one is followed.
  void begin(bool on) {
    on_ = on;
    asked_ = false;
    started_ = 0;
    for (size_t k = 0; k < leaves_.size(); ++k) {
      missing_[k] = leaves_[k].size();
      used_[k].assign(leaves_[k].size(), false);
      fresh_[k].assign(leaves_[k].size(), false);
      ready_[k].assign(leaves_[k].size(), Tensor());
    }
  }

  size_t started() const { return started_; }
  const Flags& uses() const { return used_; }
  bool all_used() const {
    for (const std::vector<bool>& bucket : used_)
      for (const bool one : bucket)
        if (!one) return false;
    return true;
  }
  // The .grad of the leaves of a bucket; zeros where there is none.
  Tensors gradients(size_t bucket) const {
    const grad_mode::Guard off(false);
    Tensors all;
    for (const Tensor& leaf : leaves_[bucket]) {
      const Tensor g = leaf.grad();
      all.push_back(g ? g : zeros_like(leaf.detach()));
    }
    return all;
  }
  // .grad of the leaves of a bucket becomes these values: the tensors themselves for leaves without an earlier gradient.
  void set_gradients(size_t bucket, const Tensors& values) const {
    const grad_mode::Guard off(false);
    for (size_t i = 0; i < values.size(); ++i) {
      const Tensor& leaf = leaves_[bucket][i];
      const Tensor now = leaf.grad();
      if (!now) continue;
      if (fresh_[bucket][i]) leaf.set_grad(values[i]);
      else copy_(now.detach(), values[i]);
    }
  }

 private:
  void used(size_t k, size_t i) {
    if (!on_) return;
    if (!asked_) {
      asked_ = true;
      autograd::run_at_end([finish = finish_] {
        const Locked gil;
        finish->handle()();
      });
    }
    used_[k][i] = true;
  }

  void ready(size_t k, size_t i, const Tensor& g) {
    if (!on_ || ready_[k][i]) return;
    const Tensor before = leaves_[k][i].grad();
    fresh_[k][i] = !before;
    const grad_mode::Guard off(false);
    ready_[k][i] = before ? add(before.detach(), g) : g;
    --missing_[k];
    while (started_ < leaves_.size() && missing_[started_] == 0) {
      const Tensors gradients = std::exchange(ready_[started_], Tensors(leaves_[started_].size()));
      ++started_;
      const Locked gil;
      start_->handle()(gradients);
    }
  }

  std::vector<Tensors> leaves_;
  bool on_ = true, asked_ = false;
  std::shared_ptr<Held> start_, finish_;
  size_t started_ = 0;  // buckets
  std::vector<size_t> missing_;
  Flags used_, fresh_;  // fresh: it had no gradient before this pass
  std::vector<Tensors> ready_;
};

}  // namespace

void bind_gradient_buckets(nb::module_& m) {
  nb::class_<GradientBuckets>(m, "_GradientBuckets", "The gradients of DistributedDataParallel's buckets.")
      .def("begin", &GradientBuckets::begin, "on"_a)
      .def("started", &GradientBuckets::started, "How many buckets the backward pass has started.")
      .def("used", &GradientBuckets::uses, "For each bucket which of its leaves the pass used.")
      .def("all_used", &GradientBuckets::all_used, "Whether the pass used all leaves.")
      .def("gradients", &GradientBuckets::gradients, "bucket"_a,
           "The .grad of the leaves of a bucket; zeros where there is none.")
      .def("set_gradients", &GradientBuckets::set_gradients, "bucket"_a, "values"_a);
  m.def("_gradient_buckets", &GradientBuckets::watched, "leaves"_a, "early"_a, "start"_a, "finish"_a,
        "Registers hooks of the leaves, which are those of each bucket.");
}

}  // namespace pyflame::python
