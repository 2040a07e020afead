// Shape arithmetic. Everything that can overflow, and every user error in shapes, is checked here, with the caller's
// name in the message.
#include "pyflame/tensor/dims.h"

namespace pyflame {

std::string Dims::str() const {
  std::string s = "(";
  for (int i = 0; i < n_; ++i) {
    if (i > 0) s += ", ";
    s += std::to_string((*this)[i]);
  }
  return s + (n_ == 1 ? ",)" : ")");
}

Dims broadcast_shapes(const char* op, const Dims& a, const Dims& b) {
  const int n = std::max(a.size(), b.size());
  Dims out = Dims::filled(n, 1);
  for (int i = 1; i <= n; ++i) {
    const int64_t x = i <= a.size() ? a[a.size() - i] : 1;
    const int64_t y = i <= b.size() ? b[b.size() - i] : 1;
    PF_CHECK(x == y || x == 1 || y == 1, Value,
             "{}: shapes do not broadcast; got {} and {}; expected equal sizes or 1 in dim {}, got {} and {}", op,
             a.str(), b.str(), -i, x, y);
    out[n - i] = x == 1 ? y : x;
  }
  return out;
}

int normalize_dim(const char* op, int64_t dim, int rank) {
  const int64_t span = std::max(rank, 1);  // a 0-d tensor accepts the dims 0 and -1
  PF_CHECK(dim >= -span && dim < span, Index,
           "{}: dim out of range; got {}; expected {} <= dim < {} for a tensor with {} dimensions", op, dim, -span,
           span, rank);
  return static_cast<int>(dim < 0 ? dim + span : dim);
}

int64_t checked_numel(const char* op, const Dims& shape) {
  int64_t count = 1;
  bool overflow = false, empty = false;
  for (int64_t v : shape) {
    PF_CHECK(v >= 0, Value, "{}: negative size; got shape {}; expected sizes >= 0", op, shape.str());
    empty = empty || v == 0;
    overflow = __builtin_mul_overflow(count, std::max<int64_t>(v, 1), &count) || overflow;
  }
  if (empty) return 0;
  // Byte counts of 8-byte types have to fit as well.
  PF_CHECK(!overflow && count <= INT64_MAX / 8, Value,
           "{}: too many elements; got shape {}; expected fewer than 2^60 elements", op, shape.str());
  return count;
}

}  // namespace pyflame
