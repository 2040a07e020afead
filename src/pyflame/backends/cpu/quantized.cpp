// Products with weights of a few bits. Each row of x is rounded once to integers of 15 bits with a scale for every 32 elements. Then each tile of
// eight outputs is read once and multiplied with all rows by integer products. Rows of blocks become tiles on the way; tiles that were made
// before (make_tile) are read as they are. Rows of 8-bit floats are decoded in registers, and x is not rounded.
#include <algorithm>

#include "pyflame/backends/cpu/common.h"
#include "pyflame/backends/cpu/vec_float_rows.h"
#include "pyflame/backends/cpu/vec_quantized.h"
#include "pyflame/ops/sequences.h"

namespace pyflame::cpu {

namespace {

constexpr int kTileSlot = 5;                  // of scratch memory
constexpr int64_t kTileGrain = 32768;         // bytes of weights that make another thread pay off, for one row of x
constexpr int64_t kRowsInCache = 128 * 1024;  // bytes of rounded rows that stay in the second-level cache

TileShape shape_of(const BlockAttrs& a, int64_t rows, int64_t columns) {
  TileShape s;
  s.type = gguf::find_type(static_cast<uint32_t>(a.type));
  s.form = tile_form(*s.type);
  s.rows = rows, s.columns = columns;
  return s;
}

// Rounds the rows of x, and multiplies ranges of them.
class Products : public Exec {
 protected:
  Products(const Operand& x, const Operand& y, const Operand& weight, const BlockAttrs& a)
      : x_(x, ws_), y_(y, ws_), weight_(weight) {
    rows_ = x.shape[0], tiled_ = a.rows != 0;
    shape_ = shape_of(a, y.shape[1], x.shape[1]);
    q_ = ws_.take(static_cast<size_t>(vec::kPlanes * x.numel()));
    scale_ = ws_.take(blocks() * sizeof(float)), sum_ = ws_.take(2 * blocks() * sizeof(float));
  }

  vec::RoundedRows round(const RunContext& ctx) const {
    const float* x = x_.get(ctx);
    const vec::RoundedRows rounded{at<int8_t>(ctx, q_), at<float>(ctx, scale_), at<float>(ctx, sum_), shape_.columns};
    parallel_for(rows_, std::max<int64_t>(1, kGrainElements / shape_.columns), [&](int64_t begin, int64_t end) {
      vec::round_rows(x + begin * shape_.columns, end - begin, rounded.from(begin));
    });
    return rounded;
  }
  // y = x times the transposed weight, for some rows.
  void multiply(const uint8_t* weight, const vec::RoundedRows& x, int64_t rows, float* y) const {
    const int64_t grain = std::max<int64_t>(1, kTileGrain / (shape_.tile_bytes() * std::max<int64_t>(1, rows / 2)));
    parallel_for(shape_.tiles(), grain, [&](int64_t begin, int64_t end) {
      const int64_t some = std::max<int64_t>(4, kRowsInCache / (vec::kPlanes * shape_.columns) / 4 * 4);
      for (int64_t row = 0; row < rows; row += some)
        products(weight, begin, end, x.from(row), std::min(some, rows - row), y + row * shape_.rows);
    });
  }
  int64_t weight_bytes() const {
    return tiled_ ? shape_.tiles() * shape_.tile_bytes()
                  : shape_.rows * shape_.columns / shape_.type->elements * shape_.type->bytes;
  }

  In<float> x_;
  Out<float> y_;
  Operand weight_;
  int64_t rows_ = 0;
  bool tiled_ = false;
  TileShape shape_;  // of the weight, or of one group's part

 private:
  size_t blocks() const { return static_cast<size_t>(rows_ * shape_.columns / kTileBlock); }

  void products(const uint8_t* weight, int64_t begin, int64_t end, const vec::RoundedRows& x, int64_t rows,
                float* y) const {
    for (int64_t t = begin; t < end; ++t) {
      const uint8_t* tile = weight + t * shape_.tile_bytes();
      if (!tiled_) {
        auto* made = scratch<uint8_t>(kTileSlot, shape_.tile_bytes());
        make_tile(shape_, weight, t, made);
        tile = made;
      }
      const int64_t first = t * kTileRows;
      vec::tile_product(*shape_.form, tile, x, rows, y + first, shape_.rows, std::min(kTileRows, shape_.rows - first));
    }
  }

  size_t q_ = 0, scale_ = 0, sum_ = 0;
};

class QuantizedLinear final : public Products {
 public:
  explicit QuantizedLinear(const Problem& p)
      : Products(p.root().ins[0], p.root().outs[0], p.root().ins[1], p.root().attr<BlockAttrs>()) {}
  void run(const RunContext& ctx) override {
    float* y = y_.begin(ctx);
    multiply(ctx.ptr<const uint8_t>(weight_), round(ctx), rows_, y);
    y_.finish(ctx);
  }
};

class QuantizedGroups final : public Products {
 public:
  explicit QuantizedGroups(const Problem& p)
      : Products(p.root().ins[0], p.root().outs[0], p.root().ins[2], p.root().attr<BlockAttrs>()),
        ends_(p.root().ins[1]) {}
  void run(const RunContext& ctx) override {
    const auto* ends = ctx.ptr<const int32_t>(ends_);
    const int64_t groups = ends_.numel();
    check_group_ends("quantized_grouped_mm", ends, groups, rows_);
    const vec::RoundedRows x = round(ctx);
    float* y = y_.begin(ctx);
    const auto* weight = ctx.ptr<const uint8_t>(weight_);
    for (int64_t g = 0, begin = 0; g < groups; begin = ends[g++], weight += weight_bytes())
      if (ends[g] > begin) multiply(weight, x.from(begin), ends[g] - begin, y + begin * shape_.rows);
    y_.finish(ctx);
  }

 private:
  Operand ends_;
};

class DecodeBlocks final : public Exec {
 public:
  explicit DecodeBlocks(const Problem& p) : blocks_(p.root().ins[0]), y_(p.root().outs[0], ws_) {
    type_ = gguf::find_type(static_cast<uint32_t>(p.root().attr<BlockAttrs>().type));
  }
  void run(const RunContext& ctx) override {
    const auto* from = ctx.ptr<const uint8_t>(blocks_);
    float* y = y_.begin(ctx);
    const int64_t count = blocks_.numel() / type_->bytes;
    parallel_for(count, kGrainElements / type_->elements, [&](int64_t begin, int64_t end) {
      for (int64_t b = begin; b < end; ++b) type_->decode(from + b * type_->bytes, y + b * type_->elements);
    });
    y_.finish(ctx);
  }

 private:
  Operand blocks_;
  Out<float> y_;
  const gguf::Type* type_;
};

// Multiplies rows of x with rows of 8-bit floats.
class FloatProducts : public Exec {
 public:
  explicit FloatProducts(const Problem& p)
      : x_(p.root().ins[0], ws_),
        y_(p.root().outs[0], ws_),
        weight_(p.root().ins.back()),
        form_(float_form(p, p.root().ins[0].shape[1])),
        rows_(p.root().ins[0].shape[0]),
        outputs_(p.root().outs[0].shape[1]) {}
  void run(const RunContext& ctx) override {
    const float* x = x_.get(ctx);
    float* y = y_.begin(ctx);
    multiply(ctx.ptr<const uint8_t>(weight_), x, rows_, y);
    y_.finish(ctx);
  }
  static Float8Rows float_form(const Problem& p, int64_t columns) {
    return {p.root().attr<BlockAttrs>().type, columns};
  }

 protected:
  void multiply(const uint8_t* weight, const float* x, int64_t rows, float* y) const {
    const int64_t grain = std::max<int64_t>(1, kTileGrain / (form_.row_bytes() * std::max<int64_t>(1, rows / 2)));
    parallel_for(outputs_, grain, [&](int64_t begin, int64_t end) {
      const int64_t some = std::max<int64_t>(4, kRowsInCache / (4 * form_.columns) / 4 * 4);
      for (int64_t row = 0; row < rows; row += some)
        for (int64_t o = begin; o < end; ++o)
          vec::float_row_product(form_, weight + o * form_.row_bytes(), x + row * form_.columns,
                                 std::min(some, rows - row), y + row * outputs_ + o, outputs_);
    });
  }

  In<float> x_;
  Out<float> y_;
  Operand weight_;
  Float8Rows form_;
  int64_t rows_, outputs_;
};

class FloatGroups final : public FloatProducts {
 public:
  explicit FloatGroups(const Problem& p) : FloatProducts(p), ends_(p.root().ins[1]) {}
  void run(const RunContext& ctx) override {
    const auto* ends = ctx.ptr<const int32_t>(ends_);
    const int64_t groups = ends_.numel();
    check_group_ends("quantized_grouped_mm", ends, groups, rows_);
    const float* x = x_.get(ctx);
    float* y = y_.begin(ctx);
    const auto* weight = ctx.ptr<const uint8_t>(weight_);
    for (int64_t g = 0, begin = 0; g < groups; begin = ends[g++], weight += outputs_ * form_.row_bytes())
      if (ends[g] > begin) multiply(weight, x + begin * form_.columns, ends[g] - begin, y + begin * outputs_);
    y_.finish(ctx);
  }

 private:
  Operand ends_;
};

class DecodeFloats final : public Exec {
 public:
  explicit DecodeFloats(const Problem& p)
      : weight_(p.root().ins[0]),
        y_(p.root().outs[0], ws_),
        form_(FloatProducts::float_form(p, p.root().outs[0].shape[1])),
        rows_(p.root().outs[0].shape[0]) {}
  void run(const RunContext& ctx) override {
    const auto* from = ctx.ptr<const uint8_t>(weight_);
    float* y = y_.begin(ctx);
    parallel_for(rows_, std::max<int64_t>(1, kGrainElements / form_.columns), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r)
        vec::decode_float_row(form_, from + r * form_.row_bytes(), y + r * form_.columns);
    });
    y_.finish(ctx);
  }

 private:
  Operand weight_;
  Out<float> y_;
  Float8Rows form_;
  int64_t rows_;
};

template <class E>
std::unique_ptr<Executable> make_exec(const Problem& p) {
  return std::make_unique<E>(p);
}

template <bool kFloats>
Refusal accept(const Problem& p) {
  if (Float8Rows::has(p.root().attr<BlockAttrs>().type) != kFloats)
    return kFloats ? "takes rows of 8-bit floats only" : "takes GGUF's blocks only";
  if (!p.root().ins.back().contiguous) return "takes contiguous blocks only";
  return accept_single(p);
}

}  // namespace

std::span<const Impl> quantized_linear_impls() {
  static const std::array<Impl, 2> list{{{"cpu.float_products", accept<true>, make_exec<FloatProducts>},
                                         {"cpu.integer_products", accept<false>, make_exec<QuantizedLinear>}}};
  return list;
}
std::span<const Impl> quantized_grouped_mm_impls() {
  static const std::array<Impl, 2> list{{{"cpu.float_products", accept<true>, make_exec<FloatGroups>},
                                         {"cpu.integer_products", accept<false>, make_exec<QuantizedGroups>}}};
  return list;
}
std::span<const Impl> decode_blocks_impls() {
  static const std::array<Impl, 2> list{{{"cpu.decode_floats", accept<true>, make_exec<DecodeFloats>},
                                         {"cpu.decode_blocks", accept<false>, make_exec<DecodeBlocks>}}};
  return list;
}

}  // namespace pyflame::cpu
