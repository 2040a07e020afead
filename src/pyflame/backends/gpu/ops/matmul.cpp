// matmul, alone and with elementwise ops on its output. Implementations, best first: a matrix times a few vectors; the
// vendor's library; matrix cores; multiply-adds for everything else. An estimate decides between the library and our
// own kernels: small products are dominated by launches, and if a library cannot compute a group's elementwise ops, a
// loop has to read and write the output again.
#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <optional>

#include "pyflame/backends/gpu/libs/fallback.h"
#include "pyflame/backends/gpu/libs/library.h"
#include "pyflame/backends/gpu/libs/vendor.h"
#include "pyflame/backends/gpu/ops/bias_gradient.h"
#include "pyflame/backends/gpu/ops/gemm.h"
#include "pyflame/backends/gpu/ops/matmul_tiles.h"
#include "pyflame/backends/gpu/shapes/estimate.h"
#include "pyflame/base/error.h"
#include "pyflame/kernels/matmul/gemv_args.h"
#include "pyflame/kernels/matmul/tile_args.h"

namespace pyflame::gpu {

namespace {

// What a configuration may ask of the device. It is known where there is one.
struct Machine {
  int wave = Arch().wave, compute_units = 0, dies = 1;
  bool large_blocks = true;
  Machine() = default;
  explicit Machine(Device d) {
    if (count_devices(d.type) == 0) return;
    const Arch& a = arch_of(d.type, d.index);
    wave = a.wave, compute_units = a.compute_units, dies = a.dies;
    large_blocks = d.type != DeviceType::rocm || wave == 64;
  }
};

// --- the estimate, in microseconds. Only comparisons matter, so it has the figures of a large GPU (estimate.h). They are
// constants, so that the choice, and with it the order of every sum, depends on the shape alone. kLibrary: the time of the
// shortest product by a library.
constexpr double kLaunch = kLaunchUs, kLibrary = 5, kStep = 0.5, kBandwidth = kLargeBandwidth;
struct Rates {
  double own, library;  // operations per microsecond
};
Rates rates(DType d) {
  if (dtype_size(d) == 2 && is_float(d)) return {100e6, 600e6};
  if (d == DType::float64) return {8e6, 40e6};
  return {15e6, 48e6};
}
struct Plan {
  MatmulTile tile;
  int64_t tiles, each, splits;  // workgroups per matrix; steps of `tile.depth` per split; number of splits
  int dies = 1;                 // among which tiles are distributed so that neighbours are together
  int64_t streams = 0;          // workgroups that share the tiles of the last round (stream-K); 0: one tile each
  Plan(const Product& g, bool units) : Plan(g, units, largest(g, units), 0) {}
  // splits: at most so many; 0 leaves it to the plan.
  Plan(const Product& g, bool units, const MatmulTile& wanted, int64_t most_splits) : tile(wanted) {
    // Short sums need no deep steps.
    if (!units)
      while (tile.depth / 2 >= std::max<int64_t>(16, g.k)) tile.depth /= 2;
    tiles = ceil_div(g.m, tile.rows) * ceil_div(g.n, tile.cols);
    // If there are too few tiles and the sum is long, the sum is split; each part is still a few steps long.
    const int64_t steps = ceil_div(std::max<int64_t>(g.k, 1), tile.depth),
                  busy = std::max<int64_t>(tiles * g.batches(), 1);
    const int64_t parts = most_splits > 0 ? most_splits : kEnough / busy;
    each = ceil_div(steps, std::clamp<int64_t>(parts, 1, std::max<int64_t>(1, steps / (most_splits > 0 ? 2 : 8))));
    splits = ceil_div(steps, each);
  }
  std::string name() const {
    std::string name = fmt::format("tile={}x{},splits={}", tile.rows, tile.cols, splits);
    if (tile.waves > 0) name += fmt::format(",waves={}", tile.waves);
    if (tile.stages > 1) name += fmt::format(",stages={}", tile.stages);
    if (dies > 1) name += fmt::format(",dies={}", dies);
    if (streams > 0) name += fmt::format(",streams={}", streams);
    return name;
  }
  // The tiles that have a whole round of the device's `streams` workgroups; the others are shared.
  int64_t whole_tiles() const { return streams > 0 ? tiles / streams * streams : tiles; }
  // Other plans for the product: every tile, with several numbers of splits. Those with the shortest estimate come first.
  static std::vector<Plan> others(const Product& g, bool units, const Machine& machine) {
    constexpr int64_t kSplits[] = {1, 2, 4, 8, 16};
    std::vector<Plan> all = with_splits(kSplits, g, units, machine, Plan(g, units).name());
    std::stable_sort(all.begin(), all.end(),
                     [&](const Plan& a, const Plan& b) { return a.estimate(g, machine) < b.estimate(g, machine); });
    return all;
  }
  // Microseconds, by arithmetic (estimate.h), and what adding parts takes.
  double estimate(const Product& g, const Machine& machine) const {
    const double rows = tile.rows, cols = tile.cols, depth = static_cast<double>(each * tile.depth);
    Figures f;
    if (machine.compute_units > 0) f.units = machine.compute_units;
    f.unit_rate = rates(g.dtype).own / kLargeUnits;
    Work w;
    w.groups = static_cast<double>(tiles * splits * g.batches());
    w.operations = 2 * rows * cols * depth;
    w.cached = (rows + cols) * depth * static_cast<double>(dtype_size(g.dtype));
    w.bytes = g.bytes();
    w.evenly = streams > 0;
    const double parts = streams > 0  ? 2 * static_cast<double>(streams) * rows * cols
                         : splits > 1 ? 2 * static_cast<double>(splits * g.batches() * g.m * g.n)
                                      : 0;
    const bool adds = streams > 0 || splits > 1;
    return launch_us(w, f) + (adds ? kLaunch + parts * 4 / kBandwidth : 0);
  }
  // The plan with this name; "" is the own one.
  static std::optional<Plan> named(const std::string& name, const Product& g, bool units, const Machine& machine) {
    if (name.empty()) return Plan(g, units);
    std::vector<int64_t> splits(64);
    std::iota(splits.begin(), splits.end(), 1);
    for (const Plan& plan : with_splits(splits, g, units, machine))
      if (plan.name() == name) return plan;
    return std::nullopt;
  }
  // The plans that differ in one part from the one with this name.
  static std::vector<Plan> neighbours(const std::string& name, const Product& g, bool units, const Machine& machine) {
    const std::optional<Plan> plan = named(name, g, units, machine);
    if (!plan) return {};
    const int64_t s = plan->splits;
    const int64_t splits[] = {s, s + 1, s + 2, std::max<int64_t>(1, s - 1), s * 3 / 2, std::max<int64_t>(1, s * 3 / 4)};
    std::vector<Plan> all = with_splits(splits, g, units, machine, plan->name());
    std::erase_if(all, [&](const Plan& other) { return differing_parts(other.name(), plan->name()) != 1; });
    return all;
  }

 private:
  // `without`: the name of a plan that is left out.
  static std::vector<Plan> with_splits(std::span<const int64_t> numbers, const Product& g, bool units,
                                       const Machine& machine, const std::string& without = "") {
    std::vector<Plan> all;
    std::vector<std::string> names{without};
    const auto add = [&](const Plan& plan) {
      if (std::find(names.begin(), names.end(), plan.name()) != names.end()) return;
      names.push_back(plan.name());
      all.push_back(plan);
    };
    const std::span<const MatmulTile> usual = matmul_tiles(g.dtype, units);
    // A tile that is not half full is for smaller products.
    std::vector<MatmulTile> more;
    if (units)
      for (const MatmulTile& t : kMoreUnitTiles)
        if (g.m > t.rows / 2 && g.n > t.cols / 2 && (machine.large_blocks || !t.large_blocks)) more.push_back(t);
    for (const int64_t splits : numbers) {
      for (const MatmulTile& tile : usual) add(Plan(g, units, tile, splits));
      if (splits <= 4)
        for (const MatmulTile& tile : more) add(Plan(g, units, tile, splits));
    }
    if (!units) return all;
    more.insert(more.begin(), usual.front());
    for (const MatmulTile& tile : more) {
      Plan plan(g, units, tile, 1);
      if (machine.dies > 1 && plan.tiles > machine.dies) {
        plan.dies = machine.dies;
        add(plan);
        plan.dies = 1;
      }
      // The last round has less than nine tenths of the others' work, and its parts are a few steps long.
      const int64_t groups = machine.compute_units, last = groups > 0 ? plan.tiles % groups : 0;
      if (g.batches() != 1 || last == 0 || last * 10 > groups * 9) continue;
      plan.streams = groups;
      if (last * ceil_div(g.k, tile.depth) >= 4 * groups) add(plan);
    }
    return all;
  }
  static MatmulTile largest(const Product& g, bool units) {
    const std::span<const MatmulTile> all = matmul_tiles(g.dtype, units);
    for (const MatmulTile& t : all)
      if (ceil_div(g.m, t.rows) * ceil_div(g.n, t.cols) * g.batches() >= kEnough) return t;
    return all.back();
  }
};

double own_time(const Product& g) {
  const Plan plan(g, by_units(g.dtype));
  const double busy = std::min(1.0, static_cast<double>(plan.tiles * plan.splits * g.batches()) / 64);
  return (plan.splits > 1 ? 2 : 1) * kLaunch + static_cast<double>(plan.each) * kStep +
         std::max(g.flops() / (rates(g.dtype).own * busy), g.bytes() / kBandwidth);
}
double library_time(const Product& g) {
  return kLibrary + std::max(g.flops() / rates(g.dtype).library, g.bytes() / kBandwidth);
}
// A loop for what the library cannot compute: it reads and writes the output once more.
double loop_time(const Product& g) {
  const double outputs = static_cast<double>(g.m) * static_cast<double>(g.n) * static_cast<double>(g.batches());
  return kLaunch + 2 * outputs * static_cast<double>(dtype_size(g.dtype)) / kBandwidth;
}

// One of our kernels: its texts for aligned and unaligned pointers, and, if the sum is split, the kernel that adds the
// parts.
class OwnProduct : public Executable {
 public:
  OwnProduct(const Problem& p) : product_(p.root()), output_(p), type_(p.graph.device.type) {
    a_ = p.root().ins[0].binding, b_ = p.root().ins[1].binding;
    stored_ = stored_type(product_.dtype);
    vec_ = 16 / dtype_size(product_.dtype);
  }
  size_t workspace() const override {
    if (splits_ < 2) return 0;
    return static_cast<size_t>(splits_ * product_.batches() * product_.m * product_.n) * compute_bytes();
  }

 protected:
  // f16 and bf16 are summed in float.
  size_t compute_bytes() const {
    return std::max<size_t>(static_cast<size_t>(dtype_size(product_.dtype)), is_float(product_.dtype) ? 4 : 1);
  }
  // The kernel that calls `call`, whose last argument is `out`. swapped: (line, vector) are (col, row).
  std::string source(std::initializer_list<const char*> files, unsigned threads, const std::string& shape,
                     const std::string& call, bool swapped, bool many = false, Start start = Start::awaits) const {
    std::string out, parameters;
    if (splits_ > 1) {
      out = fmt::format(
          "struct Out {{ pf::C<{0}>* parts; pf::i64 m, n; PF_DEVICE void operator()(pf::i64 z, pf::i64 {1}, pf::i64 "
          "{2}, pf::C<{0}> x) "
          "const {{ parts[(z * m + row) * n + col] = x; }} enum {{ kMany = 1 }}; }}; const Out out = "
          "{{(pf::C<{0}>*)parts, rows, cols}};",
          stored_, swapped ? "col" : "row", swapped ? "row" : "col");
      parameters = ", void* parts, pf::i64 rows, pf::i64 cols";
    } else {
      out = output_.text(swapped, many);
      parameters = output_.parameters();
    }
    return kernel_source(files, threads,
                         fmt::format("(const {0}* a, const {0}* b, {1} p{2}) {{ {3} {4}; }}", stored_, "pf::" + shape,
                                     parameters, out, call),
                         "", "", start);
  }
  std::string finish_source() const {
    return kernel_source(
        {"matmul/tile.h"}, kGroupThreads,
        fmt::format("(const pf::C<{}>* parts, pf::i64 splits, pf::i64 batches, pf::i64 m, pf::i64 n{}) {{ {} "
                    "pf::add_splits(parts, splits, batches, m, n, out); }}",
                    stored_, output_.parameters(), output_.text(false)));
  }
  template <class S>
  void launch(Kernel& kernel, const RunContext& ctx, const void* a, const void* b, const S& shape,
              std::array<unsigned, 3> grid) {
    arguments_.clear();
    arguments_.add(a), arguments_.add(b), arguments_.add(shape);
    if (splits_ > 1) {
      arguments_.add(ctx.workspace), arguments_.add(product_.m), arguments_.add(product_.n);
      kernel.run(ctx.device, grid, arguments_.pointers.data(), arguments_.sizes);
      const int64_t batches = product_.batches();
      arguments_.clear();
      arguments_.add(ctx.workspace), arguments_.add(splits_), arguments_.add(batches), arguments_.add(product_.m),
          arguments_.add(product_.n);
      output_.append(arguments_, ctx);
      make_finish();
      finish_->run(ctx.device, {groups_for(batches * product_.m * product_.n, kGroupThreads), 1, 1},
                   arguments_.pointers.data(), arguments_.sizes);
      return;
    }
    output_.append(arguments_, ctx);
    kernel.run(ctx.device, grid, arguments_.pointers.data(), arguments_.sizes);
  }
  // The kernels for aligned pointers are made with the executable, so that their compilation starts.
  void make_finish() {
    if (splits_ > 1 && !finish_) finish_.emplace(type_, kGroupThreads, finish_source());
  }

  Product product_;
  Output output_;
  DeviceType type_;
  BindingId a_, b_;
  std::string stored_;
  int64_t vec_ = 1, splits_ = 1;
  Arguments arguments_;

 private:
  std::optional<Kernel> finish_;
};

constexpr auto kUnitsFiles = {"device/mma.h", "matmul/tile.h", "matmul/matrix_cores.h"};

class TileProduct final : public OwnProduct {
 public:
  TileProduct(const Problem& p, bool units)
      : TileProduct(p, units, Plan(Product(p.root()), units), Machine(p.graph.device)) {}
  TileProduct(const Problem& p, bool units, const Plan& plan, const Machine& machine)
      : OwnProduct(p),
        units_(units),
        threads_(plan.tile.waves > 0 ? static_cast<unsigned>(plan.tile.waves * machine.wave) : kGroupThreads),
        side_a_(product_.m, product_.k, product_.a_row, product_.a_col, product_.a_batch, vec_),
        side_b_(product_.n, product_.k, product_.b_col, product_.b_row, product_.b_batch, vec_),
        plan_(plan) {
    const Product& g = product_;
    splits_ = plan_.splits;
    const Dims batch = leading(p.root().outs[0].shape, 2);
    shape_ = {g.m,
              g.n,
              g.k,
              batch.numel(),
              g.a_row,
              g.a_col,
              g.b_row,
              g.b_col,
              plan_.each * plan_.tile.depth,
              splits_,
              view_of(batch, over(p.root().ins[0], batch, 2)),
              view_of(batch, over(p.root().ins[1], batch, 2))};
  }
  size_t workspace() const override {
    if (plan_.streams == 0) return OwnProduct::workspace();
    return static_cast<size_t>(plan_.streams * 2 * plan_.tile.rows * plan_.tile.cols) * sizeof(float);
  }
  void compile() {
    const bool va = side_a_.vectors, vb = side_b_.vectors;
    if (plan_.whole_tiles() > 0) kernel(va, vb);
    if (plan_.streams > 0) pieces_kernel(va, vb), add_kernel(va, vb);
    make_finish();
  }
  void run(const RunContext& ctx) override {
    if (product_.m * product_.n * shape_.batches == 0) return;
    const void *a = ctx.bindings[a_], *b = ctx.bindings[b_];
    const bool va = side_a_.vectors && aligned(a), vb = side_b_.vectors && aligned(b);
    const int64_t whole = plan_.whole_tiles();
    if (whole > 0) launch(kernel(va, vb), ctx, a, b, shape_, tile_grid(whole * splits_, shape_.batches));
    if (plan_.streams == 0) return;
    arguments_.clear();
    arguments_.add(a), arguments_.add(b), arguments_.add(shape_), arguments_.add(ctx.workspace), arguments_.add(whole);
    pieces_kernel(va, vb).run(ctx.device, {static_cast<unsigned>(plan_.streams), 1, 1}, arguments_.pointers.data(),
                              arguments_.sizes);
    arguments_.clear();
    arguments_.add(ctx.workspace), arguments_.add(shape_), arguments_.add(whole), arguments_.add(plan_.streams);
    output_.append(arguments_, ctx);
    const int64_t groups = (plan_.tiles - whole) * (plan_.tile.rows * plan_.tile.cols / kGroupThreads);
    add_kernel(va, vb).run(ctx.device, {static_cast<unsigned>(groups), 1, 1}, arguments_.pointers.data(),
                           arguments_.sizes);
  }
  std::string text(bool va, bool vb) const {
    if (units_)
      return source(kUnitsFiles, threads_, "MatmulShape",
                    fmt::format("pf::matmul_units<{}>(a, b, p, out)", numbers(va, vb, fmt::format(", {}", plan_.dies))),
                    false, true);
    return source({"matmul/tile.h"}, threads_, "MatmulShape",
                  fmt::format("pf::matmul_tile<{}>(a, b, p, out)", numbers(va, vb, "")), false);
  }
  // The kernels of a plan with streams.
  std::string pieces_text(bool va, bool vb) const {
    return kernel_source(kUnitsFiles, threads_,
                         fmt::format("(const {0}* a, const {0}* b, pf::MatmulShape p, float* parts, pf::i64 first) {{ "
                                     "pf::matmul_pieces<pf::UnitsTile<{1}>>(a, b, p, parts, first); }}",
                                     stored_, numbers(va, vb, "")));
  }
  std::string add_text(bool va, bool vb) const {
    return kernel_source(kUnitsFiles, kGroupThreads,
                         fmt::format("(const float* parts, pf::MatmulShape p, pf::i64 first, pf::i64 count{}) {{ {} "
                                     "pf::add_pieces<pf::UnitsTile<{}>>(parts, p, first, count, out); }}",
                                     output_.parameters(), output_.text(false), numbers(va, vb, "")));
  }
  std::string best_text() const { return text(side_a_.vectors, side_b_.vectors); }
  std::vector<std::string> stream_texts() const {
    return {pieces_text(side_a_.vectors, side_b_.vectors), add_text(side_a_.vectors, side_b_.vectors)};
  }

 private:
  // The kernels for aligned and unaligned pointers.
  using Kernels = std::array<std::optional<Kernel>, 4>;
  // The arguments of the kernel's template.
  std::string numbers(bool va, bool vb, const std::string& after_stages) const {
    const MatmulTile& t = plan_.tile;
    return fmt::format("{}, {}, {}, {}, {}{}{}, {}, {}, {}, {}, {}", stored_, t.rows, t.cols, t.depth, t.rest,
                       units_ ? fmt::format(", {}", t.stages) : "", after_stages, threads_, side_a_.along,
                       side_b_.along, va ? vec_ : 1, vb ? vec_ : 1);
  }
  template <class Text>
  Kernel& made(Kernels& kernels, bool va, bool vb, unsigned threads, const Text& text) {
    std::optional<Kernel>& k = kernels[(va ? 1 : 0) + (vb ? 2 : 0)];
    if (!k) k.emplace(type_, threads, text());
    return *k;
  }
  Kernel& kernel(bool va, bool vb) {
    return made(kernels_, va, vb, threads_, [&] { return text(va, vb); });
  }
  Kernel& pieces_kernel(bool va, bool vb) {
    return made(pieces_, va, vb, threads_, [&] { return pieces_text(va, vb); });
  }
  Kernel& add_kernel(bool va, bool vb) {
    return made(adds_, va, vb, kGroupThreads, [&] { return add_text(va, vb); });
  }
  bool units_;
  unsigned threads_;
  Side side_a_, side_b_;
  Plan plan_;
  pf::MatmulShape shape_{};
  Kernels kernels_, pieces_, adds_;
};

// With more vectors, this kernel reads the matrix more slowly than tiles do (measured on an H100 for 16-bit floats: 8
// vectors against 16 rows).
constexpr int64_t kMostVectors = 4;
// Bytes of a matrix of 16-bit floats up to which this kernel is used for one or two vectors.
constexpr double kSmallMatrix = 64 << 20;

class Gemv final : public OwnProduct {
 public:
  explicit Gemv(const Problem& p) : OwnProduct(p) {
    const Product& g = product_;
    swapped_ = g.m <= g.n;  // the vectors are the rows of A, otherwise the columns of B
    const Dims batch = leading(p.root().outs[0].shape, 2);
    const View a = view_of(batch, over(p.root().ins[0], batch, 2)), b = view_of(batch, over(p.root().ins[1], batch, 2));
    if (swapped_) shape_ = {g.n, g.k, batch.numel(), g.b_col, g.b_row, g.a_row, g.a_col, 0, 1, b, a};
    else shape_ = {g.m, g.k, batch.numel(), g.a_row, g.a_col, g.b_col, g.b_row, 0, 1, a, b};
    const Dims &wb = swapped_ ? g.b_batch : g.a_batch, &xb = swapped_ ? g.a_batch : g.b_batch;
    few_ = std::min(g.m, g.n);
    along_ = shape_.w_depth == 1 || g.k == 1;
    vectors_ = along_ ? by_vectors(g.k, shape_.n > 1 ? shape_.w_line : 0, wb, vec_) && shape_.x_depth == 1 &&
                            by_vectors(g.k, few_ > 1 ? shape_.x_line : 0, xb, vec_)
                      : by_vectors(shape_.n, g.k > 1 ? shape_.w_depth : 0, wb, vec_);
    plan();
  }
  void compile() {
    kernel(vectors_);
    make_finish();
  }
  void run(const RunContext& ctx) override {
    if (shape_.n * few_ * shape_.batches == 0) return;
    const void *w = ctx.bindings[swapped_ ? b_ : a_], *x = ctx.bindings[swapped_ ? a_ : b_];
    const bool v = vectors_ && aligned(w) && (!along_ || aligned(x));
    const int64_t blocks = ceil_div(shape_.n, along_ ? threads_ / team_ * lines_ : team_ * (v ? vec_ : 1));
    launch(kernel(v), ctx, w, x, shape_, tile_grid(blocks * splits_, shape_.batches));
  }
  std::string text(bool v) const {
    const std::string call = along_ ? fmt::format("pf::gemv_along<{}, {}, {}, {}, {}, {}, {}>(a, b, p, out)", stored_,
                                                  few_, team_, lines_, ahead_, threads_, v ? vec_ : 1)
                                    : fmt::format("pf::gemv_across<{}, {}, {}, {}, {}>(a, b, p, out)", stored_, few_,
                                                  team_, kGroupThreads, v ? vec_ : 1);
    return source({"matmul/tile.h", "matmul/gemv.h"}, threads_, "GemvShape", call, swapped_, false,
                  along_ ? Start::itself : Start::awaits);
  }
  std::string best_text() const { return text(vectors_); }

 private:
  Kernel& kernel(bool v) {
    std::optional<Kernel>& k = kernels_[v ? 1 : 0];
    if (!k) k.emplace(type_, threads_, text(v));
    return *k;
  }
  // The number of threads that share a line (or own adjacent lines), and whether the sum is split among workgroups.
  void plan() {
    const int64_t outputs = shape_.n * shape_.batches;
    if (along_) {
      const bool many = outputs >= kEnough * 8;  // one line per team fills the GPU
      team_ = many ? 32 : kGroupThreads;
      if (many) threads_ = kGroupThreads / 2;
      lines_ = (few_ > 1 || vec_ > 4) && outputs >= kEnough * 32 ? 2 : 1;
      ahead_ = std::clamp<int64_t>(ceil_div(shape_.k, team_ * vec_), 1, few_ > 1 && lines_ > 1 ? 3 : 4);
      split(ceil_div(outputs * team_, threads_ * lines_), team_ * vec_ * ahead_);
    } else {
      const int64_t vec = vectors_ ? vec_ : 1;
      team_ = 4;
      while (team_ < 32 && outputs / (team_ * 2 * vec) >= kEnough * 2) team_ *= 2;
      split(ceil_div(outputs, team_ * vec), kGroupThreads / team_ * 4);
    }
  }
  // Divides the sum among workgroups, if there are few of them. step: the depth that a workgroup covers at once.
  void split(int64_t groups, int64_t step) {
    const int64_t steps = ceil_div(std::max<int64_t>(shape_.k, 1), step);
    const int64_t wanted =
        std::clamp<int64_t>(kEnough / std::max<int64_t>(groups, 1), 1, std::max<int64_t>(1, steps / 4));
    const int64_t each = ceil_div(steps, wanted);
    splits_ = ceil_div(steps, each);
    shape_.depth = each * step, shape_.splits = splits_;
  }
  bool swapped_ = false, along_ = false, vectors_ = false;
  int64_t few_ = 1, team_ = 32, lines_ = 1, ahead_ = 1;
  unsigned threads_ = kGroupThreads;
  pf::GemvShape shape_{};
  std::array<std::optional<Kernel>, 2> kernels_;
};

// --- the implementations
Refusal accepts_gemv(const Problem& p) {
  const Product g(p.root());
  const int64_t few = std::min(g.m, g.n);
  if (few > kMostVectors) return fmt::format("takes a matrix times up to {} vectors; got {}", kMostVectors, few);
  // Measured on an H100 and an H200: libraries read large 16-bit matrices at full memory speed for any number of vectors,
  // and wider types from 3 vectors on. For one vector this kernel is nearly as fast, and where kernels of a replay overlap, it overlaps with those
  // before and after it.
  const double matrix = g.bytes() - static_cast<double>(few * g.k * dtype_size(g.dtype));
  const Device d = p.graph.device;
  const bool overlaps = count_devices(d.type) > 0 && arch_of(d.type, d.index).early_kernels;
  const int64_t most = dtype_size(g.dtype) > 2 || matrix <= kSmallMatrix || library_refuses_epilogue(p) ? 2
                       : overlaps                                                                       ? 1
                                                                                                        : 0;
  if (few > most && !library_refuses(p, g))
    return fmt::format("is slower than the library for more than {} vectors; got {}", most, few);
  const bool b = g.m <= g.n;
  if ((b ? g.b_row : g.a_col) != 1 && (b ? g.b_col : g.a_row) != 1 && g.k > 1)
    return "the matrix has no contiguous dim";
  return std::nullopt;
}

Refusal slower_library(const Product& g) {
  if (library_time(g) <= own_time(g)) return std::nullopt;
  return fmt::format("{:.1f} us by estimate; a kernel of our own {:.1f} us", library_time(g), own_time(g));
}

Refusal accepts_matmul_library(const Problem& p) {
  const Product g(p.root());
  if (auto no = library_refuses(p, g)) return no;
  if (auto no = library_refuses_epilogue(p)) return no;
  if (auto no = slower_library(g)) return no;
  return library_has_no_kernel(p);
}

const PlainBlas& plain_blas(const Problem& p) { return *vendor(p.graph.device.type).plain_blas; }
Refusal accepts_plain(const Problem& p) {
  const Product g(p.root());
  if (auto no = plain_blas(p).refuses(p)) return no;
  if (auto no = library_refuses(p, g)) return no;
  return slower_library(g);
}

// A group that is faster in two parts: the library's product and a loop.
Refusal better_cut(const Problem& p, const Product& g) {
  if (p.size() == 1 || library_refuses(p, g)) return std::nullopt;
  const double own = own_time(g), cut = library_time(g) + loop_time(g);
  if (own <= cut) return std::nullopt;
  return fmt::format("{:.1f} us by estimate; the library and a loop after it {:.1f} us", own, cut);
}

Refusal accepts_matmul_units(const Problem& p) {
  const Product g(p.root());
  if (!by_units(g.dtype)) return "takes float16 and bfloat16";
  if (!has_units(p)) return "the architecture has no matrix cores";
  return better_cut(p, g);
}

Refusal accepts_tile(const Problem& p) { return better_cut(p, Product(p.root())); }

template <class E>
std::unique_ptr<Executable> compiled(std::unique_ptr<E> e) {
  e->compile();
  return e;
}
// Adds our own kernel as the fallback of a library; it is not compiled before it is needed.
std::unique_ptr<Executable> with_own(const Problem& p, std::unique_ptr<Executable> library, bool named = false) {
  const bool units = by_units(p.root().outs[0].dtype) && has_units(p);
  const Group product = without_sum(p);
  std::unique_ptr<Executable> own = std::make_unique<TileProduct>(Problem{p.graph, product}, units);
  if (p.group.summed >= 0) own = std::make_unique<OneAfterTheOther>(std::move(own), make_sum_later(p));
  return std::make_unique<WithOwn>(std::move(library), std::move(own), named);
}
std::unique_ptr<Executable> make_blas(const Problem& p) { return with_own(p, make_library(p)); }
std::unique_ptr<Executable> make_algorithm(const Problem& p, const std::string& algorithm) {
  return with_own(p, make_library(p, algorithm), true);
}
constexpr LibraryConfigurations kAlgorithms{library_algorithms, make_algorithm, enumerate_library};
std::unique_ptr<Executable> make_plain(const Problem& p) { return with_own(p, plain_blas(p).make(p)); }
std::vector<std::string> list_plain(const Problem& p) {
  const Configurations* c = plain_blas(p).configurations;
  return c ? c->list(p) : std::vector<std::string>();
}
std::unique_ptr<Enumeration> enumerate_plain(const Problem& p) {
  const Configurations* c = plain_blas(p).configurations;
  return c ? c->enumerate(p) : nullptr;
}
std::unique_ptr<Executable> make_plain_solution(const Problem& p, const std::string& name) {
  return with_own(p, plain_blas(p).configurations->make(p, name), true);
}
constexpr LibraryConfigurations kPlainSolutions{list_plain, make_plain_solution, enumerate_plain};
std::unique_ptr<Executable> make_gemv(const Problem& p) { return compiled(std::make_unique<Gemv>(p)); }
std::unique_ptr<Executable> make_units(const Problem& p) { return compiled(std::make_unique<TileProduct>(p, true)); }
std::unique_ptr<Executable> make_tile(const Problem& p) { return compiled(std::make_unique<TileProduct>(p, false)); }
// Tiles and splits of our own kernels.
template <bool kUnits>
class TileConfigurations final : public Configurations {
 public:
  std::vector<std::string> list(const Problem& p) const override {
    return names(Plan::others(Product(p.root()), kUnits, Machine(p.graph.device)));
  }
  std::unique_ptr<Executable> make(const Problem& p, const std::string& name) const override {
    if (const auto plan = Plan::named(name, Product(p.root()), kUnits, Machine(p.graph.device)))
      return compiled(std::make_unique<TileProduct>(p, kUnits, *plan, Machine(p.graph.device)));
    PF_FAIL(Value, "matmul: no such configuration; got '{}'; expected {}", name, one_of(list(p)));
  }
  bool has(const Problem& p, const std::string& name) const override {
    return Plan::named(name, Product(p.root()), kUnits, Machine(p.graph.device)).has_value();
  }
  std::vector<std::string> neighbours(const Problem& p, const std::string& name) const override {
    return names(Plan::neighbours(name, Product(p.root()), kUnits, Machine(p.graph.device)));
  }
  bool for_any_size() const override { return true; }

 private:
  static std::vector<std::string> names(const std::vector<Plan>& plans) {
    std::vector<std::string> all;
    for (const Plan& plan : plans) all.push_back(plan.name());
    return all;
  }
};
constexpr TileConfigurations<true> kUnitTiles;
constexpr TileConfigurations<false> kPlainTiles;

// A product with the sum of one of its operands. On an H100, the sum makes cuBLASLt's product slower by 28 us for 16384
// x 2304 bfloat16, and by 1220 us for 16384 x 50304, which a loop sums in 26 and 570 us. So the loop comes first, and
// the library's sum is used only if a measurement says so.
Refusal accepts_apart(const Problem& p) {
  const Group product = without_sum(p);
  return accepts_matmul_library({p.graph, product});
}
std::unique_ptr<Executable> make_apart(const Problem& p) {
  const Group product = without_sum(p);
  return std::make_unique<OneAfterTheOther>(make_blas({p.graph, product}), make_sum(p));
}
constexpr Impl kSummed[] = {{"gpu.blas_and_loop", accepts_apart, make_apart},
                            {"gpu.blas", accepts_matmul_library, make_blas, &kAlgorithms}};

std::vector<Impl> products(DeviceType type) {
  std::vector<Impl> all{{"gpu.gemv", accepts_gemv, make_gemv},
                        {"gpu.blas", accepts_matmul_library, make_blas, &kAlgorithms}};
  if (const PlainBlas* plain = vendor(type).plain_blas)
    all.push_back({plain->entry, accepts_plain, make_plain, &kPlainSolutions});
  all.push_back({"gpu.matmul_units", accepts_matmul_units, make_units, &kUnitTiles});
  all.push_back({"gpu.matmul", accepts_tile, make_tile, &kPlainTiles});
  return all;
}

}  // namespace

std::span<const Impl> matmul_impls(DeviceType type) {
  if (type == DeviceType::rocm) {
    static const auto* impls = new std::vector<Impl>(products(DeviceType::rocm));
    return *impls;
  }
  static const auto* impls = new std::vector<Impl>(products(DeviceType::cuda));
  return *impls;
}

std::span<const Impl> epilogue_impls(const Problem& p) {
  if (p.group.summed >= 0) return kSummed;
  return op_impls(p);
}

std::string matmul_source(const Problem& p, MatmulEntry entry) {
  if (entry == MatmulEntry::gemv) return Gemv(p).best_text();
  return TileProduct(p, entry == MatmulEntry::units).best_text();
}

std::vector<std::pair<std::string, std::vector<std::string>>> units_configurations(const Problem& p, int wave) {
  Machine machine;
  machine.wave = wave, machine.compute_units = 96, machine.dies = wave == 64 ? 8 : 1, machine.large_blocks = wave == 64;
  std::vector<std::pair<std::string, std::vector<std::string>>> all;
  for (const Plan& plan : Plan::others(Product(p.root()), true, machine)) {
    const TileProduct product(p, true, plan, machine);
    std::vector<std::string> texts{product.best_text()};
    if (plan.streams > 0)
      for (std::string& t : product.stream_texts()) texts.push_back(std::move(t));
    all.emplace_back(plan.name(), std::move(texts));
  }
  return all;
}

}  // namespace pyflame::gpu
