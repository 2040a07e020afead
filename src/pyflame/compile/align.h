// Fits a node into the iteration space of a Loop or Epilogue group: pure functions on values.
//
// Takes    a node, the space of a group, and the group's members over that space.
// Returns  the node over the space, its role, and the space of the group with the node; nothing if the node does not
// fit. If the
//          space has to change for the node, also the members over the new space.
// Ensures  every operand has the space's rank, with size 1 and stride 0 where it is broadcast. Element i of the space
// is the same
//          element of the node as before, so nodes that access memory with the same geometry do so at the same point of the loop.
#pragma once
#include <optional>
#include <span>
#include <vector>

#include "pyflame/backends/backend.h"

namespace pyflame {

struct Space {
  Dims natural;           // in the order in which its nodes count their elements
  std::vector<int> perm;  // reductions permute the dims: dims = natural permuted; empty: dims = natural
  Dims dims;              // Group::space
  int split = 0;          // Group::split
  bool rows = false;      // a member is a row reduction
  bool columns = false;   // a member is a column reduction
  bool indexed = false;   // a member depends on the linear index
  bool loop = true;       // false: of an Epilogue, where the root determines it

  // The space of nodes over dims, before any reduction.
  static Space over(const Dims& dims, bool loop);
  bool reduced() const { return rows || columns; }
};

struct Aligned {
  Node node;
  Role role = Role::Map;
  Space space;
  std::vector<Node> members;  // empty: unchanged
};
std::optional<Aligned> align(const Node& n, const Space& space, std::span<const Node> members);

// Rewrites an operand that broadcasts to `from` to the shape `to` (as many elements, in the same order). False:
// impossible.
bool restride(Operand& o, const Dims& from, const Dims& to);
// Whether both access the same elements at the same points of a loop.
bool same_geometry(const Operand& a, const Operand& b);

}  // namespace pyflame
