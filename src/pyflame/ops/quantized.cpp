// Products with weights that stay in GGUF's blocks of a few bits, or in rows of 8-bit floats. There are no gradients.
#include "pyflame/backends/backend.h"
#include "pyflame/base/threads.h"
#include "pyflame/ops/family.h"
#include "pyflame/ops/rows_of_blocks.h"
#include "pyflame/tensor/float8_rows.h"
#include "pyflame/tensor/weight_planes.h"
#include "pyflame/tensor/weight_tiles.h"

namespace pyflame {

namespace {

// The types that products take.
std::string types_of_products() {
  std::string names;
  for (const gguf::Type& type : gguf::types())
    if (tile_form(type)) names += std::string(type.name) + ", ";
  return names + float8_type_names();
}

// A type of weights: GGUF's blocks, or rows of 8-bit floats.
struct WeightType {
  std::string name;
  const gguf::Type* blocks = nullptr;  // null: rows of 8-bit floats
  Float8Type floats;

  bool has_products() const { return !blocks || tile_form(*blocks); }
  int64_t elements() const { return blocks ? blocks->elements : kFloat8Unit; }  // a row has a multiple of so many
  int64_t row_bytes(int64_t columns) const {
    return blocks ? columns / blocks->elements * blocks->bytes : Float8Rows(floats, columns).row_bytes();
  }
  // The shape of weights in the order in which a backend multiplies them.
  Dims ordered_shape(bool in_planes, int64_t rows, int64_t columns) const {
    if (!blocks) return {rows, row_bytes(columns)};
    if (in_planes) return {rows, PlaneShape{blocks, plane_form(*blocks), rows, columns}.row_bytes()};
    const TileShape s{blocks, tile_form(*blocks), rows, columns};
    return {s.tiles(), s.tile_bytes()};
  }
  BlockAttrs attrs(int64_t tiled_rows, int64_t columns) const {
    if (blocks) return {int64_t{blocks->id}, tiled_rows};
    return {Float8Rows(floats, columns).number(), 0};
  }
};

std::optional<WeightType> find_type(const std::string& name) {
  if (const auto floats = float8_type(name)) return WeightType{name, nullptr, *floats};
  const gguf::Type* type = gguf::find_type(std::string_view(name));
  if (!type || !type->decode) return std::nullopt;
  return WeightType{name, type, {}};
}
WeightType type_of(const char* op, const std::string& name) {
  const std::optional<WeightType> type = find_type(name);
  PF_CHECK(type, Value, "{}: no blocks of this type can be decoded; got '{}'; expected one of {}", op, name,
           types_of_products());
  return *type;
}
WeightType type_of_product(const char* op, const std::string& name) {
  WeightType type = type_of(op, name);
  PF_CHECK(type.has_products(), NotImplemented,
           "{}: this type is not available; got '{}'; expected one of {}; hint: decode the weights on the CPU", op,
           name, types_of_products());
  return type;
}

void check_blocks(const char* op, const Tensor& blocks) {
  PF_CHECK(blocks.dtype() == DType::uint8, Type, "{}: the weights are no bytes; got {}; expected uint8", op,
           dtype_name(blocks.dtype()));
  PF_CHECK(blocks.dim() == 2, Value,
           "{}: the weights are no rows of blocks; got shape {}; expected [rows, bytes of a row]", op,
           blocks.shape().str());
  PF_CHECK(
      find_backend(blocks.device().type)->computes_with_blocks(), NotImplemented,
      "{}: there is no kernel for this device; got {}; expected another; hint: decode the weights before they go there",
      op, blocks.device().str());
}

// The number of weights in a row of blocks.
int64_t columns_of(const char* op, const Tensor& blocks, const WeightType& type) {
  const int64_t bytes = blocks.size(1);
  if (!type.blocks) {
    const int64_t columns = float8_columns(type.floats, bytes);
    PF_CHECK(columns >= 0, Value,
             "{}: a row has no codes and scales of this type; got {} bytes of {}; expected a multiple of {} codes, "
             "their scales of 4 bytes, and zeros up to a multiple of 16 bytes",
             op, bytes, type.name, kFloat8Unit);
    return columns;
  }
  PF_CHECK(bytes % type.blocks->bytes == 0, Value,
           "{}: a row is no whole number of blocks; got {} bytes; expected a multiple of {}'s {}", op, bytes, type.name,
           type.blocks->bytes);
  return bytes / type.blocks->bytes * type.blocks->elements;
}

const Backend& backend_of(const Tensor& t) { return *find_backend(t.device().type); }

Tensor decoded(const Tensor& blocks, const WeightType& type, const Dims& shape, DType dtype, int64_t rows) {
  return emit(OpId::decode_blocks, {contiguous(blocks)}, shape, dtype, type.attrs(rows, shape[1]));
}

// The same bytes in another order.
Tensor planes(const PlaneShape& s, const Tensor& blocks) {
  const Tensor from = reshape(blocks, {s.rows, s.blocks(), s.type->bytes});
  Tensors parts;
  for (const BlockPart& p : s.form->parts)
    if (p.bytes > 0) parts.push_back(reshape(narrow(from, 2, p.at, p.bytes), {s.rows, s.blocks() * p.bytes}));
  if (s.padding() > 0) parts.push_back(zeros({s.rows, s.padding()}, DType::uint8, blocks.device()));
  return cat(parts, 1);
}

// The rows of all pieces in their order, as one matrix.
Tensor joined(const std::vector<RowsOfBlocks>& pieces) {
  Tensors parts;
  for (const RowsOfBlocks& p : pieces) {
    const int64_t rows = p.blocks.size(0), bytes = p.blocks.size(1);
    parts.push_back(p.heads == 0 ? p.blocks
                                 : reshape(transpose(reshape(p.blocks, {p.heads, rows / p.heads / 2, 2, bytes}), 1, 2),
                                           {rows, bytes}));
  }
  return parts.size() == 1 ? parts.front() : cat(parts, 0);
}

// Where each of these rows is in the host's memory.
std::vector<const uint8_t*> places(const std::vector<RowsOfBlocks>& pieces, Tensors& kept) {
  std::vector<const uint8_t*> rows;
  for (const RowsOfBlocks& p : pieces) {
    kept.push_back(contiguous(p.blocks));
    const auto* from = static_cast<const uint8_t*>(kept.back().data());
    const int64_t count = p.blocks.size(0), bytes = p.blocks.size(1);
    const int64_t head = p.heads == 0 ? 0 : count / p.heads, half = head / 2;
    for (int64_t i = 0; i < count; ++i) {
      const int64_t in_head = head == 0 ? 0 : i % head;
      const int64_t row = head == 0 ? i : i - in_head + in_head % half * 2 + in_head / half;
      rows.push_back(from + row * bytes);
    }
  }
  return rows;
}

}  // namespace

Tensor quantized_linear(const Tensor& x, const Tensor& weight, const std::string& type_name, const Tensor& bias,
                        int64_t rows) {
  constexpr const char* kOp = "quantized_linear";
  check_same_device(kOp, {x, weight, bias});
  check_float(kOp, x);
  check_blocks(kOp, weight);
  const WeightType type = type_of_product(kOp, type_name);
  PF_CHECK(x.dim() >= 1, Value, "{}: the input has no dims; got a number; expected [..., K]", kOp);
  const int64_t columns = x.size(-1);
  PF_CHECK(columns % type.elements() == 0, Value,
           "{}: the rows of the input are no whole blocks; got {} elements; expected a multiple of {}'s {}", kOp,
           columns, type.name, type.elements());
  const Backend& backend = backend_of(weight);
  const int64_t outputs = rows != 0 ? rows : weight.size(0);
  const Dims expected = rows != 0 ? type.ordered_shape(backend.blocks_in_planes(), rows, columns)
                                  : Dims{outputs, type.row_bytes(columns)};
  PF_CHECK(rows >= 0 && weight.shape() == expected, Value,
           "{}: input and weight do not fit; got weight {} for {} of {} elements; expected {}", kOp,
           weight.shape().str(),
           rows != 0 ? fmt::format("{} of {} rows", backend.blocks_in_planes() ? "planes" : "tiles", rows)
                     : std::string("rows"),
           columns, expected.str());
  if (bias) {
    check_same_dtype(kOp, x, bias);
    PF_CHECK(bias.shape() == Dims{outputs}, Value, "{}: the bias does not fit; got {}; expected [{}]", kOp,
             bias.shape().str(), outputs);
  }
  PF_CHECK(
      !any_requires_grad({x, bias}), NotImplemented,
      "{}: there are no gradients; got an input that requires one; expected inference; hint: call it under no_grad, or "
      "decode the weights",
      kOp);
  Dims shape = x.shape();
  shape.back() = outputs;
  if (shape.numel() == 0) return empty(shape, x.dtype(), x.device());
  const int64_t count = shape.numel() / outputs;
  const Dims product{count, outputs};
  Tensor out;
  if (columns == 0) {
    out = zeros(product, x.dtype(), x.device());
  } else if (count > backend.most_rows_of_blocks()) {
    out = matmul(reshape(x, {count, columns}),
                 transpose(decoded(weight, type, {outputs, columns}, x.dtype(), rows), 0, 1));
  } else {
    out = emit(OpId::quantized_linear, {reshape(x, {count, columns}), contiguous(weight)}, product, x.dtype(),
               type.attrs(rows, columns));
  }
  out = reshape(out, shape);
  return bias ? add(out, bias) : out;
}

Tensor quantized_grouped_mm(const Tensor& x, const Tensor& weight, const std::string& type_name, const Tensor& ends,
                            int64_t rows) {
  constexpr const char* kOp = "quantized_grouped_mm";
  check_same_device(kOp, {x, weight, ends});
  check_float(kOp, x);
  check_blocks(kOp, weight);
  const WeightType type = type_of_product(kOp, type_name);
  PF_CHECK(x.dim() == 2 && x.size(1) > 0 && x.size(1) % type.elements() == 0, Value,
           "{}: the input is no rows of whole blocks; got {}; expected [M, K] with a multiple of {}'s {}", kOp,
           x.shape().str(), type.name, type.elements());
  PF_CHECK(ends.dtype() == DType::int32 && ends.dim() == 1 && ends.size(0) > 0, Type,
           "{}: offs is no list of ends; got {} {}; expected int32 [G]", kOp, dtype_name(ends.dtype()),
           ends.shape().str());
  const Backend& backend = backend_of(weight);
  const int64_t columns = x.size(1), all = rows != 0 ? rows : weight.size(0), groups = ends.size(0);
  const Dims expected =
      rows != 0 ? type.ordered_shape(backend.blocks_in_planes(), rows, columns) : Dims{all, type.row_bytes(columns)};
  PF_CHECK(rows >= 0 && weight.shape() == expected, Value,
           "{}: input and weight do not fit; got weight {} for {} rows of {} elements; expected {}", kOp,
           weight.shape().str(), all, columns, expected.str());
  PF_CHECK(all % groups == 0, Value,
           "{}: the weight's rows do not divide among the groups; got {} rows and {} groups; expected a multiple", kOp,
           all, groups);
  PF_CHECK(rows == 0 || !type.blocks || backend.blocks_in_planes() || all / groups % kTileRows == 0, Value,
           "{}: a tile would belong to two groups; got {} rows for each group; expected a multiple of {}; hint: pass "
           "rows of blocks",
           kOp, all / groups, kTileRows);
  PF_CHECK(!any_requires_grad({x}), NotImplemented,
           "{}: there are no gradients; got an input that requires one; expected inference; hint: call it under "
           "no_grad, or decode the weights",
           kOp);
  const Dims shape{x.size(0), all / groups};
  if (shape.numel() == 0) return empty(shape, x.dtype(), x.device());
  // For each row, the weights of its group are read. Many rows pay for decoding all weights once: that writes and reads them at 16 bits.
  constexpr int64_t kRowsOfGroup = 8;
  const int64_t most = backend.most_rows_of_blocks();
  if (most != INT64_MAX && x.size(0) > std::max(most, kRowsOfGroup * groups)) {
    const Tensor w = reshape(decoded(weight, type, {all, columns}, x.dtype(), rows), {groups, shape[1], columns});
    return grouped_mm(x, transpose(w, 1, 2), ends);
  }
  return emit(OpId::quantized_grouped_mm, {x, contiguous(ends), contiguous(weight)}, shape, x.dtype(),
              type.attrs(rows, columns));
}

Tensor decode_blocks(const Tensor& blocks, const std::string& type_name) {
  constexpr const char* kOp = "decode_blocks";
  check_blocks(kOp, blocks);
  const WeightType type =
      backend_of(blocks).blocks_in_planes() ? type_of_product(kOp, type_name) : type_of(kOp, type_name);
  const Dims shape{blocks.size(0), columns_of(kOp, blocks, type)};
  if (shape.numel() == 0) return empty(shape, DType::float32, blocks.device());
  return decoded(blocks, type, shape, DType::float32, 0);
}

Tensor tiles_of_rows(const std::vector<RowsOfBlocks>& pieces, const std::string& type_name) {
  constexpr const char* kOp = "weight_tiles";
  PF_CHECK(!pieces.empty(), Value, "{}: there are no weights; got no rows; expected at least one piece", kOp);
  const Tensor& first = pieces.front().blocks;
  int64_t all_rows = 0;
  for (const RowsOfBlocks& p : pieces) {
    check_blocks(kOp, p.blocks);
    check_same_device(kOp, {first, p.blocks});
    PF_CHECK(p.blocks.size(1) == first.size(1), Value, "{}: the rows do not fit; got {} and {} bytes; expected equal",
             kOp, first.size(1), p.blocks.size(1));
    PF_CHECK(p.heads >= 0 && (p.heads == 0 || p.blocks.size(0) % (2 * p.heads) == 0), Value,
             "{}: the rows are no pairs of heads; got {} rows and {} heads; expected a multiple of {}", kOp,
             p.blocks.size(0), p.heads, 2 * p.heads);
    all_rows += p.blocks.size(0);
  }
  const WeightType type = type_of_product(kOp, type_name);
  const int64_t columns = columns_of(kOp, first, type);
  if (!type.blocks) return contiguous(joined(pieces));
  const TileShape s{type.blocks, tile_form(*type.blocks), all_rows, columns};
  const Device device = first.device();
  if (backend_of(first).blocks_in_planes()) {
    const PlaneShape p{s.type, plane_form(*s.type), s.rows, s.columns};
    return s.rows * s.columns == 0 ? empty({s.rows, p.row_bytes()}, DType::uint8, device) : planes(p, joined(pieces));
  }
  const Tensor out = empty({s.tiles(), s.tile_bytes()}, DType::uint8, device);
  if (out.numel() == 0 || !find_backend(device.type)->executes()) return out;
  Tensors kept;  // rows that are no view have their bytes here
  const std::vector<const uint8_t*> rows = places(pieces, kept);
  auto* to = static_cast<uint8_t*>(out.mutable_data());
  parallel_for(s.tiles(), 16, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const int64_t at = t * kTileRows, count = std::min(kTileRows, s.rows - at);
      make_tile(s, std::span(rows).subspan(static_cast<size_t>(at), static_cast<size_t>(count)),
                to + t * s.tile_bytes());
    }
  });
  return out;
}

int64_t bytes_of_products(const std::string& type_name, int64_t rows, int64_t columns, bool in_planes) {
  const std::optional<WeightType> type = find_type(type_name);
  if (!type || !type->has_products() || columns % type->elements() != 0) return 0;
  return type->ordered_shape(in_planes, rows, columns).numel();
}

Tensor weight_tiles(const Tensor& blocks, const std::string& type_name) {
  return tiles_of_rows(std::vector<RowsOfBlocks>{{blocks, 0}}, type_name);
}

}  // namespace pyflame
