// Builds, updates and launches GPU graphs.
#include "pyflame/backends/gpu/driver/graph.h"

#include <algorithm>
#include <cstring>

#include "pyflame/base/error.h"

namespace pyflame::gpu {

namespace {

// The kernel of a node, in the form of this vendor's driver.
struct KernelNode {
  HipKernelNode hip{};
  CudaKernelNode cuda{};
  const void* of(const GpuDevice& device, const Launch& l) {
    if (device.rt().type == DeviceType::rocm) {
      hip = {{l.block, 1, 1}, nullptr, l.function, {l.grid[0], l.grid[1], l.grid[2]}, l.parameters, l.shared_bytes};
      return &hip;
    }
    cuda = {
        l.function, {l.grid[0], l.grid[1], l.grid[2]}, {l.block, 1, 1}, l.shared_bytes, l.parameters, nullptr, nullptr,
        nullptr};
    return &cuda;
  }
};

std::vector<char> values_of(const Launch& l) {
  std::vector<char> values;
  for (size_t i = 0; i < l.sizes.size(); ++i) {
    const char* p = static_cast<const char*>(l.parameters[i]);
    values.insert(values.end(), p, p + l.sizes[i]);
  }
  return values;
}

bool same_values(const std::vector<char>& values, const Launch& l) {
  size_t at = 0;
  for (size_t i = 0; i < l.sizes.size(); ++i) {
    if (at + l.sizes[i] > values.size() || std::memcmp(values.data() + at, l.parameters[i], l.sizes[i]) != 0)
      return false;
    at += l.sizes[i];
  }
  return at == values.size() && at > 0;
}

}  // namespace

std::string graphs_corrupt(DeviceType type, const std::string& arch, int version) {
  // HIP's version is major * 10,000,000 + minor * 100,000 + patch. Its patch numbers do not follow those of ROCm, so
  // all of 7.2 counts.
  if (type != DeviceType::rocm) return "";
  const int major = version / 10000000, minor = version / 100000 % 100;
  if (arch == "gfx942" && major == 7 && minor == 2)
    return "graphs of ROCm 7.2 are known to compute wrongly on gfx942 now and then";
  if (arch == "gfx950" && major < 8) return "graphs of ROCm 7 are known to read freed memory on gfx950";
  return "";
}

GpuReplay::~GpuReplay() {
  const Rt& rt = device_.rt();
  try {
    device_.enter();
    if (!may_update()) rt.stream_wait(device_.own_stream());
  } catch (const Error&) {
    return;  // a forked child, or the device is lost
  }
  if (capturing_) {
    RtGraph rest = nullptr;
    rt.capture_end(capture_, &rest);
    if (rest) rt.graph_destroy(rest);
  }
  if (exec_) rt.graph_exec_destroy(exec_);
  if (graph_) rt.graph_destroy(graph_);
  if (capture_) rt.stream_destroy(capture_);
}

// Whether a kernel may start before the node in front of it has ended. There must be one such node, a kernel. It ends after
// all nodes in front of it, whether it awaits them or starts after them.
bool GpuReplay::may_be_early(const Launch& l) const {
  if (!device_.arch().early_kernels || !l.early || before_.size() != 1) return false;
  for (auto n = nodes_.rbegin(); n != nodes_.rend(); ++n)
    if (n->handle == before_[0]) return !n->library;
  return false;
}

void GpuReplay::add_kernel(const Launch& l) {
  end_capture();
  Node n;
  n.function = l.function, n.grid = l.grid, n.block = l.block, n.shared_bytes = l.shared_bytes;
  n.values = values_of(l);
  KernelNode kernel;
  const Rt& rt = device_.rt();
  const bool early = may_be_early(l);
  device_.check(
      rt.graph_add_kernel(&n.handle, graph_, before_.data(), early ? 0 : before_.size(), kernel.of(device_, l)),
      "adding a kernel to a graph");
  if (early && rt.graph_add_edges(graph_, before_.data(), &n.handle, &kEarlyEdge, 1) != 0) {
    const GraphEdge ordinary{};
    device_.check(rt.graph_add_edges(graph_, before_.data(), &n.handle, &ordinary, 1), "adding an edge to a graph");
  }
  before_ = {n.handle};
  nodes_.push_back(std::move(n));
}

void GpuReplay::update_kernel(const Launch& l) {
  if (at_ >= end_ || nodes_[at_].library || nodes_[at_].function != l.function || differs_) {
    differs_ = true;
    return;
  }
  Node& n = nodes_[at_++];
  const bool same_shape = n.grid == l.grid && n.block == l.block && n.shared_bytes == l.shared_bytes;
  if (same_shape && same_values(n.values, l)) return;
  KernelNode kernel;
  device_.check(device_.rt().graph_set_kernel(exec_, n.handle, kernel.of(device_, l)), "changing a kernel of a graph");
  n.grid = l.grid, n.block = l.block, n.shared_bytes = l.shared_bytes;
  n.values = values_of(l);
}

void GpuReplay::kernel(const Launch& l) {
  if (updating_) update_kernel(l);
  else add_kernel(l);
}

Stream GpuReplay::library() {
  PF_CHECK(!updating_, Runtime, "replay: a step calls a library now; got kernel launches when the graph was built");
  if (!capture_) device_.check(device_.rt().stream_create(&capture_, kNonBlockingStream), "making a stream");
  if (!capturing_) {
    device_.check(device_.rt().capture_begin(capture_, kCaptureRelaxed), "beginning a capture");
    capturing_ = true;
  }
  return capture_;
}

void GpuReplay::end_capture() {
  if (!capturing_) return;
  capturing_ = false;
  const Rt& rt = device_.rt();
  RtGraph child = nullptr;
  device_.check(rt.capture_end(capture_, &child), "ending a capture");
  PF_CHECK(child, Runtime, "replay: a library's work cannot be captured; got no graph from the driver");
  Node n;
  n.library = true;
  if (last_library_ && std::find(before_.begin(), before_.end(), last_library_) == before_.end())
    before_.push_back(last_library_);
  const Result r = rt.graph_add_child(&n.handle, graph_, before_.data(), before_.size(), child);
  rt.graph_destroy(child);
  device_.check(r, "adding a library's work to a graph");
  last_library_ = n.handle;
  before_ = {n.handle};
  nodes_.push_back(std::move(n));
}

void GpuReplay::add(Executable* e, const RunContext& ctx, std::span<const size_t> after) {
  device_.enter();
  if (!graph_) device_.check(device_.rt().graph_create(&graph_, 0), "making a graph");
  first_.push_back(nodes_.size());
  before_.clear();
  for (const size_t step : after)
    for (GraphNode n : ends_[step])
      if (std::find(before_.begin(), before_.end(), n) == before_.end()) before_.push_back(n);
  if (e) {
    GpuDevice::Redirect here(*this);
    e->run(ctx);
    end_capture();
  }
  ends_.push_back(before_);
}

void GpuReplay::finish() {
  first_.push_back(nodes_.size());
  PF_CHECK(!nodes_.empty(), Runtime, "replay: nothing was launched");
  device_.check(device_.rt().graph_instantiate(&exec_, graph_, 0), "making a graph ready");
}

bool GpuReplay::update(size_t step, Executable& e, const RunContext& ctx) {
  at_ = first_[step], end_ = first_[step + 1];
  for (size_t i = at_; i < end_; ++i)
    if (nodes_[i].library) return false;
  device_.enter();
  updating_ = true;
  differs_ = false;
  {
    GpuDevice::Redirect here(*this);
    try {
      e.run(ctx);
    } catch (...) {
      updating_ = false;
      throw;
    }
  }
  updating_ = false;
  return !differs_ && at_ == end_;
}

// CUDA copies the parameters at a launch. HIP may read the graph's own copy until the kernels have run.
bool GpuReplay::may_update() { return device_.rt().type == DeviceType::cuda || device_.passed(launched_); }

void GpuReplay::launch() {
  device_.enter();
  device_.check(device_.rt().graph_launch(exec_, device_.own_stream()), "launching a graph");
  if (device_.rt().type == DeviceType::rocm) launched_ = device_.mark();
}

}  // namespace pyflame::gpu
