#include "pyflame/backends/cuda/cudnn.h"

#include <algorithm>

#include "pyflame/backends/cuda/libraries.h"
#include "pyflame/base/error.h"

namespace pyflame::gpu {

namespace {
constexpr const char* kCudnnFiles[] = {"libcudnn.so.9", "libcudnn.so", nullptr};
const Dylib* const kNeeds[] = {&kNvrtc, &kCublaslt, nullptr};
}  // namespace

const Dylib kCudnn = {.name = "cuDNN",
                      .type = DeviceType::cuda,
                      .files = kCudnnFiles,
                      .absent =
                          "cuDNN (libcudnn.so.9) was not found; install it with pip (nvidia-cudnn) or from "
                          "NVIDIA's packages",
                      .computes = true,
                      .needs = kNeeds};

std::string cudnn_version() {
  const auto get = reinterpret_cast<size_t (*)()>(find_symbol(kCudnn.open().handle, "cudnnGetVersion"));
  return get ? fmt::format("cudnn {}", get()) : "";
}

}  // namespace pyflame::gpu

namespace pyflame::gpu::cudnn_graph {

namespace {

// Properties that make an engine unacceptable: rounded operands or sums; transform algorithms, whose errors grow with
// the largest value instead of with the terms of each result; and, unless any order is allowed, a varying order of
// sums.
constexpr int kNotes = 10, kNoteMatrixUnits = 0, kNoteAnyOrder = 4;
constexpr bool kRefused[kNotes] = {false, true, true, true, false, true, true, true, true, false};

// Whether an engine's notes can be read and it is acceptable; `repeats`: whether every run gives the same bits.
bool keeps_promises(const Functions& f, const Owned& config, DType dtype, Allowed allowed, bool& repeats) {
  Owned engine(f, descriptor::engine);
  Descriptor raw = engine.raw();
  int64_t count = 0;
  if (f.get(config.raw(), attribute::config_engine, type::descriptor, 1, &count, &raw) != 0) return false;
  int notes[kNotes] = {};
  if (f.get(raw, attribute::engine_note, type::numerical_note, kNotes, &count, notes) != 0) return false;
  const auto says = [&](int note) { return std::find(notes, notes + count, note) != notes + count; };
  for (int note = 0; note < kNotes; ++note)
    if (kRefused[note] && says(note)) return false;
  repeats = !says(kNoteAnyOrder);
  const bool rounds = dtype == DType::float32 && says(kNoteMatrixUnits);
  return (repeats || allowed.any_order) && (!rounds || allowed.tf32);
}

}  // namespace

int data_type(DType d) {
  switch (d) {
    case DType::float32: return 0;
    case DType::float64: return 1;
    case DType::float16: return 2;
    default: return 9;  // bfloat16
  }
}

void Execution::run(GpuDevice& device, const char* what, std::span<const int64_t> ids, std::span<void* const> pointers,
                    void* workspace) {
  std::lock_guard lock(mutex_);
  const bool same = pack_ && packed_.back() == workspace &&
                    std::equal(pointers.begin(), pointers.end(), packed_.begin(), packed_.end() - 1);
  if (!same) {
    packed_.assign(pointers.begin(), pointers.end());
    packed_.push_back(workspace);
    pack_.emplace(f_, descriptor::pack);
    const auto count = static_cast<int64_t>(ids.size());
    const bool ok = pack_->set(attribute::pack_ids, type::int64, ids.data(), count)
                        .set(attribute::pack_pointers, type::pointer, pointers.data(), count)
                        .set(attribute::pack_workspace, type::pointer, workspace)
                        .finish();
    if (!ok) pack_.reset();
    PF_CHECK(ok, Runtime, "{}: cuDNN refused its operands", what);
  }
  device.enter();
  int status = f_.set_stream(handle_, device.stream());
  if (status == 0) status = f_.execute(handle_, plan_->raw(), pack_->raw());
  PF_CHECK(status == 0, Runtime, "{}: cuDNN failed with error {}: {}", what, status, f_.error_string(status));
}

const Functions* functions(std::string* why) {
  struct Library {
    Functions f;
    std::string why;
  };
  static const Library* library = [] {
    auto* l = new Library;
    const Dylib::Opened& opened = kCudnn.open();
    l->why = opened.why;
    if (!opened.handle) return l;
#define PYFLAME_CUDNN_LOAD(member, name, result, parameters)                                      \
  l->f.member = reinterpret_cast<result(*) parameters>(find_symbol(opened.handle, "cudnn" name)); \
  if (!l->f.member) l->why = "cuDNN is too old: it lacks cudnn" name;
    PYFLAME_CUDNN_FUNCTIONS(PYFLAME_CUDNN_LOAD)
#undef PYFLAME_CUDNN_LOAD
    return l;
  }();
  if (library->why.empty()) return &library->f;
  if (why) *why = library->why;
  return nullptr;
}

Handle handle_of(const Functions& f, GpuDevice& device) {
  static std::mutex mutex;
  static std::vector<Handle> handles;
  std::lock_guard lock(mutex);
  device.enter();
  const auto at = static_cast<size_t>(device.index());
  if (handles.size() <= at) handles.resize(at + 1);
  if (!handles[at] && f.create(&handles[at]) != 0) handles[at] = nullptr;
  return handles[at];
}

std::vector<std::unique_ptr<Execution>> plans(const Functions& f, Handle handle, std::span<const Descriptor> operations,
                                              DType dtype, int heuristic, int most, Allowed allowed) {
  std::vector<std::unique_ptr<Execution>> all;
  Owned graph(f, descriptor::graph), heuristics(f, descriptor::heuristics);
  if (!graph.set(attribute::graph_handle, type::handle, handle)
           .set(attribute::graph_ops, type::descriptor, operations.data(), static_cast<int64_t>(operations.size()))
           .finish())
    return all;
  if (!heuristics.set(attribute::heuristic_graph, graph)
           .set(attribute::heuristic_mode, type::heuristic, heuristic)
           .finish())
    return all;
  constexpr int64_t kMostConfigs = 32;
  std::vector<Owned> configs;
  std::vector<Descriptor> raw;
  for (int64_t i = 0; i < kMostConfigs; ++i) {
    configs.emplace_back(f, descriptor::engine_config);
    raw.push_back(configs.back().raw());
  }
  int64_t found = 0;
  if (f.get(heuristics.raw(), attribute::heuristic_results, type::descriptor, kMostConfigs, &found, raw.data()) != 0)
    return all;
  for (size_t i = 0; i < static_cast<size_t>(std::min(found, kMostConfigs)) && static_cast<int>(all.size()) < most;
       ++i) {
    bool repeats = true;
    if (!keeps_promises(f, configs[i], dtype, allowed, repeats)) continue;
    Owned plan(f, descriptor::plan);
    if (!plan.set(attribute::plan_handle, type::handle, handle).set(attribute::plan_config, configs[i]).finish())
      continue;
    int64_t workspace = 0, count = 0;
    if (f.get(plan.raw(), attribute::plan_workspace, type::int64, 1, &count, &workspace) != 0) continue;
    all.push_back(std::make_unique<Execution>(f, handle, std::make_shared<const Owned>(std::move(plan)),
                                              static_cast<size_t>(workspace), repeats));
  }
  return all;
}

}  // namespace pyflame::gpu::cudnn_graph
