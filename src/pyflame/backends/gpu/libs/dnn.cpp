// Convolutions by a vendor's library. A tensor is channels-first or channels-last. The library is asked about both
// layouts, and tensors in the other layout are transposed into the workspace. Tensors for matrix cores (16-bit, or
// float32 that may be rounded) are made channels-last, which these need; if a search is allowed, the measured time
// decides. What a search has found is kept in the file of measurements, so that the next process need not search.
#include "pyflame/backends/gpu/libs/dnn.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <mutex>
#include <optional>

#include "pyflame/backends/gpu/libs/conv_trial.h"
#include "pyflame/backends/gpu/libs/fallback.h"
#include "pyflame/backends/gpu/libs/transpose.h"
#include "pyflame/backends/gpu/libs/vendor.h"
#include "pyflame/base/env.h"
#include "pyflame/base/error.h"
#include "pyflame/tensor/runtime_hooks.h"

namespace pyflame::gpu {

namespace {

constexpr int kMostPlans = 6;    // for each memory format, in a search within a budget
constexpr int kTunedPlans = 24;  // the same, where tuning measures each of them
constexpr size_t kAlign = 256, kMostWorkspace = size_t{1} << 30;
size_t whole(size_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

// A way to run a convolution: the plan, and which tensors are transposed for it.
struct Choice {
  std::shared_ptr<DnnPlan> plan;
  MemoryFormat format = MemoryFormat::contiguous;
  std::array<bool, 3> transposed{};
  std::string name = {};  // "plan=3,channels_last"
  std::string slow = {};  // not empty: there is no plan here, because our own kernel is faster
};

constexpr const char* kOwn = "gpu.conv";
using MakeOwn = std::unique_ptr<Executable> (*)(const Problem&);

// From so many microseconds on, a plan is slow enough to try our own kernel beside it. The rates are those that libraries reach on a large GPU; the
// measurement decides, so they need not fit the device.
double surprising_us(const ConvCase& c) {
  const bool half = dtype_size(c.dtype) == 2;
  const double rate = half                        ? 500e6
                      : c.dtype == DType::float64 ? 20e6
                                                  : 40e6,
               bandwidth = 2.5e6;  // operations and bytes a microsecond
  const auto count = [](const Operand& o) { return static_cast<double>(o.numel()); };
  const double flops = 2 * count(c.result) * count(c.weight) / static_cast<double>(c.weight.shape[0]);
  const double bytes = (count(c.image) + count(c.weight) + count(c.result)) * static_cast<double>(dtype_size(c.dtype));
  constexpr double kTimes = 8, kLaunch = 10;
  return kTimes * (kLaunch + std::max(flops / rate, bytes / bandwidth));
}

std::array<const Operand*, 3> tensors_of(const ConvCase& c) { return {&c.image, &c.weight, &c.result}; }

const DnnLibrary* library_of(DeviceType type, std::string* why) { return vendor(type).convolutions(why); }

size_t workspace_of(const ConvCase& c, const Choice& choice) {
  size_t bytes = whole(choice.plan->workspace());
  for (size_t i = 0; i < 3; ++i)
    if (choice.transposed[i]) bytes += whole(tensors_of(c)[i]->nbytes());
  return bytes;
}

// Runs a choice; `transpose` is needed only if a tensor is transposed.
void run_choice(GpuDevice& device, const ConvCase& c, const Choice& choice, Transpose* transpose,
                std::array<void*, 3> at, void* workspace) {
  const auto tensors = tensors_of(c);
  const size_t made = c.pass == ConvPass::grad_input ? 0 : c.pass == ConvPass::grad_weight ? 1 : 2;
  auto* room = static_cast<char*>(workspace);
  const std::array<void*, 3> given = at;
  const auto transpose_tensor = [&](size_t i, const void* from, void* to, bool to_last) {
    transpose->run(device.index(), tensors[i]->shape, from, to,
                   to_last ? MemoryFormat::channels_last : MemoryFormat::contiguous);
  };
  const bool last = choice.format == MemoryFormat::channels_last;
  for (size_t i = 0; i < 3; ++i) {
    if (!choice.transposed[i]) continue;
    at[i] = room;
    room += whole(tensors[i]->nbytes());
    if (i != made) transpose_tensor(i, given[i], at[i], last);
  }
  choice.plan->run(device, at, room);
  if (choice.transposed[made]) transpose_tensor(made, at[made], given[made], !last);
}

// The choices that the library offers, in its own order of preference: at most so many for each memory format.
std::vector<Choice> choices(GpuDevice& device, const DnnLibrary& library, const ConvCase& c, int most) {
  const bool all = most > 1;
  const auto tensors = tensors_of(c);
  std::array<size_t, 2> moved{};  // bytes to transpose, by memory format
  for (size_t o = 0; o < 2; ++o)
    for (const Operand* t : tensors)
      if (!has_format(*t, static_cast<MemoryFormat>(o))) moved[o] += t->nbytes();
  const bool matrix_cores = dtype_size(c.dtype) == 2 || (c.attrs.rounded && library.rounds_float32());
  const bool last = matrix_cores || moved[1] < moved[0];
  std::vector<Choice> found;
  for (const MemoryFormat format : {last ? MemoryFormat::channels_last : MemoryFormat::contiguous,
                                    last ? MemoryFormat::contiguous : MemoryFormat::channels_last}) {
    // Without matrix cores, transposing everything gains nothing.
    if (!found.empty() && (!all || !matrix_cores)) break;
    DnnProblem p{c.pass, c.dtype, c.attrs, {}, {}};
    Choice choice;
    choice.format = format;
    for (size_t i = 0; i < 3; ++i) {
      p.shape[i] = tensors[i]->shape;
      p.strides[i] = strides_of(tensors[i]->shape, format);
      choice.transposed[i] = !has_format(*tensors[i], format);
    }
    int place = -1;
    for (auto& plan : library.plans(device, p, most)) {
      ++place;
      if (plan->workspace() > kMostWorkspace) continue;
      const std::string number = plan->number();
      choice.name = (number.empty() ? fmt::format("plan={}", place) : number) +
                    (format == MemoryFormat::channels_last ? ",channels_last" : ",contiguous");
      choice.plan = std::move(plan);
      found.push_back(choice);
    }
  }
  return found;
}

// Milliseconds of one run, on the events' clock.
float time_choice(GpuDevice& device, const std::array<Event, 2>& events, const std::function<void()>& run) {
  const Rt& rt = device.rt();
  float ms = 0;
  constexpr float kEnough = 0.5f;  // milliseconds; faster ones are measured over several rounds
  for (int rounds = 1; rounds <= 4 && (rounds == 1 || ms < kEnough); rounds += 3) {
    device.check(rt.event_record(events[0], device.own_stream()), "recording an event");
    for (int r = 0; r < rounds; ++r) run();
    device.check(rt.event_record(events[1], device.own_stream()), "recording an event");
    device.check(rt.event_wait(events[1]), "waiting for an event");
    device.check(rt.event_elapsed(&ms, events[0], events[1]), "reading an event");
    ms /= static_cast<float>(rounds);
  }
  return ms;
}

// Our own kernel for the problem, as a search tries it. Not there: `make` is null.
struct OwnKernel {
  const Problem& problem;
  MakeOwn make;
  // None if it fails, has no memory, or computes something wrong.
  std::optional<float> time(GpuDevice& device, const ConvCase& c, const ConvTrial& trial,
                            const std::array<Event, 2>& events, const std::array<void*, 3>& at) const {
    void* workspace = nullptr;
    std::optional<float> ms;
    try {
      const std::unique_ptr<Executable> kernel = make(problem);
      if (const size_t bytes = kernel->workspace(); bytes > 0 && !(workspace = device.allocate(bytes))) return ms;
      std::vector<void*> bindings(problem.graph.bindings.size());
      const auto tensors = tensors_of(c);
      for (size_t i = 0; i < 3; ++i) bindings[tensors[i]->binding.index()] = at[i];
      const RunContext context{
          .bindings = bindings.data(), .params = {}, .workspace = workspace, .device = device.index()};
      trial.spoil(device, at);
      kernel->run(context);  // compiles it
      device.wait();
      if (trial.difference(device, at).empty()) ms = time_choice(device, events, [&] { kernel->run(context); });
    } catch (const Error&) {  // the library's plan is used
    }
    if (workspace) device.release(workspace);
    return ms;
  }
};

// Tries the choices and returns the fastest one that computes what it must. It stops when the budget is used up, but
// tries until one is correct. None if none is, or if there is no memory for the tests; then `tried` is false. It uses
// memory and streams of its own, so pending work is not affected. `found` gets what became of each.
std::optional<size_t> fastest(GpuDevice& device, const char* library, const ConvCase& c, const std::vector<Choice>& all,
                              double budget_ms, bool& tried, std::vector<FoundEntry>& found, const OwnKernel& own,
                              std::string& slow) {
  size_t room = 0, tensors = 0;
  for (const Choice& choice : all) room = std::max(room, workspace_of(c, choice));
  for (const Operand* t : tensors_of(c)) tensors += whole(t->nbytes());
  char* memory = static_cast<char*>(device.allocate(room + tensors));
  tried = memory != nullptr;
  if (!tried) return std::nullopt;
  std::array<void*, 3> at{};
  size_t offset = 0;
  for (size_t i = 0; i < 3; ++i) {
    at[i] = memory + offset;
    offset += whole(tensors_of(c)[i]->nbytes());
  }
  const ConvTrial trial(c);
  trial.fill(device, at);
  const Rt& rt = device.rt();
  std::array<Event, 2> events{};
  for (Event& e : events) device.check(rt.event_create(&e, 0), "making an event");
  Transpose transpose(device.rt().type, static_cast<int>(dtype_size(c.dtype)));
  using Clock = std::chrono::steady_clock;
  const auto ms_since = [](Clock::time_point t) {
    return std::chrono::duration<double, std::milli>(Clock::now() - t).count();
  };
  const auto start = Clock::now();
  std::optional<size_t> best;
  std::optional<Error> failure;
  float best_ms = 0;
  double checked_ms = 0;  // the budget is for the library
  for (size_t i = 0; i < all.size(); ++i) {
    if (best && ms_since(start) - checked_ms > budget_ms) break;
    const auto run = [&] { run_choice(device, c, all[i], &transpose, at, memory + offset); };
    try {
      trial.spoil(device, at);
      run();  // the first run loads its kernels
      device.wait();
      const auto checking = Clock::now();
      const std::string wrong = trial.difference(device, at);
      checked_ms += ms_since(checking);
      if (!wrong.empty()) {
        say_once(fmt::format(
            "conv2d: {} computes a wrong result for image {}, weight {}, {}, by plan {} of {}: {}; the plan is not "
            "used",
            library, c.image.shape.str(), c.weight.shape.str(), dtype_name(c.dtype), i + 1, all.size(), wrong));
        found.push_back({all[i].name, 1e30, wrong});
        continue;
      }
      const float ms = time_choice(device, events, run);
      found.push_back({all[i].name, static_cast<double>(ms) * 1e3});
      if (!best || ms < best_ms) best = i, best_ms = ms;
    } catch (const Error& e) {  // a plan that fails is not chosen
      failure = e;
      found.push_back({all[i].name, 1e30, e.what()});
    }
  }
  if (!best && failure) fall_back(*failure);
  if (best && own.make && best_ms * 1e3 > surprising_us(c)) {
    const std::optional<float> own_ms = own.time(device, c, trial, events, at);
    if (own_ms) found.push_back({kOwn, static_cast<double>(*own_ms) * 1e3});
    if (own_ms && *own_ms < best_ms)
      slow = fmt::format("the fastest plan of {} took {:.1f} us, PyFlame's own kernel {:.1f} us", library,
                         best_ms * 1e3, *own_ms * 1e3);
  }
  for (const Event e : events) rt.event_destroy(e);
  device.release(memory);
  return best;
}

constexpr const char* kSearch = "convolution plan";

// What the outcome of a search depends on besides the device and the versions.
std::string search_key(const DnnLibrary& library, const ConvCase& c, double budget_ms) {
  constexpr const char* kPasses[] = {"conv2d", "conv2d_grad_input", "conv2d_grad_weight"};
  const ConvAttrs& a = c.attrs;
  std::string key =
      fmt::format("{} {} {} stride {}x{} padding {}x{} dilation {}x{} groups {} any_order {} rounded {}",
                  library.name(), kPasses[static_cast<size_t>(c.pass)], dtype_name(c.dtype), a.stride_h, a.stride_w,
                  a.pad_h, a.pad_w, a.dilation_h, a.dilation_w, a.groups, a.any_order, a.rounded);
  constexpr const char* kNames[] = {"image", "weight", "result"};
  const auto tensors = tensors_of(c);
  for (size_t i = 0; i < 3; ++i)
    key += fmt::format(", {} {}{}{}", kNames[i], tensors[i]->shape.str(),
                       has_format(*tensors[i], MemoryFormat::contiguous) ? " contiguous" : "",
                       has_format(*tensors[i], MemoryFormat::channels_last) ? " channels_last" : "");
  return key + fmt::format(", searched for {} ms", budget_ms);
}

// The result of the search: of an earlier process, or of one that is made now. None: no choice is correct.
std::optional<size_t> search(GpuDevice& device, const DnnLibrary& library, const ConvCase& c,
                             const std::vector<Choice>& all, double budget_ms, bool& tried, const OwnKernel& own,
                             std::string& slow) {
  std::vector<FoundEntry> found;
  if (budget_ms == 0) {
    const OwnKernel none{own.problem, nullptr};
    return fastest(device, library.name(), c, all, budget_ms, tried, found, none, slow);
  }
  const Device here{device.rt().type, static_cast<int8_t>(device.index())};
  const std::string key = search_key(library, c, budget_ms);
  if (const auto known = runtime_hooks.recall_search(here, kSearch, key)) {
    if (*known == kOwn) slow = fmt::format("PyFlame's own kernel was faster than the plans of {}", library.name());
    if (*known == kOwn && own.make) return 0;
    slow.clear();
    for (size_t i = 0; i < all.size(); ++i)
      if (all[i].name == *known) return i;
  }
  const std::optional<size_t> best = fastest(device, library.name(), c, all, budget_ms, tried, found, own, slow);
  if (tried) runtime_hooks.keep_search(here, kSearch, key, found);
  return best;
}

// The result for a convolution on a device is kept, and programs share it. Null: the library has no plan, or there is no
// memory to try one; then nothing is kept, and the next program asks again.
std::shared_ptr<const Choice> choice_for(GpuDevice& device, const DnnLibrary& library, const ConvCase& c, bool& tried,
                                         const OwnKernel& own) {
  static std::mutex mutex;
  static auto* known = new std::map<std::vector<int64_t>, std::shared_ptr<const Choice>>;
  std::vector<int64_t> key{static_cast<int64_t>(device.rt().type), device.index(), static_cast<int64_t>(c.pass),
                           static_cast<int64_t>(c.dtype)};
  for (const int64_t v : {c.attrs.stride_h, c.attrs.stride_w, c.attrs.pad_h, c.attrs.pad_w, c.attrs.dilation_h,
                          c.attrs.dilation_w, c.attrs.groups, c.attrs.any_order, c.attrs.rounded})
    key.push_back(v);
  for (const Operand* t : tensors_of(c)) {
    key.insert(key.end(), t->shape.begin(), t->shape.end());
    key.push_back(has_format(*t, MemoryFormat::contiguous));
    key.push_back(has_format(*t, MemoryFormat::channels_last));
  }
  tried = true;
  std::lock_guard lock(mutex);
  if (const auto it = known->find(key); it != known->end()) return it->second;
  const auto budget = static_cast<double>(env::conv_search_ms());
  const std::vector<Choice> all = choices(device, library, c, budget > 0 ? kMostPlans : 1);
  std::shared_ptr<const Choice> best;
  std::string slow;
  if (const auto at = all.empty() ? std::nullopt : search(device, library, c, all, budget, tried, own, slow)) {
    Choice choice = all[*at];
    if (!slow.empty()) choice.plan = nullptr, choice.slow = std::move(slow);
    best = std::make_shared<const Choice>(std::move(choice));
  }
  if (tried) known->emplace(key, best);
  return best;
}

class Dnn final : public Executable {
 public:
  Dnn(const Problem& p, std::unique_ptr<Executable> own, std::shared_ptr<const Choice> choice)
      : case_(p), type_(p.graph.device.type), choice_(std::move(choice)), own_(std::move(own)) {
    if (std::find(choice_->transposed.begin(), choice_->transposed.end(), true) != choice_->transposed.end())
      transpose_ = std::make_unique<Transpose>(type_, static_cast<int>(dtype_size(case_.dtype)));
  }
  size_t workspace() const override { return std::max(workspace_of(case_, *choice_), own_->workspace()); }
  bool repeats() const override { return choice_->plan->repeats(); }
  void run(const RunContext& ctx) override {
    const std::array<void*, 3> at{ctx.bindings[case_.image.binding], ctx.bindings[case_.weight.binding],
                                  ctx.bindings[case_.result.binding]};
    for (const void* p : at)
      if (reinterpret_cast<uintptr_t>(p) % 16 != 0) return own_->run(ctx);
    if (!failed_) {
      try {
        return run_choice(device(type_, ctx.device), case_, *choice_, transpose_.get(), at, ctx.workspace);
      } catch (const Error& e) {
        fall_back(e);
        failed_ = true;
      }
    }
    own_->run(ctx);
  }

 private:
  ConvCase case_;
  DeviceType type_;
  std::shared_ptr<const Choice> choice_;
  std::unique_ptr<Transpose> transpose_;
  std::unique_ptr<Executable> own_;
  bool failed_ = false;
};

}  // namespace

bool dnn_is_fast_for_few_channels(DeviceType type) {
  std::string why;
  const DnnLibrary* library = library_of(type, &why);
  return library && library->fast_for_few_channels();
}

Refusal dnn_refuses(const Problem& p, MakeOwn own) {
  std::string why;
  const DnnLibrary* library = library_of(p.graph.device.type, &why);
  if (!library) return why;
  const ConvCase c(p);
  for (const Operand* t : tensors_of(c)) {
    if (t->numel() == 0) return "a tensor has no elements";
    if (!has_format(*t, MemoryFormat::contiguous) && !has_format(*t, MemoryFormat::channels_last))
      return "a tensor is laid out neither channels-first nor channels-last";
  }
  bool tried = true;
  const auto choice = choice_for(device(p.graph.device.type, p.graph.device.index), *library, c, tried, {p, own});
  if (choice && !choice->slow.empty()) return choice->slow;
  if (!choice) {
    if (!tried) return fmt::format("there is no memory to try the plans of {}", library->name());
    return fmt::format("{} has no {}plan of full precision that runs and computes a correct result", library->name(),
                       c.attrs.any_order ? "" : "deterministic ");
  }
  return std::nullopt;
}

std::unique_ptr<Executable> make_dnn(const Problem& p, std::unique_ptr<Executable> own) {
  const Device here = p.graph.device;
  bool tried = true;
  return std::make_unique<Dnn>(
      p, std::move(own),
      choice_for(device(here.type, here.index), *library_of(here.type, nullptr), ConvCase(p), tried, {p, nullptr}));
}

std::vector<std::string> dnn_plans(const Problem& p) {
  const Device here = p.graph.device;
  GpuDevice& d = device(here.type, here.index);
  const DnnLibrary& library = *library_of(here.type, nullptr);
  const ConvCase c(p);
  bool tried = true;
  const std::shared_ptr<const Choice> own = choice_for(d, library, c, tried, {p, nullptr});
  std::vector<std::string> names;
  for (const Choice& choice : choices(d, library, c, kTunedPlans))
    if (!own || choice.name != own->name) names.push_back(choice.name);
  return names;
}

std::unique_ptr<Executable> make_dnn(const Problem& p, std::unique_ptr<Executable> own, const std::string& plan) {
  const Device here = p.graph.device;
  const DnnLibrary& library = *library_of(here.type, nullptr);
  for (const Choice& choice : choices(device(here.type, here.index), library, ConvCase(p), kTunedPlans))
    if (choice.name == plan) return std::make_unique<Dnn>(p, std::move(own), std::make_shared<const Choice>(choice));
  PF_FAIL(
      Value,
      "conv2d: {} has no such plan for this convolution; got '{}'; expected a name that it had when it was measured",
      library.name(), plan);
}

}  // namespace pyflame::gpu
