// A replay as a GPU graph, built node by node. Each of our kernels is a node whose parameters can be changed. What a
// library launches is captured and becomes one node per step. The nodes of a step form a chain. Steps that share no
// memory may run at the same time, except that library steps run one after the other, because libraries have memory of
// their own.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "pyflame/backends/gpu/driver/device.h"

namespace pyflame::gpu {

// Why graphs are known to compute wrong results on such a device; empty if they are right. `version`: of the driver.
std::string graphs_corrupt(DeviceType type, const std::string& arch, int version);

class GpuReplay final : public Replay, LaunchSink {
 public:
  explicit GpuReplay(GpuDevice& device) : device_(device) {}
  ~GpuReplay() override;
  void add(Executable* e, const RunContext& ctx, std::span<const size_t> after) override;
  void finish() override;
  bool update(size_t step, Executable& e, const RunContext& ctx) override;
  bool may_update() override;
  void launch() override;
  size_t nodes() const override { return nodes_.size(); }

 private:
  struct Node {
    GraphNode handle = nullptr;
    bool library = false;
    Function function = nullptr;
    std::array<unsigned, 3> grid{};
    unsigned block = 0, shared_bytes = 0;
    std::vector<char> values;  // of the parameters, concatenated; empty: unknown
  };
  void kernel(const Launch& launch) override;
  Stream library() override;
  void add_kernel(const Launch& launch);
  void update_kernel(const Launch& launch);
  void end_capture();
  bool may_be_early(const Launch& launch) const;

  GpuDevice& device_;
  RtGraph graph_ = nullptr;
  GraphExec exec_ = nullptr;
  std::vector<Node> nodes_;
  std::vector<size_t> first_;                 // first node of each step
  std::vector<std::vector<GraphNode>> ends_;  // by step: the nodes that later steps wait for
  std::vector<GraphNode> before_;             // the nodes that the next node waits for
  GraphNode last_library_ = nullptr;
  Stream capture_ = nullptr;
  bool capturing_ = false, updating_ = false, differs_ = false;
  size_t at_ = 0, end_ = 0;  // the nodes of the step that is being updated
  uint64_t launched_ = 0;    // mark after the last launch
};

}  // namespace pyflame::gpu
