#include "pyflame/compile/rewrites.h"

#include <array>
#include <atomic>
#include <string>

#include "pyflame/base/env.h"
#include "pyflame/base/error.h"
#include "pyflame/record/rewrite_mask.h"

namespace pyflame {

namespace {

constexpr std::array<RewriteInfo, 7> kRewrites = {{
    {"kept_values", true,
     "What is computed from parameters and buffers alone is computed once, and again when one of them has changed."},
    {"merged_products", false,
     "Products of one tensor with several weights that do not change are one product with the weights side by side."},
    {"folded_norms", false,
     "A scale per channel that does not change, as of a batch norm in evaluation, becomes part of the weight of the "
     "convolution or linear layer before it."},
    {"grouped_heads", false,
     "Attention reads key and value heads that were repeated where they are, without the copies."},
    {"found_attention", false,
     "softmax(q k^T * scale + mask) v, written as products and a softmax, is one attention op, and its gradient "
     "another one.",
     true},
    {"finite_fills", false,
     "found_attention also takes a mask that fills in a finite number of at most -1e4, for scores that are smaller in "
     "size than this number less 104."},
    {"skipped_padding", false,
     "Attention leaves out the queries at positions of padding, which a mask hides from all queries, where nothing "
     "reads "
     "their results.",
     true},
}};

std::array<std::atomic<uint64_t>, kRewrites.size()> g_fired{};

uint32_t bit(Rewrite r) { return 1u << static_cast<int>(r); }

// "name,name"; a minus in front switches one off.
uint32_t parse_rewrites(const std::string& text, uint32_t active) {
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    const bool off = text[at] == '-';
    const std::string name = text.substr(at + off, end - at - off);
    if (!name.empty()) {
      const Rewrite r = rewrite_from_name(name);
      active = off ? active & ~bit(r) : active | bit(r);
    }
    at = end + 1;
  }
  return active;
}

}  // namespace

std::span<const RewriteInfo> rewrite_table() { return kRewrites; }
const RewriteInfo& rewrite_info(Rewrite r) { return kRewrites[static_cast<size_t>(r)]; }

Rewrite rewrite_from_name(std::string_view name) {
  std::string known;
  for (size_t i = 0; i < kRewrites.size(); ++i) {
    if (name == kRewrites[i].name) return static_cast<Rewrite>(i);
    known += (i ? ", " : "") + std::string(kRewrites[i].name);
  }
  PF_FAIL(Key, "rewrites: no such rewrite; got '{}'; expected one of {}", name, known);
}

bool rewrite_on(Rewrite r) { return is_on(active_rewrites().load(), r); }

bool set_rewrite(Rewrite r, bool on) {
  std::atomic<uint32_t>& bits = active_rewrites();
  return (on ? bits.fetch_or(bit(r)) : bits.fetch_and(~bit(r))) & bit(r);
}

void read_rewrites_from_environment() {
  uint32_t active = 0, whole_steps = 0;
  for (size_t i = 0; i < kRewrites.size(); ++i) {
    if (kRewrites[i].exact) active |= bit(static_cast<Rewrite>(i));
    if (kRewrites[i].whole_steps) whole_steps |= bit(static_cast<Rewrite>(i));
  }
  rewrites_of_whole_steps().store(whole_steps);
  try {
    active = parse_rewrites(env::rewrites(), active);
  } catch (const Error& e) {
    active_rewrites().store(active);
    PF_FAIL(Value, "PYFLAME_REWRITES: {}", e.what());
  }
  active_rewrites().store(active);
}

uint64_t times_fired(Rewrite r) { return g_fired[static_cast<size_t>(r)].load(); }
void count_fired(const std::vector<RewriteNote>& notes) {
  for (const RewriteNote& n : notes)
    if (n.fired) g_fired[static_cast<size_t>(n.rewrite)].fetch_add(1);
}

Rewritten rewrite_graph(Graph recorded, uint32_t active) {
  Rewritten graph{std::move(recorded), {}, {}};
  if (is_on(active, Rewrite::FoundAttention))
    graph = find_attention(std::move(graph), is_on(active, Rewrite::FiniteFills));
  if (is_on(active, Rewrite::GroupedHeads)) graph = group_heads(std::move(graph));
  if (is_on(active, Rewrite::SkippedPadding)) graph = skip_padding(std::move(graph));
  return graph;
}

}  // namespace pyflame
