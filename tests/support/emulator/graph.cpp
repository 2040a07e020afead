// See graph.h.
#include "graph.h"

#include <algorithm>
#include <cstring>
#include <random>
#include <thread>

#define EXPORT extern "C" __attribute__((visibility("default"))) int

namespace pyflame::emulator {

namespace {

enum Mode { kGlobal = 0, kThreadLocal = 1, kRelaxed = 2 };

struct Capture {
  Graph* graph;
  Stream* origin;
  int mode;
  std::thread::id by;
};
std::vector<Capture>& captures() {
  static auto* c = new std::vector<Capture>;
  return *c;
}

// Handles whose graph still lives.
std::set<const NodeHandle*>& live_handles() {
  static auto* h = new std::set<const NodeHandle*>;
  return *h;
}

NodeHandle* handle_of(Graph& g, size_t index) {
  while (g.handles.size() <= index) {
    g.handles.push_back(new NodeHandle{&g, g.handles.size()});
    live_handles().insert(g.handles.back());
  }
  return g.handles[index];
}

}  // namespace

size_t add_node(Graph& graph, Node node) {
  graph.nodes.push_back(std::move(node));
  return graph.nodes.size() - 1;
}

int run_nodes(const Nodes& nodes) {
  std::vector<size_t> missing(nodes.size()), ready;
  for (size_t i = 0; i < nodes.size(); ++i)
    if ((missing[i] = nodes[i].after.size()) == 0) ready.push_back(i);
  std::mt19937_64 random(settings().seed);
  int error = 0;
  size_t ran = 0;
  while (!ready.empty()) {
    size_t at = 0;
    if (settings().order == Order::descending) at = ready.size() - 1;
    if (settings().order == Order::shuffled) at = random() % ready.size();
    const size_t i = ready[at];
    ready.erase(ready.begin() + static_cast<std::ptrdiff_t>(at));
    const int e = nodes[i].child ? run_nodes(*nodes[i].child) : execute(nodes[i].work);
    if (error == 0) error = e;
    ++ran;
    for (size_t j = 0; j < nodes.size(); ++j)
      for (const size_t a : nodes[j].after)
        if (a == i && --missing[j] == 0) ready.push_back(j);
  }
  if (ran != nodes.size()) return refuse(kInvalidValue, "graph: its dependencies form a cycle");
  return error;
}

int submit(Stream& stream, Work work) {
  if (!stream.capture) {
    put(stream, [w = std::move(work)] { return execute(w); });
    return kSuccess;
  }
  if (stream.capture_broken) return kCaptureInvalidated;
  const size_t node = add_node(*stream.capture, {std::move(work), stream.capture_after, nullptr});
  stream.capture_after = {node};
  return kSuccess;
}

int refuse_in_capture(Stream& stream, const char* what) {
  if (!stream.capture) return kSuccess;
  stream.capture_broken = true;
  return refuse(kCaptureUnsupported, std::string(what) + ": not permitted while the stream captures");
}

int refuse_beside_capture(const char* what) {
  for (const Capture& c : captures())
    if (c.mode == kGlobal || (c.mode == kThreadLocal && c.by == std::this_thread::get_id())) {
      c.origin->capture_broken = true;
      return refuse(kCaptureUnsupported, std::string(what) + ": not permitted during a capture of this mode");
    }
  return kSuccess;
}

namespace {

// The graph whose nodes `after` are named, and what the new node is.
int append(void** handle, void* graph, const void* const* after, size_t count, Node node) {
  auto* g = static_cast<Graph*>(graph);
  for (size_t i = 0; i < count; ++i) {
    const auto* a = static_cast<const NodeHandle*>(after[i]);
    if (!live_handles().count(a) || a->graph != g)
      return refuse(kInvalidValue, "graph: a dependency is not a node of the graph");
    node.after.push_back(a->index);
  }
  *handle = handle_of(*g, add_node(*g, std::move(node)));
  return kSuccess;
}

struct KernelParameters {  // hipKernelNodeParams
  unsigned block[3];
  void** extra;
  Function* function;
  unsigned grid[3];
  void** parameters;
  unsigned shared_bytes;
};
static_assert(sizeof(KernelParameters) == 64);

int kernel_of(Work& work, const void* parameters) {
  KernelParameters p;
  std::memcpy(&p, parameters, sizeof p);
  if (p.block[1] != 1 || p.block[2] != 1 || p.extra)
    return refuse(kInvalidValue, "graph: a kernel with more than one dimension of threads, or packed parameters");
  return kernel_work(work, p.function, {{p.grid[0], p.grid[1], p.grid[2]}, p.block[0], p.shared_bytes}, p.parameters);
}

// Whether all nodes of the capture come before `after`: what a joined stream did must be joined back.
bool joined(const Graph& g, const std::vector<size_t>& after) {
  std::vector<bool> before(g.nodes.size());
  std::vector<size_t> rest = after;
  while (!rest.empty()) {
    const size_t i = rest.back();
    rest.pop_back();
    if (before[i]) continue;
    before[i] = true;
    rest.insert(rest.end(), g.nodes[i].after.begin(), g.nodes[i].after.end());
  }
  return std::all_of(before.begin(), before.end(), [](bool b) { return b; });
}

}  // namespace

}  // namespace pyflame::emulator

using namespace pyflame::emulator;

EXPORT hipStreamBeginCapture(void* stream, int mode) {
  const std::lock_guard guard(lock());
  if (!stream) return refuse(kCaptureImplicit, "capture: the legacy stream cannot be captured");
  auto* s = static_cast<Stream*>(stream);
  if (s->capture) return refuse(kInvalidValue, "capture: the stream captures already");
  s->capture = new Graph;
  s->capture_broken = false;
  s->capture_origin = true;
  s->capture_after.clear();
  captures().push_back({s->capture, s, mode, std::this_thread::get_id()});
  return kSuccess;
}

EXPORT hipStreamIsCapturing(void* stream, int* status) {
  const std::lock_guard guard(lock());
  const auto* s = static_cast<const Stream*>(stream);
  *status = !s || !s->capture ? 0 : s->capture_broken ? 2 : 1;
  return kSuccess;
}

EXPORT hipStreamEndCapture(void* stream, void** graph) {
  const std::lock_guard guard(lock());
  auto* s = static_cast<Stream*>(stream);
  *graph = nullptr;
  if (!s || !s->capture || !s->capture_origin) return refuse(kCaptureUnmatched, "capture: the stream does not capture");
  Graph* g = s->capture;
  int error = kSuccess;
  if (s->capture_broken) error = refuse(kCaptureInvalidated, "capture: something that is not permitted has ended it");
  else if (!joined(*g, s->capture_after))
    error = refuse(kCaptureUnjoined, "capture: another stream's work was not joined");
  for (Stream* other : streams())
    if (other->capture == g) {
      other->capture = nullptr;
      other->capture_origin = other->capture_broken = false;
    }
  captures().erase(std::find_if(captures().begin(), captures().end(), [&](const Capture& c) { return c.graph == g; }));
  if (error) delete g;
  else *graph = g;
  return error;
}

EXPORT hipGraphCreate(void** graph, unsigned) {
  const std::lock_guard guard(lock());
  *graph = new Graph;
  return kSuccess;
}

EXPORT hipGraphDestroy(void* graph) {
  const std::lock_guard guard(lock());
  auto* g = static_cast<Graph*>(graph);
  for (NodeHandle* h : g->handles) {
    live_handles().erase(h);
    delete h;
  }
  delete g;
  return kSuccess;
}

EXPORT hipGraphAddKernelNode(void** node, void* graph, const void* const* after, size_t count, const void* parameters) {
  const std::lock_guard guard(lock());
  Node n;
  if (const int error = kernel_of(n.work, parameters)) return error;
  return append(node, graph, after, count, std::move(n));
}

EXPORT hipGraphAddChildGraphNode(void** node, void* graph, const void* const* after, size_t count, void* child) {
  const std::lock_guard guard(lock());
  Node n;
  n.child = std::make_shared<Nodes>(static_cast<Graph*>(child)->nodes);
  return append(node, graph, after, count, std::move(n));
}

EXPORT hipGraphAddEmptyNode(void** node, void* graph, const void* const* after, size_t count) {
  const std::lock_guard guard(lock());
  return append(node, graph, after, count, {});
}

EXPORT hipGraphInstantiateWithFlags(void** exec, void* graph, unsigned long long) {
  const std::lock_guard guard(lock());
  const auto* g = static_cast<const Graph*>(graph);
  *exec = new GraphExec{std::make_shared<Nodes>(g->nodes), g};
  return kSuccess;
}

EXPORT hipGraphExecKernelNodeSetParams(void* exec, void* node, const void* parameters) {
  const std::lock_guard guard(lock());
  auto* e = static_cast<GraphExec*>(exec);
  const auto* h = static_cast<const NodeHandle*>(node);
  if (!live_handles().count(h) || h->graph != e->of || h->index >= e->nodes->size())
    return refuse(kInvalidValue, "graph: not a node of the graph that this was made from, or that graph is gone");
  // What was launched and has not run yet keeps its parameters.
  if (e->nodes.use_count() > 1) e->nodes = std::make_shared<Nodes>(*e->nodes);
  Work& work = (*e->nodes)[h->index].work;
  if (work.kind != Work::Kind::kernel) return refuse(kInvalidValue, "graph: the node is not a kernel");
  return kernel_of(work, parameters);
}

EXPORT hipGraphLaunch(void* exec, void* stream) {
  const std::lock_guard guard(lock());
  auto* s = static_cast<Stream*>(stream);
  if (const int error = refuse_in_capture(*s, "graph launch")) return error;
  const std::shared_ptr<Nodes> nodes = static_cast<GraphExec*>(exec)->nodes;
  put(*s, [nodes] { return run_nodes(*nodes); });
  return kSuccess;
}

EXPORT hipGraphExecDestroy(void* exec) {
  const std::lock_guard guard(lock());
  delete static_cast<GraphExec*>(exec);
  return kSuccess;
}
