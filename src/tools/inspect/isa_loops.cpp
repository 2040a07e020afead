#include "tools/inspect/isa_loops.h"

#include <algorithm>

namespace pyflame::tools::inspect {

namespace {

// Limits for hostile code: with deeply nested loops, each block belongs to many of them.
constexpr size_t kMostMembers = 4'000'000, kMostLoops = 20'000, kMostSteps = 50'000'000;

bool ends_block(const Op& op) { return (op.kind == OpClass::branch && !op.info->call) || op.kind == OpClass::end; }

std::vector<BasicBlock> find_blocks(const std::vector<Op>& ops) {
  std::vector<char> leader(ops.size() + 1, 0);
  if (!ops.empty()) leader[0] = 1;
  for (size_t i = 0; i < ops.size(); ++i) {
    if (ends_block(ops[i])) leader[i + 1] = 1;
    if (ops[i].target >= 0) leader[static_cast<size_t>(ops[i].target)] = 1;
  }
  std::vector<BasicBlock> blocks;
  std::vector<int32_t> block_of(ops.size() + 1, -1);
  for (uint32_t i = 0; i < ops.size(); ++i) {
    if (leader[i]) blocks.push_back({i, i, {-1, -1}, -1});
    blocks.back().last = i + 1;
    block_of[i] = static_cast<int32_t>(blocks.size()) - 1;
  }
  for (BasicBlock& b : blocks) {
    const Op& end = ops[b.last - 1];
    const bool falls = !ends_block(end) || end.info->conditional;
    int n = 0;
    if (falls && b.last < ops.size()) b.next[n++] = block_of[b.last];
    if (end.target >= 0 && !end.info->call) b.next[n] = block_of[static_cast<size_t>(end.target)];
  }
  return blocks;
}

// Immediate dominators (Cooper, Harvey, Kennedy: "A Simple, Fast Dominance Algorithm").
class Dominators {
 public:
  explicit Dominators(const std::vector<BasicBlock>& blocks) : order_(blocks.size(), -1), idom_(blocks.size(), -1) {
    walk(blocks);
    std::vector<std::vector<int32_t>> before(blocks.size());
    for (size_t b = 0; b < blocks.size(); ++b) {
      for (const int32_t s : blocks[b].next)
        if (s >= 0 && order_[b] >= 0) before[static_cast<size_t>(s)].push_back(static_cast<int32_t>(b));
    }
    if (blocks.empty()) return;
    idom_[0] = 0;
    // Each pass is linear, and real code needs two or three. For code that needs more, fewer loops are found.
    bool changed = true;
    for (int pass = 0; changed && pass < 20; ++pass) {
      changed = false;
      for (size_t i = 1; i < reverse_postorder_.size(); ++i) {
        const int32_t b = reverse_postorder_[i];
        int32_t best = -1;
        for (const int32_t p : before[static_cast<size_t>(b)]) {
          if (idom_[static_cast<size_t>(p)] < 0) continue;
          best = best < 0 ? p : common(p, best);
        }
        if (best != idom_[static_cast<size_t>(b)]) idom_[static_cast<size_t>(b)] = best, changed = true;
      }
    }
    settled_ = !changed && steps_ < kMostSteps;
    number();
  }
  bool settled() const { return settled_; }
  bool reached(int32_t b) const { return order_[static_cast<size_t>(b)] >= 0; }
  bool dominates(int32_t a, int32_t b) const {
    return enter_[static_cast<size_t>(a)] <= enter_[static_cast<size_t>(b)] &&
           leave_[static_cast<size_t>(b)] <= leave_[static_cast<size_t>(a)];
  }

 private:
  void walk(const std::vector<BasicBlock>& blocks) {
    if (blocks.empty()) return;
    std::vector<std::pair<int32_t, int>> stack = {{0, 0}};
    std::vector<char> seen(blocks.size(), 0);
    std::vector<int32_t> postorder;
    seen[0] = 1;
    while (!stack.empty()) {
      auto& [b, n] = stack.back();
      if (n == 2) {
        postorder.push_back(b);
        stack.pop_back();
        continue;
      }
      const int32_t s = blocks[static_cast<size_t>(b)].next[n++];
      if (s >= 0 && !seen[static_cast<size_t>(s)]) {
        seen[static_cast<size_t>(s)] = 1;
        stack.emplace_back(s, 0);
      }
    }
    reverse_postorder_.assign(postorder.rbegin(), postorder.rend());
    for (size_t i = 0; i < reverse_postorder_.size(); ++i)
      order_[static_cast<size_t>(reverse_postorder_[i])] = static_cast<int32_t>(i);
  }
  int32_t common(int32_t a, int32_t b) {
    for (; a != b && steps_ < kMostSteps; ++steps_) {
      while (order_[static_cast<size_t>(a)] > order_[static_cast<size_t>(b)]) a = idom_[static_cast<size_t>(a)];
      while (order_[static_cast<size_t>(b)] > order_[static_cast<size_t>(a)]) b = idom_[static_cast<size_t>(b)];
    }
    return a;
  }
  // With entry and exit times in the tree of dominators, "dominates" is one comparison.
  void number() {
    const size_t n = idom_.size();
    enter_.assign(n, 0);
    leave_.assign(n, 0);
    std::vector<std::vector<int32_t>> children(n);
    for (size_t b = 1; b < n; ++b)
      if (idom_[b] >= 0) children[static_cast<size_t>(idom_[b])].push_back(static_cast<int32_t>(b));
    int32_t time = 0;
    std::vector<std::pair<int32_t, size_t>> stack = {{0, 0}};
    enter_[0] = ++time;
    while (!stack.empty()) {
      auto& [b, i] = stack.back();
      const auto& below = children[static_cast<size_t>(b)];
      if (i == below.size()) {
        leave_[static_cast<size_t>(b)] = ++time;
        stack.pop_back();
      } else {
        const int32_t child = below[i++];
        enter_[static_cast<size_t>(child)] = ++time;
        stack.emplace_back(child, 0);
      }
    }
  }

  std::vector<int32_t> order_, idom_, reverse_postorder_, enter_, leave_;
  size_t steps_ = 0;
  bool settled_ = true;
};

struct BackEdge {
  uint32_t header, from;
};

std::vector<BackEdge> back_edges(const std::vector<BasicBlock>& blocks, const Dominators& dominators) {
  std::vector<BackEdge> edges;
  for (uint32_t b = 0; b < blocks.size(); ++b) {
    if (!dominators.reached(static_cast<int32_t>(b))) continue;
    for (const int32_t s : blocks[b].next) {
      if (s >= 0 && dominators.dominates(s, static_cast<int32_t>(b))) edges.push_back({static_cast<uint32_t>(s), b});
    }
  }
  std::sort(edges.begin(), edges.end(), [](const BackEdge& a, const BackEdge& b) {
    return a.header != b.header ? a.header < b.header : a.from < b.from;
  });
  return edges;
}

void nest(ControlFlow& flow) {
  // Smaller loops claim their blocks first, so that the first claim is the innermost one.
  std::vector<size_t> by_size(flow.loops.size());
  for (size_t i = 0; i < by_size.size(); ++i) by_size[i] = i;
  std::stable_sort(by_size.begin(), by_size.end(),
                   [&](size_t a, size_t b) { return flow.loops[a].blocks.size() < flow.loops[b].blocks.size(); });
  for (const size_t l : by_size) {
    for (const uint32_t b : flow.loops[l].blocks) {
      int32_t inner = flow.blocks[b].loop;
      if (inner < 0) {
        flow.blocks[b].loop = static_cast<int32_t>(l);
        continue;
      }
      // The header of the inner loop is enough to find the loop around it.
      if (flow.loops[static_cast<size_t>(inner)].header != b) continue;
      while (flow.loops[static_cast<size_t>(inner)].parent >= 0) inner = flow.loops[static_cast<size_t>(inner)].parent;
      if (static_cast<size_t>(inner) == l) continue;
      flow.loops[static_cast<size_t>(inner)].parent = static_cast<int>(l);
      flow.loops[l].innermost = false;
    }
  }
  for (auto it = by_size.rbegin(); it != by_size.rend(); ++it) {
    Loop& l = flow.loops[*it];
    if (l.parent >= 0) l.depth = flow.loops[static_cast<size_t>(l.parent)].depth + 1;
  }
}

}  // namespace

ControlFlow control_flow(const std::vector<Op>& ops) {
  ControlFlow flow;
  flow.blocks = find_blocks(ops);
  if (flow.blocks.empty()) return flow;
  const Dominators dominators(flow.blocks);
  if (!dominators.settled()) {
    flow.complete = false;
    return flow;
  }
  const std::vector<BackEdge> edges = back_edges(flow.blocks, dominators);
  if (edges.empty()) return flow;

  std::vector<std::vector<uint32_t>> before(flow.blocks.size());
  for (uint32_t b = 0; b < flow.blocks.size(); ++b) {
    for (const int32_t s : flow.blocks[b].next)
      if (s >= 0 && dominators.reached(static_cast<int32_t>(b))) before[static_cast<size_t>(s)].push_back(b);
  }
  std::vector<uint32_t> mark(flow.blocks.size(), 0);
  uint32_t round = 0;
  size_t members = 0;
  for (size_t e = 0; e < edges.size();) {
    if (flow.loops.size() >= kMostLoops || members > kMostMembers) {
      flow.complete = false;
      break;
    }
    Loop loop;
    loop.header = edges[e].header;
    mark[loop.header] = ++round;
    loop.blocks.push_back(loop.header);
    std::vector<uint32_t> work;
    for (; e < edges.size() && edges[e].header == loop.header; ++e) work.push_back(edges[e].from);
    while (!work.empty()) {
      const uint32_t b = work.back();
      work.pop_back();
      if (mark[b] == round) continue;
      mark[b] = round;
      loop.blocks.push_back(b);
      work.insert(work.end(), before[b].begin(), before[b].end());
    }
    std::sort(loop.blocks.begin(), loop.blocks.end());
    members += loop.blocks.size();
    flow.loops.push_back(std::move(loop));
  }
  nest(flow);
  return flow;
}

}  // namespace pyflame::tools::inspect
