// Weights in GGUF's blocks and rows of 8-bit floats: decoded exactly, and multiplied as any others. x is not rounded, which other implementations do.
#include "pyflame/backends/reference/access.h"
#include "pyflame/ops/sequences.h"
#include "pyflame/tensor/float8_rows.h"
#include "pyflame/tensor/weight_tiles.h"

namespace pyflame::reference {

namespace {

std::vector<float> decoded(const gguf::Type& type, const std::vector<uint8_t>& blocks) {
  std::vector<float> y(blocks.size() / type.bytes * type.elements);
  for (size_t b = 0; b < blocks.size() / type.bytes; ++b)
    type.decode(blocks.data() + b * type.bytes, y.data() + b * type.elements);
  return y;
}
std::vector<uint8_t> bytes_of(const View& v) {
  const std::vector<int64_t> all = read_all<int64_t>(v);
  return {all.begin(), all.end()};
}

// All rows, from rows of blocks or from tiles.
std::vector<float> weight_of(const Call& c, const View& in, int64_t rows, int64_t columns) {
  const auto a = c.node.attr<BlockAttrs>();
  const std::vector<uint8_t> bytes = bytes_of(in);
  if (Float8Rows::has(a.type)) {
    const Float8Rows s(a.type, columns);
    std::vector<float> values(static_cast<size_t>(rows * columns));
    for (int64_t o = 0; o < rows; ++o) s.decode(bytes.data() + o * s.row_bytes(), values.data() + o * columns);
    return values;
  }
  const gguf::Type& type = *gguf::find_type(static_cast<uint32_t>(a.type));
  if (a.rows == 0) return decoded(type, bytes);
  std::vector<float> weight(static_cast<size_t>(rows * columns));
  const TileShape s{&type, tile_form(type), rows, columns};
  for (int64_t o = 0; o < rows; ++o)
    decode_tile_row(s, bytes.data() + o / kTileRows * s.tile_bytes(), o % kTileRows, weight.data() + o * columns);
  return weight;
}

// Row i of y: row i of x times each row of the weight.
void multiply(const std::vector<double>& x, int64_t i, const float* weight, int64_t columns, int64_t outputs,
              std::vector<double>& y) {
  for (int64_t o = 0; o < outputs; ++o) {
    double sum = 0;
    for (int64_t k = 0; k < columns; ++k) sum += x[static_cast<size_t>(i * columns + k)] * weight[o * columns + k];
    y[static_cast<size_t>(i * outputs + o)] = sum;
  }
}

}  // namespace

void run_quantized_linear(const Call& c) {
  const View in = c.in(0), out = c.out(0);
  const int64_t rows = in.shape[0], outputs = out.shape[1];
  const std::vector<double> x = read_all<double>(in);
  const std::vector<float> weight = weight_of(c, c.in(1), outputs, in.shape[1]);
  std::vector<double> y(static_cast<size_t>(rows * outputs));
  for (int64_t i = 0; i < rows; ++i) multiply(x, i, weight.data(), in.shape[1], outputs, y);
  write_all(out, y);
}

void run_quantized_grouped_mm(const Call& c) {
  const View in = c.in(0), out = c.out(0);
  const std::vector<int64_t> list = read_all<int64_t>(c.in(1));
  const std::vector<int32_t> ends(list.begin(), list.end());
  const int64_t rows = in.shape[0], columns = in.shape[1], outputs = out.shape[1];
  const auto groups = static_cast<int64_t>(ends.size());
  check_group_ends(c.name(), ends.data(), groups, rows);
  const std::vector<double> x = read_all<double>(in);
  const std::vector<float> weight = weight_of(c, c.in(2), groups * outputs, columns);
  std::vector<double> y(static_cast<size_t>(rows * outputs));
  for (int64_t i = 0, g = 0; i < rows; ++i) {
    while (ends[static_cast<size_t>(g)] <= i) ++g;
    multiply(x, i, weight.data() + g * outputs * columns, columns, outputs, y);
  }
  write_all(out, y);
}

void run_decode_blocks(const Call& c) {
  const View out = c.out(0);
  const std::vector<float> y = weight_of(c, c.in(0), out.shape[0], out.shape[1]);
  write_all(out, std::vector<double>(y.begin(), y.end()));
}

}  // namespace pyflame::reference
