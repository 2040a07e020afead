// Numbers do not depend on windows, fusion or the memory plan: random programs give the same bits in one long window, in windows of
// one op, without fusion and without the planner, and agree with the reference device.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

#include "pyflame/record/recorder.h"
#include "pyflame/runtime/device.h"
#include "support/random_program.h"

namespace pyflame {
namespace {

using testing::RandomOptions;
using testing::RandomProgram;

struct Result {
  std::vector<Dims> shapes;
  std::vector<std::vector<double>> values;
  std::string log;
};

Result execute(uint64_t seed, const RandomOptions& options) {
  set_current_device(options.device);
  RandomProgram program(seed, options);
  Tensors out = program.run();
  Result r;
  for (Tensor& t : out) {
    r.shapes.push_back(t.shape());
    const Tensor dense = contiguous(cast(t, DType::float64));
    const auto* p = static_cast<const double*>(dense.data());
    r.values.emplace_back(p, p + dense.numel());
    t = Tensor();
  }
  set_current_device(Device{});
  r.log = program.log();
  return r;
}

// Bit for bit (a NaN is a NaN) when tolerance is 0.
std::string difference(const Result& a, const Result& b, double tolerance) {
  if (a.values.size() != b.values.size()) return "other number of results";
  for (size_t i = 0; i < a.values.size(); ++i) {
    if (!(a.shapes[i] == b.shapes[i])) return "other shapes";
    for (size_t k = 0; k < a.values[i].size(); ++k) {
      const double x = a.values[i][k], y = b.values[i][k];
      if (x == y || (std::isnan(x) && std::isnan(y))) continue;
      if (tolerance > 0 && std::fabs(x - y) <= tolerance * std::max({1.0, std::fabs(x), std::fabs(y)})) continue;
      std::ostringstream text;
      text.precision(17);
      text << "result " << i << " of shape " << a.shapes[i].str() << ", element " << k << ": " << x << " and " << y;
      return text.str();
    }
  }
  return "";
}

RandomOptions options_for(uint64_t seed) {
  RandomOptions o;
  o.ops = 5 + static_cast<int>(seed * 7 % 56);
  o.dtype = seed % 5 == 3 ? DType::float64 : seed % 11 == 4 ? DType::bfloat16 : DType::float32;
  return o;
}

constexpr uint64_t kPrograms = 600;

TEST(RandomPrograms, OneWindowOrManyGiveTheSameBits) {
  for (uint64_t seed = 1; seed <= kPrograms; ++seed) {
    for (double scale : {1.0, 0.7}) {  // the second round finds its programs in the cache
      RandomOptions o = options_for(seed);
      o.scale = scale;
      const Result fused = execute(seed, o);
      o.after_op = synchronize;
      const Result alone = execute(seed, o);
      const std::string d = difference(fused, alone, 0);
      ASSERT_EQ(d, "") << "seed " << seed << ", scale " << scale << "\n" << fused.log;
    }
  }
}

TEST(RandomPrograms, RepeatedProgramsGiveTheSameBits) {
  for (uint64_t seed = 1000; seed <= 1040; ++seed) {
    const RandomOptions o = options_for(seed);
    const Result first = execute(seed, o);
    for (int again = 0; again < 3; ++again)
      ASSERT_EQ(difference(first, execute(seed, o), 0), "") << "seed " << seed << "\n" << first.log;
  }
}

TEST(RandomPrograms, ProductsAreWithinToleranceOfOneByOne) {
  for (uint64_t seed = 2000; seed <= 2080; ++seed) {
    RandomOptions o = options_for(seed);
    o.dtype = seed % 2 ? DType::float64 : DType::float32;
    o.matmul = true;
    o.jumps = o.other_dtypes = false;
    const Result fused = execute(seed, o);
    o.after_op = synchronize;
    // Chains of dozens of ops amplify the last bit of a product.
    const std::string d = difference(fused, execute(seed, o), o.dtype == DType::float64 ? 1e-7 : 2e-2);
    ASSERT_EQ(d, "") << "seed " << seed << "\n" << fused.log;
  }
}

TEST(Products, OfOneElementNextToAWriteOfTheirOperand) {
  const Tensor x = full({1, 1}, 2.0, DType::float32), r = full({1, 1}, 3.0, DType::float32);
  synchronize();
  const Tensor y = add(matmul(x, x), r);
  copy_(r, mul(y, 10.0));  // r is read and written next to the product
  const Tensor z = add(y, r);
  EXPECT_EQ(y.item_f64(), 7.0);
  EXPECT_EQ(r.item_f64(), 70.0);
  EXPECT_EQ(z.item_f64(), 77.0);
}

TEST(RandomPrograms, AgreeWithTheReference) {
  for (uint64_t seed = 3000; seed <= 3080; ++seed) {
    RandomOptions o = options_for(seed);
    o.ops = std::min(o.ops, 30);
    o.dtype = DType::float64;
    o.matmul = seed % 3 == 0;
    o.jumps = o.other_dtypes = false;
    const Result cpu = execute(seed, o);
    o.device = Device{DeviceType::reference};
    const std::string d = difference(cpu, execute(seed, o), 1e-7);
    ASSERT_EQ(d, "") << "seed " << seed << "\n" << cpu.log;
  }
}

TEST(RandomPrograms, GradientsDoNotDependOnWindows) {
  int with_gradients = 0;
  for (uint64_t seed = 4000; seed <= 4200; ++seed) {
    RandomOptions o = options_for(seed);
    o.ops = std::min(o.ops, 40);
    o.gradients = true;
    const Result fused = execute(seed, o);
    with_gradients += fused.values.size() > 12;
    o.after_op = synchronize;
    ASSERT_EQ(difference(fused, execute(seed, o), 0), "") << "seed " << seed << "\n" << fused.log;
  }
  EXPECT_GT(with_gradients, 20);
}

TEST(RandomPrograms, GradientsAgreeWithTheReference) {
  for (uint64_t seed = 4500; seed <= 4600; ++seed) {
    RandomOptions o = options_for(seed);
    o.ops = std::min(o.ops, 25);
    o.dtype = DType::float64;
    o.gradients = true;
    o.jumps = o.other_dtypes = false;
    const Result cpu = execute(seed, o);
    o.device = Device{DeviceType::reference};
    ASSERT_EQ(difference(cpu, execute(seed, o), 1e-6), "") << "seed " << seed << "\n" << cpu.log;
  }
}

// Settings are read once a process: the other settings run in a child that prints its values.
constexpr uint64_t kFirstSeed = 5000, kLastSeed = 5040;

void write_digest(std::ostream& to) {
  for (uint64_t seed = kFirstSeed; seed <= kLastSeed; ++seed) {
    const Result r = execute(seed, options_for(seed));
    uint64_t h = 0xcbf29ce484222325ull;
    for (const auto& v : r.values)
      for (double x : v) {
        uint64_t bits = 0;
        if (std::isnan(x)) x = NAN;
        if (x == 0) x = 0;
        std::memcpy(&bits, &x, sizeof bits);
        h = (h ^ bits) * 0x100000001b3ull;
      }
    to << seed << ' ' << h << '\n';
  }
}

TEST(RandomPrograms, DISABLED_Digest) {
  std::ofstream to(std::getenv("PYFLAME_TEST_DIGEST"));
  write_digest(to);
}

std::string digest_with(const std::string& setting) {
  const std::string path = ::testing::TempDir() + "pyflame_digest_" + std::to_string(getpid());
  char self[4096] = {};
  if (FILE* f = std::fopen("/proc/self/cmdline", "rb")) {
    [[maybe_unused]] const size_t n = std::fread(self, 1, sizeof self - 1, f);
    std::fclose(f);
  }
  const std::string command = setting + " PYFLAME_TEST_DIGEST='" + path + "' '" + self +
                              "' --gtest_also_run_disabled_tests --gtest_filter='*DISABLED_Digest' > /dev/null";
  EXPECT_EQ(std::system(command.c_str()), 0) << command;
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  std::remove(path.c_str());
  return text.str();
}

TEST(RandomPrograms, NoSettingChangesABit) {
  std::ostringstream here;
  write_digest(here);
  ASSERT_GT(here.str().size(), 100u);
  for (const char* setting : {"PYFLAME_FUSE=0", "PYFLAME_PLAN_MEMORY=0", "PYFLAME_WINDOW=1", "PYFLAME_WINDOW=7",
                              "PYFLAME_NUM_THREADS=1", "PYFLAME_CACHE_SIZE=1"})
    EXPECT_EQ(digest_with(setting), here.str()) << setting;
}

}  // namespace
}  // namespace pyflame
