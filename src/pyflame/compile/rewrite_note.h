// What a rewrite has done to a graph, or why it has left what is nearly its pattern, for pf.explain().
#pragma once
#include <cstdint>
#include <string>

#include "pyflame/record/ir.h"

namespace pyflame {

enum class Rewrite : uint8_t {
  KeptValues,
  MergedProducts,
  FoldedNorms,
  GroupedHeads,
  FoundAttention,
  FiniteFills,
  SkippedPadding
};

struct RewriteNote {
  Rewrite rewrite;
  bool fired;
  NodeId at;         // the op whose line of the program is named
  std::string text;  // "softmax(q k^T) v -> ..."; or the reason
};

}  // namespace pyflame
