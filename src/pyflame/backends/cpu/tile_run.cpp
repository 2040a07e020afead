// Runs tile programs. Threads get pieces whose bounds depend on the shape; a piece is processed tile by tile.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

#include "pyflame/backends/cpu/tile.h"
#include "pyflame/backends/cpu/tile_program.h"
#include "pyflame/backends/cpu/vec.h"
#include "pyflame/base/error.h"
#include "pyflame/base/threads.h"

namespace pyflame::cpu::tile {
namespace {

constexpr int64_t kInlineWork =
    32768;  // simple instructions x elements; below this, using another thread does not pay off

struct FreeDeleter {
  void operator()(void* p) const { std::free(p); }
};
using Bytes = std::unique_ptr<char, FreeDeleter>;

Bytes allocate(int64_t nbytes) {
  char* p = static_cast<char*>(std::aligned_alloc(64, (nbytes + 63) / 64 * 64));
  PF_CHECK(p, OutOfMemory, "tile: out of memory; asked for {} bytes", nbytes);
  return Bytes(p);
}

// Memory of the calling thread, kept between runs. Slot 0: elements, slot 1: rows.
char* scratch(int slot, int64_t nbytes) {
  struct Kept {
    Bytes bytes;
    int64_t size = 0;
  };
  thread_local Kept kept[2];
  Kept& k = kept[slot];
  if (k.size < nbytes) {
    k.bytes = allocate(nbytes);
    k.size = nbytes;
  }
  return k.bytes.get();
}

// An array that is on the stack if it is small.
template <class T, int64_t kInline>
class Small {
 public:
  explicit Small(int64_t n) {
    if (n > kInline) heap_.resize(n);
    data_ = n > kInline ? heap_.data() : inline_;
  }
  T* data() { return data_; }

 private:
  T inline_[kInline];
  std::vector<T> heap_;
  T* data_;
};

struct RunArgs {
  const TileProgram& program;
  const RunContext& ctx;
  IndexedView<AccessId, char*> base;
  IndexedView<AccessId, const char> copy;  // whether the tile is copied before anything is stored
  // `k`: the position among the column reductions.
  char* column(int64_t k, int64_t block) const {
    return static_cast<char*>(ctx.workspace) + (k * program.row_blocks() + block) * program.cols * 8;
  }
};

// The state of a task: the addresses of all values, and the current position.
struct TaskState {
  const RunArgs& run;
  IndexedView<ValueId, void*> ptr;
  int64_t start = 0, n = 0;                 // elements
  int64_t row = 0, rows = 0;                // rows
  char* row_states = nullptr;               // long rows: accumulators by reduction
  IndexedView<ReductionId, char*> columns;  // accumulators of column reductions
  int64_t column = 0;                       // first column of the tile
};

// --- memory <-> tile

struct Position {
  int64_t offset, in_run;
};
// Where element `index` is: its byte offset, and its position in the innermost run.
Position locate(const Access& a, int64_t index, int64_t* coord) {
  const int last = a.rank - 1;
  Position p{0, 0};
  for (int i = last; i > 0; --i) {
    coord[i] = index % a.size[i];
    index /= a.size[i];
    p.offset += coord[i] * a.stride[i];
  }
  coord[0] = index;
  p.offset += index * a.stride[0];
  p.in_run = coord[last];
  return p;
}

// Calls f(memory offset, tile element, length) for the contiguous runs of [start, start + n).
template <class F>
void for_runs(const Access& a, int64_t start, int64_t n, F f) {
  int64_t coord[kMaxDims];
  const Position p = locate(a, start, coord);
  const int last = a.rank - 1;
  int64_t offset = p.offset, done = 0;
  while (true) {
    const int64_t length = std::min(n - done, a.size[last] - coord[last]);
    f(offset, done, length);
    done += length;
    if (done == n) return;
    offset -= coord[last] * a.stride[last];
    coord[last] = 0;
    for (int i = last - 1; i >= 0; --i) {
      offset += a.stride[i];
      if (++coord[i] < a.size[i]) break;
      offset -= coord[i] * a.stride[i];
      coord[i] = 0;
    }
  }
}

constexpr int64_t kHalfPart = 256;

void load_run(const Access& a, const char* src, int64_t stride, char* dst, int64_t n) {
  if (is_native(a.dtype)) return copy_strided(dst, a.size_of, src, stride, a.size_of, n);
  auto* out = reinterpret_cast<float*>(dst);
  if (stride == a.size_of) return load_convert(a.dtype, src, out, n);
  uint16_t part[kHalfPart];
  for (int64_t i = 0; i < n; i += kHalfPart) {
    const int64_t m = std::min(kHalfPart, n - i);
    copy_strided(part, 2, src + i * stride, stride, 2, m);
    load_convert(a.dtype, part, out + i, m);
  }
}
void store_run(const Access& a, char* dst, int64_t stride, const char* src, int64_t n) {
  if (is_native(a.dtype)) return copy_strided(dst, stride, src, a.size_of, a.size_of, n);
  const auto* in = reinterpret_cast<const float*>(src);
  if (stride == a.size_of) return store_convert(a.dtype, in, dst, n);
  uint16_t part[kHalfPart];
  for (int64_t i = 0; i < n; i += kHalfPart) {
    const int64_t m = std::min(kHalfPart, n - i);
    store_convert(a.dtype, in + i, part, m);
    copy_strided(dst + i * stride, stride, part, 2, 2, m);
  }
}

// Elements [start, start + n): in place if possible, otherwise gathered into `place`.
void* load(const Access& a, const char* base, bool copy, int64_t start, int64_t n, char* place) {
  if (n == 0) return place;
  if (a.kind == Access::Kind::Contiguous) {
    const char* src = base + start * a.size_of;
    if (is_native(a.dtype) && !copy) return const_cast<char*>(src);
    load_run(a, src, a.size_of, place, n);
    return place;
  }
  const int64_t inner = a.stride[a.rank - 1];
  if (inner == a.size_of && is_native(a.dtype) && !copy) {
    int64_t coord[kMaxDims];
    const Position p = locate(a, start, coord);
    if (p.in_run + n <= a.size[a.rank - 1]) return const_cast<char*>(base + p.offset);
  }
  const int64_t size = reg_size(reg_of(a.dtype));
  for_runs(a, start, n, [&](int64_t offset, int64_t at, int64_t length) {
    load_run(a, base + offset, inner, place + at * size, length);
  });
  return place;
}

void store(const Access& a, char* base, int64_t start, int64_t n, const void* src) {
  if (n == 0) return;
  const char* from = static_cast<const char*>(src);
  if (a.streamed) return vec::stream(base + start * a.size_of, from, n * a.size_of);
  if (a.kind == Access::Kind::Contiguous) return store_run(a, base + start * a.size_of, a.size_of, from, n);
  const int64_t size = reg_size(reg_of(a.dtype));
  for_runs(a, start, n, [&](int64_t offset, int64_t at, int64_t length) {
    store_run(a, base + offset, a.stride[a.rank - 1], from + at * size, length);
  });
}

// --- instructions

void expand(const TaskState& f, const Instr& in) {
  const TileProgram& p = f.run.program;
  const int size = reg_size(p.values[in.dst].reg);
  char* dst = static_cast<char*>(f.ptr[in.dst]);
  const char* src = static_cast<const char*>(f.ptr[in.src[0]]);
  if (p.mode == Mode::LongRows) return copy_strided(dst, size, src, 0, size, f.n);
  for (int64_t r = 0; r < f.rows; ++r) copy_strided(dst + r * p.cols * size, size, src + r * size, 0, size, p.cols);
}

void sum_both_parts(const TaskState& f, const Instr& in) {
  const TileProgram& p = f.run.program;
  const ReductionUse &re = p.reductions[in.reduction], &im = p.reductions[re.imaginary];
  const char* src = static_cast<const char*>(f.ptr[in.src[0]]);
  if (p.mode == Mode::LongRows) {
    char* states = f.row_states;
    return re.fn.both_parts(states + in.reduction.value() * 8, states + re.imaginary.value() * 8, src, f.n);
  }
  alignas(8) char states[2][kRowBlock * 8];
  re.fn.init(states[0], f.rows);
  im.fn.init(states[1], f.rows);
  for (int64_t r = 0; r < f.rows; ++r)
    re.fn.both_parts(states[0] + r * 8, states[1] + r * 8, src + r * p.cols * reg_size(Reg::i64), p.cols);
  re.fn.finish(states[0], f.ptr[in.dst], f.rows);
  im.fn.finish(states[1], f.ptr[im.dst], f.rows);
}

void row_reduce(const TaskState& f, const Instr& in) {
  const TileProgram& p = f.run.program;
  const ReductionUse& use = p.reductions[in.reduction];
  if (use.with_real_part) return;
  if (use.imaginary.valid()) return sum_both_parts(f, in);
  if (p.mode == Mode::LongRows) return use.fn.row(f.row_states + in.reduction.value() * 8, f.ptr[in.src[0]], f.n);
  const int64_t size = reg_size(p.values[in.src[0]].reg);
  const char* src = static_cast<const char*>(f.ptr[in.src[0]]);
  alignas(8) char states[kRowBlock * 8];
  use.fn.init(states, f.rows);
  for (int64_t r = 0; r < f.rows; ++r) use.fn.row(states + r * 8, src + r * p.cols * size, p.cols);
  use.fn.finish(states, f.ptr[in.dst], f.rows);
}

void col_reduce(const TaskState& f, const Instr& in) {
  const TileProgram& p = f.run.program;
  const ReductionUse& use = p.reductions[in.reduction];
  const int64_t size = reg_size(p.values[in.src[0]].reg);
  const char* src = static_cast<const char*>(f.ptr[in.src[0]]);
  char* states = f.columns[in.reduction] + f.column * 8;
  if (f.n <= 0) return;
  const int64_t length = std::min(f.n, p.cols), rows = f.n / length;
  if (rows > 1 && use.fn.cols) return use.fn.cols(states, src, length, rows);
  for (int64_t r = 0; r < rows; ++r) use.fn.col(states, src + r * length * size, length);
}

// Prefetches a later tile of operands that are not in a cache, because a tile is too short for the processor's own
// prefetching.
constexpr int64_t kPrefetchFrom = 1 << 20;
void prefetch(const void* at, int64_t ahead, int64_t nbytes) {
  const char* p = static_cast<const char*>(at) + ahead * nbytes;
  for (int64_t i = 0; i < nbytes; i += 64) __builtin_prefetch(p + i, 0, 3);
}

void execute(const TaskState& f, const std::vector<Instr>& code, const Indexed<ValueId, int64_t>& place, char* arena) {
  const RunArgs& run = f.run;
  for (const Instr& in : code) {
    const int64_t start = in.row ? f.row : f.start, n = in.row ? f.rows : f.n;
    switch (in.opcode) {
      case Opcode::Compute: {
        Args a;
        a.dst = f.ptr[in.dst];
        for (int i = 0; i < 3; ++i) a.src[i] = in.src[i].valid() ? f.ptr[in.src[i]] : nullptr;
        a.n = n;
        a.index = start;
        a.params = run.ctx.params;
        a.param = in.param;
        a.param_type = in.param_type;
        in.fn(a);
        break;
      }
      case Opcode::Load: {
        const AccessId i = in.access;
        char* own = in.row ? static_cast<char*>(f.ptr[in.dst]) : arena + place[in.dst];
        void* at = load(run.program.accesses[i], run.base[i], run.copy[i] != 0 || in.row, start, n, own);
        if (!in.row) f.ptr[in.dst] = at;
        if (run.program.mode == Mode::Map && run.program.accesses[i].reach >= kPrefetchFrom && at != own)
          prefetch(at, run.program.ahead, n * run.program.accesses[i].size_of);
        break;
      }
      case Opcode::Point: f.ptr[in.dst] = run.base[in.access] + start * run.program.accesses[in.access].size_of; break;
      case Opcode::Store:
        store(run.program.accesses[in.access], run.base[in.access], start, n, f.ptr[in.src[0]]);
        break;
      case Opcode::Expand: expand(f, in); break;
      case Opcode::RowReduce: row_reduce(f, in); break;
      case Opcode::ColReduce: col_reduce(f, in); break;
    }
  }
}

void fill_constant(const RunArgs& run, const Value& v, void* dst, int64_t n) {
  if (v.param.valid()) return fill(v.reg, dst, run.ctx.params[v.param], v.dtype, n);
  const Access& a = run.program.accesses[v.access];
  if (a.kind == Access::Kind::General) load(a, run.base[v.access], true, 0, n, static_cast<char*>(dst));
  else load_run(a, run.base[v.access], 0, static_cast<char*>(dst), n);
}

// A task on the calling thread: its memory, with the constants in it.
class Task {
 public:
  Task(const RunArgs& run, const Stage& stage, int64_t elements, char* rows)
      : run_(run), stage_(stage), arena_(scratch(0, stage.arena + run.program.pointer_bytes())) {
    state_.ptr = reinterpret_cast<void**>(arena_ + stage.arena);
    for (const ValueId v : run.program.values.ids()) {
      const Value& value = run.program.values[v];
      if (value.row) {
        state_.ptr[v] = rows ? rows + run.program.row_place[v] : nullptr;
        continue;
      }
      state_.ptr[v] = stage.place[v] < 0 ? nullptr : arena_ + stage.place[v];
      if (value.constant && stage.place[v] >= 0)
        fill_constant(run, value, state_.ptr[v], std::min(elements, run.program.tile));
    }
  }
  TaskState& state() { return state_; }
  void tile(int64_t start, int64_t n) {
    state_.start = start;
    state_.n = n;
    execute(state_, stage_.code, stage_.place, arena_);
  }

 private:
  const RunArgs& run_;
  const Stage& stage_;
  char* arena_;
  TaskState state_{run_, {}, 0, 0, 0, 0, nullptr, {}, 0};
};

void fill_row_constants(const RunArgs& run, char* rows) {
  for (const ValueId v : run.program.values.ids()) {
    const Value& value = run.program.values[v];
    if (value.row && value.constant)
      fill_constant(run, value, rows + run.program.row_place[v], run.program.rows_per_tile);
  }
}

int64_t grain_of(const TileProgram& p, int64_t unit) {
  return std::max<int64_t>(1, kInlineWork / std::max<int64_t>(1, p.weight * unit));
}

// --- the modes

void map_range(const RunArgs& run, int64_t begin, int64_t end) {
  if (begin >= end) return;
  const TileProgram& p = run.program;
  Task task(run, p.stages[0], end - begin, nullptr);
  for (int64_t at = begin; at < end;) {
    int64_t n = std::min(p.tile, end - at);
    if (p.natural_row > 0) n = std::min(n, p.natural_row - at % p.natural_row);
    task.tile(at, n);
    at += n;
  }
  if (p.streams) vec::stream_fence();
}

void run_map(const RunArgs& run) {
  const TileProgram& p = run.program;
  const int64_t total = p.rows * p.cols, units = (total + p.tile - 1) / p.tile;
  parallel_for(units, grain_of(p, p.tile), [&run, total](int64_t b, int64_t e) {
    map_range(run, b * run.program.tile, std::min(total, e * run.program.tile));
  });
}

// Column accumulators of one block of rows in the workspace.
void begin_columns(const RunArgs& run, int64_t block, IndexedView<ReductionId, char*> columns) {
  const TileProgram& p = run.program;
  for (int64_t k = 0; k < std::ssize(p.col_reductions); ++k) {
    const ReductionId r = p.col_reductions[k];
    columns[r] = run.column(k, block);
    p.reductions[r].fn.init(columns[r], p.cols);
  }
}

// Combines the blocks' accumulators in order and stores the result.
void finish_columns(const RunArgs& run) {
  const TileProgram& p = run.program;
  if (p.col_reductions.empty() || p.cols == 0) return;
  constexpr int64_t kPart = 256;
  const int64_t blocks = p.row_blocks();
  parallel_for((p.cols + kPart - 1) / kPart, std::max<int64_t>(1, 64 / std::max<int64_t>(blocks, 1)),
               [&](int64_t b, int64_t e) {
                 alignas(64) char states[kPart * 8], out[kPart * 8];
                 for (int64_t k = 0; k < std::ssize(p.col_reductions); ++k) {
                   const ReductionUse& use = p.reductions[p.col_reductions[k]];
                   for (int64_t part = b; part < e; ++part) {
                     const int64_t c = part * kPart, n = std::min(kPart, p.cols - c);
                     if (blocks == 0) use.fn.init(states, n);
                     else std::memcpy(states, run.column(k, 0) + c * 8, n * 8);
                     for (int64_t block = 1; block < blocks; ++block)
                       use.fn.combine(states, run.column(k, block) + c * 8, n);
                     use.fn.finish(states, out, n);
                     store(p.accesses[use.access], run.base[use.access], c, n, out);
                   }
                 }
               });
}

// Whole rows per tile. With column reductions, a thread takes whole blocks of rows.
void run_rows(const RunArgs& run) {
  const TileProgram& p = run.program;
  const bool has_columns = !p.col_reductions.empty();
  const int64_t unit = has_columns ? kRowBlock : p.rows_per_tile;
  const int64_t units = (p.rows + unit - 1) / unit;
  parallel_for(units, grain_of(p, unit * std::max<int64_t>(p.cols, 1)), [&](int64_t b, int64_t e) {
    char* rows = scratch(1, p.row_arena + 64);
    Small<char*, 16> columns(p.reductions.size());
    Task task(run, p.stages[0], p.tile, rows);
    fill_row_constants(run, rows);
    TaskState& f = task.state();
    f.columns = columns.data();
    for (int64_t u = b; u < e; ++u) {
      if (has_columns) begin_columns(run, u, columns.data());
      const int64_t end = std::min(p.rows, (u + 1) * unit);
      for (int64_t r = u * unit; r < end; r += p.rows_per_tile) {
        f.row = r;
        f.rows = std::min(p.rows_per_tile, end - r);
        task.tile(r * p.cols, f.rows * p.cols);
      }
    }
  });
  finish_columns(run);
}

// One pass over one row, in chunks that threads share. Afterwards, the row's reductions are combined.
void long_row_pass(const RunArgs& run, const Stage& stage, int64_t row, char* rows,
                   IndexedView<ReductionId, char*> columns) {
  const TileProgram& p = run.program;
  const int64_t chunks = (p.cols + kChunk - 1) / kChunk;
  const int64_t stride = p.reductions.size() * 8;
  Small<int64_t, 128> states(chunks * p.reductions.size() + 1);
  char* all = reinterpret_cast<char*>(states.data());
  if (stage.code.empty()) return;
  parallel_for(chunks, grain_of(p, kChunk), [&](int64_t b, int64_t e) {
    Task task(run, stage, p.tile, rows);
    TaskState& f = task.state();
    f.row = row;
    f.rows = 1;
    f.columns = columns;
    for (int64_t chunk = b; chunk < e; ++chunk) {
      f.row_states = all + chunk * stride;
      for (const ReductionId r : p.reductions.ids())
        if (!p.reductions[r].col) p.reductions[r].fn.init(f.row_states + r.value() * 8, 1);
      const int64_t end = std::min(p.cols, (chunk + 1) * kChunk);
      for (int64_t c = chunk * kChunk; c < end; c += p.tile) {
        f.column = c;
        task.tile(row * p.cols + c, std::min(p.tile, end - c));
      }
    }
  });
  for (const Instr& in : stage.code) {
    if (in.opcode != Opcode::RowReduce) continue;
    const ReductionUse& use = p.reductions[in.reduction];
    char* total = all + in.reduction.value() * 8;
    for (int64_t chunk = 1; chunk < chunks; ++chunk) use.fn.combine(total, total + chunk * stride, 1);
    use.fn.finish(total, rows + p.row_place[in.dst], 1);
  }
}

void run_long_rows(const RunArgs& run) {
  const TileProgram& p = run.program;
  const bool has_columns = !p.col_reductions.empty();
  const int64_t unit = has_columns ? kRowBlock : 1;
  const auto body = [&](int64_t b, int64_t e) {
    const Bytes row_bytes = allocate(p.row_arena + p.pointer_bytes() + 64);
    char* rows = row_bytes.get();
    const IndexedView<ValueId, void*> ptr = reinterpret_cast<void**>(rows + p.row_arena);
    for (const ValueId v : p.values.ids()) ptr[v] = p.values[v].row ? rows + p.row_place[v] : nullptr;
    fill_row_constants(run, rows);
    Small<char*, 16> columns(p.reductions.size());
    for (int64_t u = b; u < e; ++u) {
      if (has_columns) begin_columns(run, u, columns.data());
      for (int64_t r = u * unit; r < std::min(p.rows, (u + 1) * unit); ++r) {
        for (const Stage& stage : p.stages) {
          execute(TaskState{run, ptr, 0, 0, r, 1, nullptr, {}, 0}, stage.row_code, stage.place, nullptr);
          long_row_pass(run, stage, r, rows, columns.data());
        }
      }
    }
  };
  const int64_t units = (p.rows + unit - 1) / unit;
  if (units >= 2 * num_threads()) parallel_for(units, 1, body);
  else if (units > 0) body(0, units);  // the threads share each row instead
  finish_columns(run);
}

// Column reductions only: blocks of rows times strips of columns.
void run_columns(const RunArgs& run) {
  const TileProgram& p = run.program;
  constexpr int64_t kStrip = 2048;
  const int64_t strips = std::max<int64_t>(1, (p.cols + kStrip - 1) / kStrip), blocks = p.row_blocks();
  const int64_t width = std::min(kStrip, p.cols);
  parallel_for(strips * blocks, grain_of(p, kRowBlock * std::max<int64_t>(width, 1)), [&](int64_t b, int64_t e) {
    Small<char*, 16> held(p.reductions.size());
    const IndexedView<ReductionId, char*> columns = held.data();
    Task task(run, p.stages[0], p.tile, nullptr);
    task.state().columns = columns;
    for (int64_t t = b; t < e; ++t) {
      const int64_t block = t / strips, c0 = t % strips * kStrip, c1 = std::min(p.cols, c0 + kStrip);
      for (int64_t k = 0; k < std::ssize(p.col_reductions); ++k) {
        const ReductionId r = p.col_reductions[k];
        columns[r] = run.column(k, block);
        p.reductions[r].fn.init(columns[r] + c0 * 8, c1 - c0);
      }
      const int64_t r0 = block * kRowBlock, r1 = std::min(p.rows, r0 + kRowBlock);
      if (p.cols * 2 <= p.tile) {  // several whole rows per tile
        const int64_t step = p.tile / std::max<int64_t>(p.cols, 1);
        for (int64_t r = r0; r < r1; r += step) task.tile(r * p.cols, std::min(step, r1 - r) * p.cols);
        continue;
      }
      for (int64_t r = r0; r < r1; ++r)
        for (int64_t c = c0; c < c1; c += p.tile) {
          task.state().column = c;
          task.tile(r * p.cols + c, std::min(p.tile, c1 - c));
        }
    }
  });
  finish_columns(run);
}

bool overlap(const char* a, int64_t a_bytes, const char* b, int64_t b_bytes) {
  const auto x = reinterpret_cast<uintptr_t>(a), y = reinterpret_cast<uintptr_t>(b);
  return x < y + b_bytes && y < x + a_bytes;
}

// Saves inputs that some output overwrites before they are read. Of an epilogue's root, only the elements [begin, end)
// exist.
void resolve_hazards(const TileProgram& p, IndexedView<AccessId, char*> base, IndexedView<AccessId, char> copy,
                     std::vector<Bytes>* saved, int64_t begin, int64_t end) {
  for (const Hazard& h : p.hazards) {
    const AccessId i = h.input, o = h.output;
    const Access& in = p.accesses[i];
    const int64_t skip = in.root ? begin * in.size_of : 0, reach = in.root ? (end - begin) * in.size_of : in.reach;
    if (!overlap(base[i] + skip, reach, base[o], p.accesses[o].reach)) continue;
    if (base[i] == base[o] && h.same_place_ok) continue;
    if (base[i] == base[o] && h.same_place_copy) {
      copy[i] = 1;
      continue;
    }
    PF_CHECK(saved, Runtime,
             "tile: an output of a fused epilogue overlaps one of its inputs; this is an error in the planner");
    Bytes bytes = allocate(in.reach);
    std::memcpy(bytes.get(), base[i], in.reach);
    base[i] = bytes.get();
    saved->push_back(std::move(bytes));
  }
}

template <class F>
void with_run(const TileProgram& p, const RunContext& ctx, const void* root, std::vector<Bytes>* saved, int64_t begin,
              int64_t end, F f) {
  Small<char*, 32> bases(p.accesses.size() + 1);
  Small<char, 32> copies(p.accesses.size() + 1);
  const IndexedView<AccessId, char*> base = bases.data();
  const IndexedView<AccessId, char> copy = copies.data();
  for (const AccessId i : p.accesses.ids()) {
    const Access& a = p.accesses[i];
    base[i] = a.root ? static_cast<char*>(const_cast<void*>(root)) : static_cast<char*>(ctx.bindings[a.binding]);
    copy[i] = 0;
  }
  resolve_hazards(p, base, copy, saved, begin, end);
  f(RunArgs{p, ctx, base, copy.data()});
}

}  // namespace

void run(const TileProgram& p, const RunContext& ctx) {
  std::vector<Bytes> saved;
  with_run(p, ctx, nullptr, &saved, 0, 0, [&](const RunArgs& r) {
    switch (p.mode) {
      case Mode::Map: return run_map(r);
      case Mode::Rows: return run_rows(r);
      case Mode::LongRows: return run_long_rows(r);
      case Mode::Columns: return run_columns(r);
    }
  });
}

void run_range(const TileProgram& p, const RunContext& ctx, const void* root, int64_t begin, int64_t end) {
  with_run(p, ctx, root, nullptr, begin, end, [&](const RunArgs& r) { map_range(r, begin, end); });
}

}  // namespace pyflame::cpu::tile

namespace pyflame::cpu {
namespace {

class TileExec final : public Executable {
 public:
  tile::TileProgram program;
  void run(const RunContext& ctx) override { tile::run(program, ctx); }
  size_t workspace() const override { return program.workspace(); }
};

}  // namespace

Refusal tile_accepts(const Problem& p) {
  tile::TileProgram program;
  return tile::lower(p, &program);
}

std::unique_ptr<Executable> tile_make(const Problem& p) {
  auto exec = std::make_unique<TileExec>();
  const Refusal r = tile::lower(p, &exec->program);
  PF_CHECK(!r, Runtime, "tile: cannot run this group; {}", *r);
  return exec;
}

Refusal TileEpilogue::accepts(const Problem& p) {
  if (p.group.kind != GroupKind::Epilogue) return "takes Epilogue groups only";
  tile::TileProgram program;
  return tile::lower(p, &program);
}

std::unique_ptr<TileEpilogue> TileEpilogue::make(const Problem& p, int64_t row_length) {
  auto e = std::unique_ptr<TileEpilogue>(new TileEpilogue);
  e->program_ = std::make_unique<tile::TileProgram>();
  e->row_length_ = row_length;
  const Refusal r = tile::lower(p, e->program_.get());
  PF_CHECK(!r, Runtime, "tile: cannot run this epilogue; {}", *r);
  return e;
}

TileEpilogue::~TileEpilogue() = default;

void TileEpilogue::run(const RunContext& ctx, const void* root_out, int64_t first_row, int64_t rows) const {
  int64_t size = 4;
  for (const tile::Access& a : program_->accesses)
    if (a.root) size = a.size_of;
  // Element indices count from the start of the whole. Computed as an integer, because the address of element 0 may be
  // outside of any array.
  const auto begin = first_row * row_length_;
  const auto root = reinterpret_cast<uintptr_t>(root_out) - begin * size;
  tile::run_range(*program_, ctx, reinterpret_cast<const void*>(root), begin, begin + rows * row_length_);
}

}  // namespace pyflame::cpu
