// A profile from C++: what it records, whose window it was, and that its trace is JSON whatever the names are.
#include "pyflame/runtime/profiler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <thread>

#include "pyflame/base/env.h"
#include "pyflame/ops/ops.h"
#include "pyflame/record/recorder.h"

namespace pyflame {
namespace {

using events::Event;
using events::Kind;
using events::Recording;

std::vector<Event> of_kind(const Recording& r, Kind kind) {
  std::vector<Event> out;
  std::copy_if(r.events.begin(), r.events.end(), std::back_inserter(out),
               [&](const Event& e) { return e.kind == kind; });
  return out;
}

nlohmann::json trace_of(const Recording& r) {
  std::string text;
  profiler::write_chrome_trace(r, [&](std::string_view piece) { text += piece; });
  return nlohmann::json::parse(text);
}

TEST(Profiler, RecordsARegion) {
  profiler::start();
  {
    const profiler::Range range("region");
    (void)sum(matmul(ones({32, 16}), ones({16, 8}))).item<float>();
  }
  const Recording r = profiler::stop();
  EXPECT_FALSE(events::on());
  double flops = 0;
  for (const Event& e : of_kind(r, Kind::Step)) flops += r.labels[e.label].flops;
  EXPECT_EQ(flops, 2.0 * 32 * 16 * 8);
  ASSERT_EQ(of_kind(r, Kind::Range).size(), 1U);
  const Event range = of_kind(r, Kind::Range)[0];
  for (const Event& e : of_kind(r, Kind::Run)) {
    EXPECT_GE(e.start, range.start);
    EXPECT_LE(e.end, range.end);
  }
  // Self times of one thread are a partition of the time in events.
  int64_t self = 0;
  for (const profiler::Average& a : profiler::averages(r)) {
    EXPECT_GE(a.self_ns, 0);
    EXPECT_LE(a.self_ns, a.total_ns);
    self += a.self_ns;
  }
  EXPECT_LE(self, r.end - r.start);
  EXPECT_GE(self, range.end - range.start);
}

TEST(Profiler, AWindowBelongsToWhoRecordedItAndItsRunToWhoCutIt) {
  profiler::start();
  Tensor y;
  std::thread other([&] { y = mul(ones({4}), 3.0); });
  other.join();
  EXPECT_EQ(sum(y).item<float>(), 12.0F);
  const Recording r = profiler::stop();
  const std::vector<Event> runs = of_kind(r, Kind::Run);
  size_t across = 0;
  for (const Event& w : of_kind(r, Kind::Window)) {
    const auto run = std::find_if(runs.begin(), runs.end(), [&](const Event& e) { return e.flow == w.flow; });
    ASSERT_NE(run, runs.end());
    across += run->thread != w.thread;
  }
  // With windows of one op each thread cuts its own.
  EXPECT_EQ(across, env::window() == 1 ? 0U : 1U);
}

TEST(Profiler, TheTraceIsJson) {
  profiler::start();
  { const profiler::Range range("\"quotes\" \\ \n \xff\xfe and bytes that are no text"); }
  const nlohmann::json trace = trace_of(profiler::stop());
  EXPECT_EQ(trace["pyflame"]["dropped"], 0);
  EXPECT_TRUE(std::any_of(trace["traceEvents"].begin(), trace["traceEvents"].end(), [](const nlohmann::json& e) {
    return e["ph"] == "X" && e["name"].get<std::string>().starts_with("\"quotes\" \\ \n");
  }));
}

TEST(Profiler, AFailureInTheRegionIsRaisedAndEndsIt) {
  profiler::start();
  const Tensor bad = floor_divide(ones({2}, DType::int64), zeros({2}, DType::int64));
  EXPECT_THROW((void)profiler::stop(), Error);
  EXPECT_FALSE(events::on());
}

}  // namespace
}  // namespace pyflame
