// The debug allocator (runtime/debug_memory.h): accesses that really happen, without Python.
#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "pyflame/compile/inject.h"
#include "pyflame/ops/ops.h"
#include "pyflame/record/recorder.h"
#include "pyflame/runtime/allocator.h"
#include "pyflame/runtime/debug_memory.h"
#include "support/plan.h"
#include "support/tensor_values.h"

namespace pyflame {
namespace {

using debug_memory::Violation;
using testing::error_of;

class DebugMemory : public ::testing::Test {
 protected:
  void SetUp() override {
    synchronize();
    before_ = debug_memory::settings();
    debug_memory::configure({.guards = true, .poison = true});
  }
  void TearDown() override {
    stop_injecting();
    debug_memory::configure(before_);
  }
  debug_memory::Settings before_;
};

// A compiler must not know that the access is wrong.
void touch(volatile char* p, bool write) {
  if (write) *p = 3;
  else static_cast<void>(*p);
}

TEST_F(DebugMemory, FindsWritesBesideABlock) {
  auto* p = static_cast<char*>(allocate_raw({}, 100, MemoryUse::tensors));
  EXPECT_FALSE(debug_memory::check());
  touch(p + 100, true);
  auto v = debug_memory::check();
  ASSERT_TRUE(v);
  EXPECT_EQ(v->side, Violation::Behind);
  EXPECT_EQ(v->offset, 0u);
  EXPECT_EQ(v->count, 1u);
  EXPECT_EQ(v->bytes, 100u);
  EXPECT_EQ(v->data, p);
  EXPECT_FALSE(debug_memory::check());  // the guards are whole again
  touch(p - 1, true);
  v = debug_memory::check();
  ASSERT_TRUE(v);
  EXPECT_EQ(v->side, Violation::Before);
  EXPECT_EQ(v->offset, 1u);
  free_raw({}, p, 100, MemoryUse::tensors);
}

TEST_F(DebugMemory, FindsACopyFromOneBlocksGuardToAnothers) {
  auto *p = static_cast<char*>(allocate_raw({}, 100, MemoryUse::tensors)),
       *q = static_cast<char*>(allocate_raw({}, 100, MemoryUse::tensors));
  for (volatile char *from = p + 100, *to = q + 100; to < q + 108;) *to++ = *from++;
  const auto v = debug_memory::check();
  ASSERT_TRUE(v);
  EXPECT_EQ(v->data, q);
  EXPECT_EQ(v->side, Violation::Behind);
  EXPECT_GT(v->count, 4u);
  free_raw({}, p, 100, MemoryUse::tensors);
  free_raw({}, q, 100, MemoryUse::tensors);
}

TEST_F(DebugMemory, FindsReadsAtTheAccess) {
  auto* p = static_cast<char*>(allocate_raw({}, 128, MemoryUse::tensors));
  for (const int offset : {128, 4000, -8000}) {
    if (offset < 0 && offset > -4096) continue;
    touch(p + offset, false);
    const auto v = debug_memory::check();
    ASSERT_TRUE(v) << offset;
    EXPECT_NE(v->kind, Violation::Written);
  }
  EXPECT_FALSE(debug_memory::check());
  free_raw({}, p, 128, MemoryUse::tensors);
}

TEST_F(DebugMemory, FindsAccessesToFreedBlocks) {
  auto* p = static_cast<char*>(allocate_raw({}, 256, MemoryUse::tensors));
  free_raw({}, p, 256, MemoryUse::tensors);
  touch(p + 8, true);
  const auto v = debug_memory::check();
  ASSERT_TRUE(v);
  EXPECT_EQ(v->side, Violation::Freed);
  EXPECT_EQ(v->offset, 8u);
  EXPECT_EQ(v->data, p);
}

TEST_F(DebugMemory, FillsFreshMemory) {
  auto* p = static_cast<char*>(allocate_raw({}, 64, MemoryUse::tensors));
  uint16_t words[32];
  std::memcpy(words, p, sizeof words);
  for (const uint16_t w : words) EXPECT_EQ(w, debug_memory::kFresh);
  free_raw({}, p, 64, MemoryUse::tensors);
}

TEST_F(DebugMemory, BlocksAreCountedAndCanBeFreedLater) {
  const uint64_t before = memory_stats().allocated;
  void* p = allocate_raw({}, 1000, MemoryUse::tensors);
  EXPECT_GE(memory_stats().allocated, before + 1000);
  debug_memory::configure({});
  free_raw({}, p, 1000, MemoryUse::tensors);
  EXPECT_EQ(memory_stats().allocated, before);
}

TEST_F(DebugMemory, AStepThatWritesOutsideIsNamed) {
  const Tensor x = full({16}, 1.0);
  synchronize();
  Injection wrong;
  wrong.op = "exp", wrong.misbehaviour = Injection::Writes, wrong.offset = 64, wrong.count = 2;
  start_injecting(wrong);
  const Tensor y = exp(x);
  const std::string text = error_of(ErrorKind::Runtime, [&] { y.data(); });
  EXPECT_NE(
      text.find("exp: wrote outside of a buffer; got 2 bytes changed 0 bytes behind the end of a buffer of 64 bytes"),
      std::string::npos)
      << text;
  EXPECT_NE(text.find("in step 1 of 1"), std::string::npos) << text;
  stop_injecting();
  testing::expect_values(add(x, 1.0), std::vector<double>(16, 2.0));
}

}  // namespace
}  // namespace pyflame
