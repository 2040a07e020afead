// The op table: names, the defaults of each class, and traits that exclude or require each other.
#include "pyflame/ops/op.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "pyflame/base/error.h"

namespace pyflame {
namespace {

TEST(OpTable, NamesAreUniqueAndFound) {
  std::set<std::string> names;
  for (int i = 0; i < kNumOps; ++i) {
    EXPECT_TRUE(names.insert(kOps[i].name).second) << kOps[i].name;
    EXPECT_EQ(op_from_name(kOps[i].name), static_cast<OpId>(i));
  }
  EXPECT_THROW(op_from_name("no such op"), Error);
}

TEST(OpTable, DefaultsFollowTheClass) {
  EXPECT_TRUE(op_info(OpId::add).layout_kept);
  EXPECT_FALSE(op_info(OpId::arange).layout_kept);
  EXPECT_FALSE(op_info(OpId::matmul).layout_kept);
  EXPECT_TRUE(op_info(OpId::conv2d).layout_kept);
  EXPECT_TRUE(op_info(OpId::arange).index_matters);
  EXPECT_FALSE(op_info(OpId::full).index_matters);
  EXPECT_STREQ(work_name(op_info(OpId::add).kind_of_work), "elementwise");
  EXPECT_STREQ(work_name(op_info(OpId::sum).kind_of_work), "reduction");
  EXPECT_STREQ(work_name(op_info(OpId::matmul).kind_of_work), "GEMM");
  EXPECT_STREQ(work_name(op_info(OpId::sort).kind_of_work), "other");
}

TEST(OpTable, TraitsAgree) {
  for (int i = 0; i < kNumOps; ++i) {
    const OpInfo& info = kOps[i];
    EXPECT_TRUE(!info.bool_result || (info.exact_result && !info.floats_only)) << info.name;
    EXPECT_FALSE(info.may_fail && info.floats_only) << info.name << ": fails on integers, which it does not take";
    EXPECT_TRUE(info.overwritten < 0 || info.overwritten < info.arity) << info.name;
    EXPECT_TRUE(!info.index_matters || info.cls == OpClass::Source) << info.name;
    EXPECT_TRUE(info.param_count == 0 || is_elementwise(info.cls)) << info.name;
    const bool continuous = info.jumps_in != kAnyInput;
    EXPECT_TRUE(!continuous || (is_elementwise(info.cls) && info.arity > 0 && !info.bool_result &&
                                !info.integers_only && !info.bits_kept))
        << info.name << ": a step, or no function of floats";
    EXPECT_TRUE(info.jumps_in < 0 || info.jumps_in < info.arity) << info.name;
    EXPECT_TRUE(info.cpu_cost >= 1 && info.gpu_cost >= 1) << info.name;
  }
}

}  // namespace
}  // namespace pyflame
