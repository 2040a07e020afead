// Entries that compute something else than the op means, in problems for which the reference implementation is not asked: large ones, 16-bit products with
// an epilogue, products whose inputs may be rounded, and 16-bit attention. As a candidate, such an entry is unsound and the only one. As the entry
// that computes already it is reported and another one takes its place. It is so, too, where one element is wrong that is not in the sample. On the CPU,
// and on a GPU where there is one.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <new>

#include "pyflame/base/sqlite.h"
#include "pyflame/compile/choices.h"
#include "pyflame/ops/ops.h"
#include "pyflame/runtime/choose.h"
#include "pyflame/runtime/device.h"
#include "support/small_step.h"
#include "support/temp_folder.h"

namespace {

thread_local int64_t g_allocations_left = -1;  // the one after so many fails; below 0: none

}  // namespace

// GCC takes them for those of the library where it inlines one of them alone.
[[gnu::noinline]] void* operator new(size_t bytes) {
  if (g_allocations_left >= 0 && g_allocations_left-- == 0) throw std::bad_alloc();
  void* at = std::malloc(std::max<size_t>(1, bytes));
  if (!at) throw std::bad_alloc();
  return at;
}
// Temporary buffers of std::stable_sort come from here and go to the operator delete below, so both must be of one kind.
[[gnu::noinline]] void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  return std::malloc(std::max<size_t>(1, bytes));
}
[[gnu::noinline]] void operator delete(void* at) noexcept { std::free(at); }
[[gnu::noinline]] void operator delete(void* at, size_t) noexcept { std::free(at); }

namespace pyflame {
namespace {

using test::SmallStep;

// --- the entries: what the backend chooses by its rules, and the same with one element of the result changed afterwards

std::unique_ptr<Executable> make_right(const Problem& p) {
  for (const Impl& impl : find_backend(p.graph.device.type)->impls(p))
    if (!impl.accepts(p)) return impl.make(p);
  return nullptr;
}

// The last one of an attention's gradients, of three: dV.
const Operand& result_of(const Problem& p) {
  const Node& last = p.node(p.size() - 1);
  return last.outs[last.outs.size() == 3 ? 2 : 0];
}

class Wrong final : public Executable {
 public:
  // `back`: how far before the last one the element is. `factor`: by it, the element is multiplied.
  explicit Wrong(const Problem& p, int64_t back = 0, std::optional<double> factor = {})
      : back_(back),
        factor_(factor),
        right_(make_right(p)),
        result_(result_of(p)),
        memory_(device_memory(p.graph.device)) {}
  size_t workspace() const override { return right_->workspace(); }
  void end_stand_in() override { right_->end_stand_in(); }
  // The element is as large as a sum of some terms.
  void run(const RunContext& ctx) override {
    right_->run(ctx);
    char* at = ctx.ptr<char>(result_) + (result_.numel() - 1 - back_) * dtype_size(result_.dtype);
    const auto size = static_cast<size_t>(dtype_size(result_.dtype));
    char element[8];
    if (memory_) memory_->to_host(element, at, size);
    else std::memcpy(element, at, size);
    test::write_element(result_.dtype, element, factor_ ? *factor_ * test::read_element(result_.dtype, element) : 5);
    if (memory_) memory_->from_host(at, element, size);
    else std::memcpy(at, element, size);
  }

 private:
  int64_t back_;
  std::optional<double> factor_;
  std::unique_ptr<Executable> right_;
  Operand result_;
  DeviceMemory* memory_;
};

Refusal accepts_all(const Problem&) { return std::nullopt; }
std::unique_ptr<Executable> make_wrong(const Problem& p) { return std::make_unique<Wrong>(p); }
int64_t before_last_inside(const Operand& o) { return o.numel() * 3 / 8 + 5; }
std::unique_ptr<Executable> make_wrong_inside(const Problem& p) {
  return std::make_unique<Wrong>(p, before_last_inside(result_of(p)));
}
int64_t test_offset(const Dims& index, const Dims& strides) {
  int64_t at = 0;
  for (int d = 0; d < index.size(); ++d) at += index[d] * strides[d];
  return at;
}
// The element that is special in kSpecial below.
int64_t special_place(const Problem& p) {
  return p.root().op == OpId::attention ? test_offset({0, 1, 35, 7}, result_of(p).strides)
                                        : test_offset({20, 7}, result_of(p).strides);
}
std::unique_ptr<Executable> make_special(const Problem& p) {
  const Operand& o = result_of(p);
  return std::make_unique<Wrong>(p, o.numel() - 1 - special_place(p),
                                 o.dtype == DType::float32 ? std::optional(1 + 0x1p-11) : std::nullopt);
}
constexpr Impl kRight{"right", accepts_all, make_right}, kAlsoRight{"also right", accepts_all, make_right},
    kWrong{"wrong", accepts_all, make_wrong}, kAlsoWrong{"also wrong", accepts_all, make_wrong},
    kWrongInside{"wrong inside", accepts_all, make_wrong_inside},
    kWrongInsideToo{"wrong inside too", accepts_all, make_wrong_inside},
    kSpecialPlace{"special", accepts_all, make_special};

// An implementation that enumerates two others: what is wrong inside, and what is right.
class TwoOthers final : public Configurations {
 public:
  std::vector<std::string> list(const Problem&) const override { return {}; }
  bool enumerates() const override { return true; }
  std::unique_ptr<Enumeration> enumerate(const Problem&) const override { return std::make_unique<Places>(); }
  std::unique_ptr<Executable> make(const Problem& p, const std::string& configuration) const override {
    return configuration == "inside" ? make_wrong_inside(p) : make_right(p);
  }

 private:
  struct Places final : Enumeration {
    size_t size() const override { return 2; }
    std::optional<std::string> at(size_t place) const override { return place == 0 ? "inside" : "right"; }
  };
};
const TwoOthers kTwoOthers;
const Impl kEnumerates{"enumerates", accepts_all, make_right, &kTwoOthers};

// --- a program of one step on a device

class OneStep {
 public:
  OneStep(SmallStep& s, Device device, const Impl& own, const std::vector<const Impl*>& others,
          std::vector<const Impl*> enumerating = {})
      : memory_(device_memory(device)) {
    s.graph().device = device;
    program_.backend = find_backend(device.type);
    program_.graph = s.graph();
    Step& step = program_.steps.emplace_back();
    step.group = s.group();
    const Problem problem{program_.graph, step.group};
    step.impl = own.name, step.executable = own.make(problem);
    for (const Impl* i : others) step.others.push_back({i, ""});
    step.enumerating = std::move(enumerating);
    note_slots(problem, step);
    window_.device = device;
    for (const Param& p : s.params()) window_.params.push_back(p);
    for (size_t i = 0; i < s.memory().size(); ++i) place(s.memory()[i], s.group().elided[BindingId(i)]);
  }
  ~OneStep() {
    for (void* p : allocated_) memory_->release(p);
  }
  OneStep(const OneStep&) = delete;
  OneStep& operator=(const OneStep&) = delete;

  std::optional<Replacement> tune() { return time_entries(frame(), 0); }
  Frame frame() {
    return {program_, window_, memory_, pointers_, bases_, nullptr, memory_ ? memory_->fault() : nullptr, 0, &none_};
  }

 private:
  static void note_slots(const Problem& p, Step& step) {
    for (size_t i = 0; i < p.size(); ++i) {
      for (const Operand& o : p.node(i).ins)
        if (!o.is_param && p.group.stores(o)) step.reads.push_back(p.graph.slot(o));
      for (const Operand& o : p.node(i).outs)
        if (p.group.stores(o)) step.writes.push_back(p.graph.slot(o)), step.covers.push_back(true);
    }
  }
  void place(std::vector<char>& bytes, bool elided) {
    void* at = elided ? nullptr : bytes.data();
    if (at && memory_) {
      at = memory_->allocate(bytes.size());
      allocated_.push_back(at);
      memory_->from_host(at, bytes.data(), bytes.size());
    }
    pointers_.push_back(at), bases_.push_back(static_cast<char*>(at));
  }

  DeviceMemory* memory_;
  Program program_;
  Window window_;
  Indexed<BindingId, void*> pointers_;
  Indexed<SlotId, char*> bases_;
  std::vector<void*> allocated_;
  void* none_ = nullptr;
};

// --- the problems

void product(SmallStep& s, DType d, int64_t m, int64_t k, int64_t n,
             MatmulPrecision precision = MatmulPrecision::highest) {
  s.node(OpId::matmul, {s.input(d, {m, k}), s.input(d, {k, n})}, {m, n}, MatmulAttrs{static_cast<int64_t>(precision)});
}

// The sample alone takes as many multiplications as a sample may, so what is added to it takes more.
void product_of_long_rows(SmallStep& s) {
  constexpr int64_t kTerms = 1 << 20;
  s.node(OpId::matmul, {s.input(DType::float64, {10, kTerms}, {0, 1}), s.input(DType::float64, {kTerms, 12}, {1, 0})},
         {10, 12}, MatmulAttrs{});
}

void product_of_8_bits(SmallStep& s) {
  constexpr auto kFormat = static_cast<int64_t>(DType::float8_e4m3fn);
  const Operand scale = s.input(DType::float32, {1});
  s.change(scale, [](const Dims&, double) { return 0x1p-12; });
  s.node(OpId::scaled_mm, {s.codes({48, 64}), s.codes({64, 48}, {1, 64}), scale, scale}, {48, 48},
         ScaledAttrs{kFormat, kFormat, 0});
}

void with_epilogue(SmallStep& s, DType d) {
  Operand x = s.node(OpId::matmul, {s.input(d, {40, 64}), s.input(d, {64, 48})}, {40, 48}, MatmulAttrs{}, true);
  x = s.node(OpId::add, {x, s.input(d, {48})}, {40, 48}, NoAttrs{}, true);
  s.node(OpId::tanh, {x}, {40, 48});
}

void convolution(SmallStep& s, OpId op) {
  const Dims image{4, 64, 34, 30}, weight{64, 64, 3, 3};
  const ConvAttrs attrs{1, 1, 1, 1, 1, 1, 1};
  const Dims &a = image, &b = op == OpId::conv2d_grad_weight ? image : weight;
  s.node(op, {s.input(DType::float32, a), s.input(DType::float32, b)}, op == OpId::conv2d_grad_weight ? weight : image,
         attrs);
}

void channels_last_convolution(SmallStep& s) {
  const Dims image{4, 64, 34, 30}, made{4, 96, 34, 30}, turned{4, 34, 30, 96};
  const DType d = DType::float32;
  const Operand a = s.input(d, image, strides_of(image, MemoryFormat::channels_last)), b = s.input(d, {96, 64, 3, 3});
  s.node(OpId::conv2d, {a, b}, made, ConvAttrs{1, 1, 1, 1, 1, 1, 1}, true);
  const Operand x = s.as_channels_last();
  s.node(OpId::add, {x, s.input(d, {1, 1, 1, 96})}, turned);
}

void attention(SmallStep& s, DType d) {
  const Dims shape{2, 2, 40, 32};
  s.node(OpId::attention, {s.input(d, shape), s.input(d, shape), s.input(d, shape), s.number(0.2), s.number(40)}, shape,
         AttentionAttrs{1, 0});
}

void packed_attention(SmallStep& s, DType d) {
  const Dims shape{80, 4, 32}, keys{80, 2, 32};
  s.node(OpId::varlen_attn,
         {s.input(d, shape), s.input(d, keys), s.input(d, keys), s.numbers({0, 30, 80}), s.numbers({0, 30, 80}),
          s.number(0.2), s.number(50), s.number(50)},
         shape, AttentionAttrs{1, 0});
}

void attention_gradient(SmallStep& s, DType d) {
  const Dims shape{2, 4, 40, 32}, keys{2, 2, 40, 32};
  s.attention_gradient({s.input(d, shape), s.input(d, keys), s.input(d, keys), s.number(0.2), s.number(40)},
                       AttentionAttrs{1, 0});
}

void packed_gradient(SmallStep& s) {
  const Dims shape{80, 4, 32}, keys{80, 2, 32};
  const DType d = DType::bfloat16;
  s.attention_gradient({s.input(d, shape), s.input(d, keys), s.input(d, keys), s.numbers({0, 30, 80}),
                        s.numbers({0, 30, 80}), s.number(0.2), s.number(50), s.number(50)},
                       AttentionAttrs{1, 0});
}

void paged_attention(SmallStep& s) {
  const DType d = DType::bfloat16;
  const Operand q = s.input(d, {20, 4, 32}), k = s.input(d, {40, 16, 2, 32}), v = s.input(d, {40, 16, 2, 32}),
                table = s.input(DType::int32, {20, 2});
  s.change(table, [](const Dims& i, double) { return static_cast<double>(39 - 2 * i[0] - i[1]); });
  s.node(OpId::paged_attention,
         {q, k, v, table, s.numbers(std::vector<int64_t>(20, 27)), s.number(0.2), s.number(0), s.number(0)},
         {20, 4, 32}, PagedAttrs{static_cast<int64_t>(d)});
}

// Pages of 8 bits, and a soft cap.
void capped_float8_pages(SmallStep& s) {
  const Operand q = s.input(DType::bfloat16, {20, 4, 32}), k = s.codes({40, 16, 2, 32}), v = s.codes({40, 16, 2, 32}),
                table = s.input(DType::int32, {20, 2}), lengths = s.numbers(std::vector<int64_t>(20, 27)),
                k_scale = s.input(DType::float32, {40, 16, 2}), v_scale = s.input(DType::float32, {40, 16, 2});
  s.change(table, [](const Dims& i, double) { return static_cast<double>(39 - 2 * i[0] - i[1]); });
  for (const Operand& o : {k_scale, v_scale}) s.change(o, [](const Dims&, double x) { return 0.02 * (1.25 + x); });
  s.node(OpId::paged_attention, {q, k, v, table, lengths, k_scale, v_scale, s.number(0.2), s.number(0), s.number(2)},
         {20, 4, 32}, PagedAttrs{static_cast<int64_t>(DType::float8_e4m3fn)});
}

const std::map<std::string, void (*)(SmallStep&)> kProblems = {
    {"LargeProduct", [](SmallStep& s) { product(s, DType::float32, 400, 400, 400); }},
    {"ProductWithALargeResult", [](SmallStep& s) { product(s, DType::bfloat16, 3000, 4, 3000); }},
    {"RoundedInputs", [](SmallStep& s) { product(s, DType::float32, 40, 64, 48, MatmulPrecision::high); }},
    {"Float8Product", product_of_8_bits},
    {"Float16Epilogue", [](SmallStep& s) { with_epilogue(s, DType::float16); }},
    {"BFloat16Epilogue", [](SmallStep& s) { with_epilogue(s, DType::bfloat16); }},
    {"Convolution", [](SmallStep& s) { convolution(s, OpId::conv2d); }},
    {"ChannelsLastEpilogue", channels_last_convolution},
    {"GradientOfImages", [](SmallStep& s) { convolution(s, OpId::conv2d_grad_input); }},
    {"GradientOfWeights", [](SmallStep& s) { convolution(s, OpId::conv2d_grad_weight); }},
    {"Float16Attention", [](SmallStep& s) { attention(s, DType::float16); }},
    {"BFloat16Attention", [](SmallStep& s) { attention(s, DType::bfloat16); }},
    {"BFloat16PackedAttention", [](SmallStep& s) { packed_attention(s, DType::bfloat16); }},
    {"PackedGradient", packed_gradient},
    {"PagedAttention", paged_attention},
    {"CappedFloat8Pages", capped_float8_pages},
    {"Float16AttentionGradient", [](SmallStep& s) { attention_gradient(s, DType::float16); }},
    {"BFloat16AttentionGradient", [](SmallStep& s) { attention_gradient(s, DType::bfloat16); }},
};
// Problems with an element that two right results may have differently.
void padded_attention(SmallStep& s) {
  const Dims shape{2, 2, 40, 32};
  const DType d = DType::float16;
  const Operand q = s.input(d, shape), k = s.input(d, shape), v = s.input(d, shape), mask = s.input(d, {2, 1, 1, 40});
  s.change(mask, [](const Dims& i, double) { return i[0] == 0 && i[3] >= 30 ? -INFINITY : 0; });
  s.node(OpId::attention, {q, k, v, mask, s.number(0.2), s.number(40)}, shape, AttentionAttrs{0, 1, 0, 1});
}

void overflowing_product(SmallStep& s) {
  const Operand a = s.input(DType::float16, {40, 64}), b = s.input(DType::float16, {64, 48});
  s.change(a, [](const Dims& i, double x) { return i[0] == 20 ? 60000 : x; });
  const Operand x = s.node(OpId::matmul, {a, b}, {40, 48}, MatmulAttrs{}, true);
  s.node(OpId::tanh, {x}, {40, 48});
}

// The inputs may be rounded to 10 bits, which is much for an element that is much larger than the others.
void one_large_element(SmallStep& s) {
  const Operand a = s.input(DType::float32, {40, 64}), b = s.input(DType::float32, {64, 48});
  s.change(a, [](const Dims& i, double x) { return i[0] == 20 ? 30 * std::fabs(x) : x; });
  s.change(b, [](const Dims& i, double x) { return i[1] == 7 ? 30 * std::fabs(x) : x; });
  s.node(OpId::matmul, {a, b}, {40, 48}, MatmulAttrs{static_cast<int64_t>(MatmulPrecision::high)});
}

const char* const kLongSum = "ProductOfLongRows";
const std::map<std::string, void (*)(SmallStep&)> kSpecial = {{kLongSum, product_of_long_rows},
                                                              {"Padding", padded_attention},
                                                              {"Overflow", overflowing_product},
                                                              {"OneLargeElement", one_large_element}};

// Those that take the emulator of waves long.
const char* const kOnTheHostAlone[] = {"LargeProduct",         "ProductWithALargeResult", "Convolution",
                                       "ChannelsLastEpilogue", "GradientOfImages",        "GradientOfWeights"};

class WrongEntries : public ::testing::TestWithParam<std::tuple<std::string, bool>> {
 protected:
  void SetUp() override {
    const auto& [name, on_gpu] = GetParam();
    if (on_gpu) {
      if (device_count(DeviceType::cuda) > 0) where_ = {DeviceType::cuda, 0};
      else if (device_count(DeviceType::rocm) > 0) where_ = {DeviceType::rocm, 0};
      else GTEST_SKIP() << "no GPU: " << unavailable_reason(DeviceType::cuda);
    }
    before_ = choices_file();
    set_choices_file(folder_ / "choices.sqlite");
    if (!Choices::in(choices_file()).trouble().empty()) GTEST_SKIP() << Choices::in(choices_file()).trouble();
    (kProblems.contains(name) ? kProblems : kSpecial).at(name)(step_);
    count_candidates_as_milliseconds(true);
    set_tune_budget_ms(static_cast<double>(choice_stats().spent_ms) + 6);
  }
  void TearDown() override {
    if (before_.empty()) return;
    count_candidates_as_milliseconds(false);
    set_tune_budget_ms(0);
    set_choices_file(before_);
  }

  std::optional<Replacement> tune(const Impl& own, const std::vector<const Impl*>& others,
                                  const std::vector<const Impl*>& enumerating = {}) {
    ::testing::internal::CaptureStderr();
    auto winner = OneStep(step_, where_, own, others, enumerating).tune();
    said_ = ::testing::internal::GetCapturedStderr();
    return winner;
  }

  // What the file says of an entry: "sound", or why it is not.
  std::map<std::string, std::string> found() const {
    const sqlite::Database db(choices_file());
    sqlite::Statement s(db, "SELECT entry, sound, note FROM measurements");
    std::map<std::string, std::string> all;
    while (s.step() == sqlite::kRow) all[std::string(s.text(0))] = s.integer(1) ? "sound" : std::string(s.text(2));
    return all;
  }
  void expect_wrong(const std::string& entry) const {
    const std::string note = found()[entry];
    EXPECT_NE(note.find("its result differs by"), std::string::npos) << note;
    EXPECT_NE(note.find(": got 5 at ("), std::string::npos) << note;
  }

  void expect_not_in_sample() {
    const Operand& o = result_of(step_.problem());
    expect_not_in_sample(o.numel() - 1 - before_last_inside(o));
  }
  void expect_not_in_sample(int64_t at) {
    const auto sample = step_.sample();
    EXPECT_FALSE(sample.empty());
    for (const SampledElement& e : sample)
      EXPECT_TRUE(e.binding != result_of(step_.problem()).binding || e.at != at) << e.index.str();
  }
  Problem problem() const { return step_.problem(); }

  std::string said_;

 private:
  SmallStep step_;
  Device where_;
  test::TempFolder folder_;
  std::string before_;
};

TEST_P(WrongEntries, TheOnlyWrongCandidateIsUnsound) {
  tune(kRight, {&kWrong, &kAlsoRight});
  EXPECT_EQ(said_, "");
  EXPECT_EQ(found()["right"], "sound");
  EXPECT_EQ(found()["also right"], "sound");
  expect_wrong("wrong");
}

TEST_P(WrongEntries, AWrongOwnEntryIsReportedAndReplaced) {
  const auto winner = tune(kWrong, {&kAlsoWrong, &kRight});
  ASSERT_TRUE(winner);
  EXPECT_EQ(winner->candidate.name(), "right");
  EXPECT_NE(said_.find("pyflame: wrong is wrong in "), std::string::npos) << said_;
  EXPECT_NE(said_.find(": got 5 at ("), std::string::npos) << said_;
  EXPECT_NE(said_.find("another implementation computes it from now on"), std::string::npos) << said_;
  EXPECT_EQ(found()["right"], "sound");
  expect_wrong("wrong"), expect_wrong("also wrong");
}

// One element in the middle, which no sample has.
TEST_P(WrongEntries, WhereTwoDifferTheRightOneIsFound) {
  expect_not_in_sample();
  tune(kRight, {&kWrongInside, &kAlsoRight});
  EXPECT_EQ(said_, "");
  EXPECT_EQ(found()["right"], "sound");
  EXPECT_EQ(found()["also right"], "sound");
  expect_wrong("wrong inside");
}

TEST_P(WrongEntries, AWrongOwnEntryIsFoundByARightOne) {
  expect_not_in_sample();
  const auto winner = tune(kWrongInside, {&kWrong, &kRight});
  ASSERT_TRUE(winner);
  EXPECT_EQ(winner->candidate.name(), "right");
  EXPECT_NE(said_.find("pyflame: wrong inside is wrong in "), std::string::npos) << said_;
  EXPECT_EQ(found()["right"], "sound");
  expect_wrong("wrong"), expect_wrong("wrong inside");
}

// The second one is expected to be right until the third one shows that it is not.
TEST_P(WrongEntries, ADisprovedCandidateDoesNotWin) {
  expect_not_in_sample();
  const auto winner = tune(kWrong, {&kWrongInside, &kRight});
  ASSERT_TRUE(winner);
  EXPECT_EQ(winner->candidate.name(), "right");
  EXPECT_EQ(found()["right"], "sound");
  expect_wrong("wrong"), expect_wrong("wrong inside");
}

// Before the own one was found to be wrong.
TEST_P(WrongEntries, CandidatesThatAgreedWithAWrongOwnEntryAreLookedAtAgain) {
  expect_not_in_sample();
  const auto winner = tune(kWrongInside, {&kWrongInsideToo, &kRight});
  ASSERT_TRUE(winner);
  EXPECT_EQ(winner->candidate.name(), "right");
  EXPECT_EQ(found()["right"], "sound");
  expect_wrong("wrong inside"), expect_wrong("wrong inside too");
}

TEST_P(WrongEntries, EnumeratedCandidatesThatWereLookedAtAreLookedAtAgain) {
  expect_not_in_sample();
  const auto winner = tune(kWrongInside, {}, {&kEnumerates});
  ASSERT_TRUE(winner);
  EXPECT_EQ(winner->candidate.name(), "enumerates:right");
  EXPECT_EQ(found()["enumerates:right"], "sound");
  expect_wrong("wrong inside"), expect_wrong("enumerates:inside");
}

TEST_P(WrongEntries, WhereAllAreWrongNoneIsTheTruth) {
  EXPECT_FALSE(tune(kWrong, {&kAlsoWrong}));
  EXPECT_NE(said_.find("no other implementation is right"), std::string::npos) << said_;
  expect_wrong("wrong"), expect_wrong("also wrong");
}

// Whichever allocation fails: the step itself may have the memory.
TEST(WrongEntriesWithoutMemory, ThereIsNoSample) {
  for (const char* name : {"LargeProduct", "Float16Epilogue", "BFloat16Attention", "BFloat16AttentionGradient"}) {
    SCOPED_TRACE(name);
    SmallStep small;
    kProblems.at(name)(small);
    OneStep step(small, Device(), kRight, {});
    const Frame frame = step.frame();
    std::optional<Sample> sample;
    for (int64_t n = 0; !sample; n += 1 + n / 4) {
      g_allocations_left = n;
      ASSERT_NO_THROW(sample = Sample::of(frame, 0)) << n;
      const bool failed = g_allocations_left < 0;
      g_allocations_left = -1;
      ASSERT_EQ(failed, !sample) << n;
    }
    const Operand& o = result_of(small.problem());
    const SlotId slot = small.graph().slot(o);
    const int64_t byte = (o.numel() - 1 - before_last_inside(o)) * dtype_size(o.dtype);
    for (int64_t n = 0; n < 1000; n += 1 + n / 4) {
      g_allocations_left = n;
      Sample::Added added = Sample::Added::open;
      ASSERT_NO_THROW(added = sample->add(slot, byte)) << n;
      const bool failed = g_allocations_left < 0;
      g_allocations_left = -1;
      if (!failed) break;
      EXPECT_NE(added, Sample::Added::open) << n;
    }
    EXPECT_EQ(sample->add(slot, byte), Sample::Added::compared);
  }
}

// Factors with many lines stay on a device, and a sample copies the lines that it needs.
TEST(SamplesOfADevice, ProductsWithManyLines) {
  const DeviceType type = device_count(DeviceType::cuda) > 0 ? DeviceType::cuda : DeviceType::rocm;
  if (device_count(type) == 0) GTEST_SKIP() << "no GPU: " << unavailable_reason(DeviceType::cuda);
  for (const DType d : {DType::bfloat16, DType::uint8})
    for (const Dims& strides : {Dims{300, 1}, Dims{1, 8}}) {
      SCOPED_TRACE(fmt::format("{} {}", dtype_name(d), strides.str()));
      SmallStep s;
      if (d == DType::uint8) {
        const Operand scale = s.input(DType::float32, {1});
        constexpr auto kFormat = static_cast<int64_t>(DType::float8_e4m3fn);
        s.node(OpId::scaled_mm, {s.codes({300, 8}), s.codes({8, 300}, strides), scale, scale}, {300, 300},
               ScaledAttrs{kFormat, kFormat, 0});
      } else {
        s.node(OpId::matmul, {s.input(d, {300, 8}), s.input(d, {8, 300}, strides)}, {300, 300}, MatmulAttrs{});
      }
      OneStep step(s, {type, 0}, kRight, {});
      const Frame frame = step.frame();
      const std::optional<Sample> sample = Sample::of(frame, 0);
      ASSERT_TRUE(sample);
      s.run();
      const SlotId slot = s.graph().slot(s.result());
      const char* made = s.memory()[s.result().binding.index()].data();
      EXPECT_LE(sample->difference(slot, made).error, 1);
      s.change(s.result(), [](const Dims& i, double x) { return i[0] == 299 ? 3 * x + 1 : x; });
      EXPECT_GT(sample->difference(slot, made).error, 1);
    }
}

std::vector<std::string> names(bool on_gpu) {
  std::vector<std::string> all;
  for (const auto& [name, make] : kProblems)
    if (!on_gpu || std::find(std::begin(kOnTheHostAlone), std::end(kOnTheHostAlone), name) == std::end(kOnTheHostAlone))
      all.push_back(name);
  return all;
}
class RightEntries : public WrongEntries {};
class WrongLongSums : public WrongEntries {};

// The sample has as many multiplications as one usually has, and yet one more element says which of two is right. Each is timed as little as can be.
TEST_P(WrongLongSums, TheRightOneIsFound) {
  expect_not_in_sample();
  set_tune_budget_ms(choice_stats().spent_ms + 3);  // a millisecond for each of the three
  tune(kRight, {&kWrongInside, &kAlsoRight});
  EXPECT_EQ(said_, "");
  EXPECT_EQ(found()["right"], "sound");
  EXPECT_EQ(found()["also right"], "sound");
  expect_wrong("wrong inside");
}

// What differs there is right in both, whichever computes already.
TEST_P(RightEntries, MayDifferAtASpecialElement) {
  expect_not_in_sample(special_place(problem()));
  for (const Impl* own : {&kRight, &kSpecialPlace}) {
    tune(*own, {own == &kRight ? &kSpecialPlace : &kRight, &kWrong});
    EXPECT_EQ(said_, "");
    EXPECT_EQ(found()["right"], "sound");
    EXPECT_EQ(found()["special"], "sound");
    expect_wrong("wrong");
  }
}

std::vector<std::string> special_names() {
  std::vector<std::string> all;
  for (const auto& [name, make] : kSpecial)
    if (name != kLongSum) all.push_back(name);
  return all;
}

const auto kName = [](const auto& info) { return std::get<0>(info.param); };
INSTANTIATE_TEST_SUITE_P(Cpu, WrongEntries,
                         ::testing::Combine(::testing::ValuesIn(names(false)), ::testing::Values(false)), kName);
INSTANTIATE_TEST_SUITE_P(Gpu, WrongEntries,
                         ::testing::Combine(::testing::ValuesIn(names(true)), ::testing::Values(true)), kName);

INSTANTIATE_TEST_SUITE_P(Cpu, WrongLongSums,
                         ::testing::Combine(::testing::Values(std::string(kLongSum)), ::testing::Values(false)), kName);
INSTANTIATE_TEST_SUITE_P(Cpu, RightEntries,
                         ::testing::Combine(::testing::ValuesIn(special_names()), ::testing::Values(false)), kName);
INSTANTIATE_TEST_SUITE_P(Gpu, RightEntries,
                         ::testing::Combine(::testing::ValuesIn(special_names()), ::testing::Values(true)), kName);

}  // namespace
}  // namespace pyflame
