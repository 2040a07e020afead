// Rewrites: passes over the recorded graph that replace a pattern by something cheaper. docs/rewrites.md lists them.
//
// Each has a name and a promise. An exact one gives the same bits and is on by default. The others stay within the
// tolerance of python/pyflame/testing/tolerance.py, because sums are made in another order, and are off by default.
#pragma once
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "pyflame/compile/added.h"

namespace pyflame {

struct RewriteInfo {
  const char* name;
  bool exact;
  const char* describe;      // one sentence
  bool whole_steps = false;  // its pattern has ops of the forward and of the backward pass (record/rewrite_mask.h)
};
std::span<const RewriteInfo> rewrite_table();  // by Rewrite
const RewriteInfo& rewrite_info(Rewrite r);
Rewrite rewrite_from_name(std::string_view name);  // KeyError

// `active`: the bits of a window (rewrites_of).
constexpr bool is_on(uint32_t active, Rewrite r) { return active >> static_cast<int>(r) & 1; }
bool rewrite_on(Rewrite r);
// For windows that begin from now on. Returns whether it was on. The bits at first: all exact ones, and PYFLAME_REWRITES.
bool set_rewrite(Rewrite r, bool on);
// Called before the first window begins; ValueError if PYFLAME_REWRITES names no rewrite.
void read_rewrites_from_environment();

// How often a rewrite has changed a program of this process.
uint64_t times_fired(Rewrite r);
// Counts those of the notes that say that a rewrite has fired.
void count_fired(const std::vector<RewriteNote>& notes);

// The rewrites that need no values: those of attention (attention_patterns.cpp, padding.cpp).
Rewritten rewrite_graph(Graph graph, uint32_t active);

Rewritten group_heads(Rewritten graph);
Rewritten skip_padding(Rewritten graph);
// finite_fills: also if the mask is a finite number that counts as hiding (ops/hides.h).
Rewritten find_attention(Rewritten graph, bool finite_fills = false);

}  // namespace pyflame
