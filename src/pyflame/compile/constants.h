// Separates what a window computes from lasting values alone, the parameters and buffers of modules, from the rest. The
// first part is run once and its results are kept (runtime/kept.h). The rest then takes them as inputs.
#pragma once
#include <optional>
#include <span>
#include <vector>

#include "pyflame/compile/rewrites.h"

namespace pyflame {

// Where the bytes of an external slot come from.
enum class Origin : uint8_t {
  Other,
  Lasting,  // a parameter or a buffer
  Empty,    // it has none yet: what the window writes is all that there is
};

struct Separated {
  Rewritten first, rest;        // the same slots, bindings, params and nodes; each skips what the other one computes
  std::vector<SlotId> roots;    // the lasting values that `first` reads
  std::vector<ParamId> params;  // the window's numbers that `first` uses
  std::vector<BindingId> bindings;  // the views, by their offsets, that `first` reads and writes
  std::vector<SlotId> kept;         // `first` writes them and `rest` reads them
  std::vector<SlotId> empty;        // external slots without bytes that `first` writes
  std::vector<RewriteNote> notes;   // of the rewrites that need constant weights
};
// Nothing: no value is worth being kept; the notes go to `left` then. `active`: the rewrites that are on.
std::optional<Separated> separate(const Rewritten& prepared, const Indexed<SlotId, Origin>& origins, uint32_t active,
                                  std::vector<RewriteNote>* left = nullptr);

// ---- for rewrites that need constant weights (merged_products.cpp, folded_norms.cpp)

// Who uses a slot, in program order.
struct Users {
  std::vector<NodeId> writers, readers;
};

// A graph while it is taken apart.
struct Parts {
  Graph graph;
  Added added;
  Indexed<NodeId, bool> constant;       // computed from lasting values alone
  Indexed<SlotId, bool> constant_slot;  // lasting, or written by constant nodes only
  std::vector<RewriteNote> notes;

  void note(Rewrite r, bool fired, NodeId at, std::string text) { notes.push_back({r, fired, at, std::move(text)}); }
  bool is_constant(const Operand& o) const { return !o.is_param && constant_slot[graph.slot(o)]; }
  // Of nodes that are not constant.
  Indexed<SlotId, Users> users() const;
  // A slot that holds a dense tensor, at its beginning. A constant one is kept.
  Operand add_slot(DType dtype, const Dims& shape, const Dims& strides, bool is_constant);
  // A part of it, from an element on.
  Operand part_of(const Operand& whole, int64_t first, const Dims& shape, const Dims& strides);
  // A node that is computed once; it gets the line of another one. Returns its output.
  Operand add_constant(OpId op, std::vector<Operand> ins, Operand out, NodeId line);
};

Operand with_geometry(Operand o, const Dims& shape, const Dims& strides);
// Whether o is the whole of its slot, row-major.
bool is_whole(const Graph& g, const Operand& o);

void merge_products(Parts& parts);
void fold_norms(Parts& parts);

}  // namespace pyflame
