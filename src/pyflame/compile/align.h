// A node in the iteration space of a Loop or Epilogue group: pure functions on values.
//
// Takes    a node, the space of a group, and the group's members over that space.
// Returns  the node over the space, its role, and the space that the group has with it; nothing where the node does not fit. Where the
//          space has to change for the node, the members over the new space too.
// Holds    every operand has the space's rank, with size 1 and stride 0 where it is broadcast; element i of the space is the same element
//          of the node as before, so that two nodes which touch memory with the same geometry touch it at the same point of the loop.
#pragma once
#include <optional>
#include <span>
#include <vector>

#include "pyflame/backends/backend.h"

namespace pyflame {

struct Space {
  Dims natural;           // in the order in which its nodes count their elements
  std::vector<int> perm;  // reductions order the dims: dims = natural permuted; empty: dims = natural
  Dims dims;              // Group::space
  int split = 0;          // Group::split
  bool rows = false;      // a member reduces rows
  bool columns = false;   // a member reduces columns
  bool indexed = false;   // a member depends on the linear index
  bool loop = true;       // false: an Epilogue's, which its root prescribes

  // Nodes over dims, none of which is reduced yet.
  static Space over(const Dims& dims, bool loop);
  bool reduced() const { return rows || columns; }
};

struct Aligned {
  Node node;
  Role role = Role::Map;
  Space space;
  std::vector<Node> members;  // empty: as they were
};
std::optional<Aligned> align(const Node& n, const Space& space, std::span<const Node> members);

// The operand, which broadcasts to `from`, as an operand over `to` (as many elements in the same order). False: there is none.
bool restride(Operand& o, const Dims& from, const Dims& to);
// Whether both touch the same elements at the same points of a loop.
bool same_geometry(const Operand& a, const Operand& b);

}  // namespace pyflame
