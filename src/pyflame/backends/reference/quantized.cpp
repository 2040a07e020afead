// Weights in GGUF's blocks: decoded exactly, and multiplied as any others. x is not rounded, which other implementations do.
#include "pyflame/backends/reference/access.h"
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

}  // namespace

void run_quantized_linear(const Call& c) {
  const View in = c.in(0), out = c.out(0);
  const auto a = c.node.attr<BlockAttrs>();
  const gguf::Type& type = *gguf::find_type(static_cast<uint32_t>(a.type));
  const int64_t rows = in.shape[0], columns = in.shape[1], outputs = out.shape[1];
  const std::vector<uint8_t> bytes = bytes_of(c.in(1));
  std::vector<float> weight(static_cast<size_t>(outputs * columns));
  if (a.rows == 0) {
    weight = decoded(type, bytes);
  } else {
    const TileShape s{&type, tile_form(type), outputs, columns};
    for (int64_t o = 0; o < outputs; ++o)
      decode_tile_row(s, bytes.data() + o / kTileRows * s.tile_bytes(), o % kTileRows, weight.data() + o * columns);
  }
  const std::vector<double> x = read_all<double>(in);
  std::vector<double> y(static_cast<size_t>(rows * outputs));
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t o = 0; o < outputs; ++o) {
      double sum = 0;
      for (int64_t k = 0; k < columns; ++k)
        sum += x[static_cast<size_t>(i * columns + k)] * weight[static_cast<size_t>(o * columns + k)];
      y[static_cast<size_t>(i * outputs + o)] = sum;
    }
  write_all(out, y);
}

void run_decode_blocks(const Call& c) {
  const auto a = c.node.attr<BlockAttrs>();
  const std::vector<float> y = decoded(*gguf::find_type(static_cast<uint32_t>(a.type)), bytes_of(c.in(0)));
  write_all(c.out(0), std::vector<double>(y.begin(), y.end()));
}

}  // namespace pyflame::reference
