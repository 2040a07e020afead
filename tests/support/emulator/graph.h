// Graphs of the emulated runtime: built node by node or captured from streams, instantiated, launched. Nodes that do not depend on each
// other run in an order that the settings choose, so that a missing dependency is noticed.
#pragma once
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "runtime.h"

namespace pyflame::emulator {

struct Node {
  Work work;
  std::vector<size_t> after;
  std::shared_ptr<const std::vector<Node>> child;
};
using Nodes = std::vector<Node>;

struct Graph {
  Nodes nodes;
  std::vector<struct NodeHandle*> handles;
};
struct NodeHandle {
  Graph* graph = nullptr;
  size_t index = 0;
};
struct GraphExec {
  std::shared_ptr<Nodes> nodes;
  const Graph* of = nullptr;
};

size_t add_node(Graph& graph, Node node);
// Kernel errors are those of a launch.
int run_nodes(const Nodes& nodes);

// Work that was queued on a stream: it runs there, or it becomes a node of the graph that the stream captures.
int submit(Stream& stream, Work work);
// Non-zero, with the capture broken, when the stream captures: what waits for its work cannot be captured.
int refuse_in_capture(Stream& stream, const char* what);
// Non-zero when a capture forbids this to the calling thread.
int refuse_beside_capture(const char* what);

}  // namespace pyflame::emulator
