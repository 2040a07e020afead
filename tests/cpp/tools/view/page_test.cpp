// The pages: escaping, balanced tags, nothing loaded from elsewhere, bounded size, and documents that lack or fake anything.
#include "apps/gpt/page.h"
#include "tools/doctor/page.h"
#include "tools/inspect/page.h"
#include "tools/profile/page.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "tools/view/html.h"
#include "tools/view/sample_documents.h"
#include "tools/view/svg.h"

namespace pyflame::tools::view {
namespace {

using nlohmann::json;

struct Tool {
  const char* name;
  std::function<std::string(const json&)> page;
  json sample;
};

const std::vector<Tool>& tools() {
  static const std::vector<Tool> kTools = {{"doctor", tools::doctor::html_page, samples::doctor()},
                                           {"inspect", tools::inspect::html_page, samples::inspect()},
                                           {"report", profile::html_page, samples::report()},
                                           {"train", apps::gpt::html_page, samples::train()}};
  return kTools;
}

// Why the markup is not balanced, or "". Scripts and styles are skipped, as browsers do.
std::string unbalanced(const std::string& html) {
  static const std::set<std::string> kVoid = {"meta", "br", "hr", "input", "!doctype"};
  std::vector<std::string> open;
  std::set<std::string> ids;
  for (size_t at = 0; at < html.size();) {
    if (html[at] == '>') return "a lone > at " + html.substr(at > 40 ? at - 40 : 0, 80);
    if (html[at] != '<') {
      ++at;
      continue;
    }
    size_t end = at + 1;
    bool quoted = false;
    while (end < html.size() && (quoted || html[end] != '>')) {
      if (html[end] == '"') quoted = !quoted;
      if (!quoted && html[end] == '<') return "< inside of a tag: " + html.substr(at, 80);
      ++end;
    }
    if (end == html.size()) return "a tag without end: " + html.substr(at, 80);
    const std::string inside = html.substr(at + 1, end - at - 1);
    const bool closing = inside[0] == '/';
    const std::string name = inside.substr(closing, inside.find_first_of(" >", closing) - closing);
    at = end + 1;
    if (closing) {
      if (open.empty() || open.back() != name)
        return "</" + name + "> closes <" + (open.empty() ? "" : open.back()) + ">";
      open.pop_back();
      continue;
    }
    if (const size_t id = inside.find(" id=\""); id != std::string::npos)
      if (!ids.insert(inside.substr(id + 5, inside.find('"', id + 5) - id - 5)).second) return "an id twice: " + inside;
    if (kVoid.count(name)) continue;
    open.push_back(name);
    if (name == "script" || name == "style") at = html.find("</" + name + ">", at);
  }
  return open.empty() ? "" : "<" + open.back() + "> is not closed";
}

// What a browser would take as markup: the page without its script and style.
std::string markup_of(std::string html) {
  for (const char* name : {"script", "style"})
    for (size_t at; (at = html.find(std::string("<") + name)) != std::string::npos;)
      html.erase(at, html.find(std::string("</") + name + ">", at) + 3 + std::string(name).size() - at);
  return html;
}

void each_string(json& value, const std::function<void(std::string&)>& change) {
  if (value.is_string()) change(value.get_ref<std::string&>());
  if (value.is_structured())
    for (json& item : value) each_string(item, change);
}

// Every path that leads to a value.
void paths(const json& value, const json::json_pointer& here, std::vector<json::json_pointer>& out) {
  if (!here.empty()) out.push_back(here);
  if (value.is_object())
    for (const auto& [key, item] : value.items()) paths(item, here / key, out);
  if (value.is_array() && !value.empty()) paths(value[0], here / 0, out);
}

TEST(Html, TextIsEscaped) {
  EXPECT_EQ(text("<script>alert(\"1\")</script>'&").str(),
            "&lt;script&gt;alert(&quot;1&quot;)&lt;/script&gt;&#39;&amp;");
  EXPECT_EQ(text("a\xff"
                 "b")
                .str(),
            "a\xEF\xBF\xBD"
            "b");
  EXPECT_EQ(text(std::string("a\0b", 3)).str(),
            "a\xEF\xBF\xBD"
            "b");
  EXPECT_EQ(text("größe").str(), "größe");
  EXPECT_EQ(text("abcdef", 3).str(), "abc…");
  EXPECT_LT(text(std::string(10'000'000, 'x')).str().size(), 10'000u);
}

TEST(Html, AttributesAreEscaped) {
  EXPECT_EQ(tag("p", {{"title", "\" onclick=\"x"}, {"id", ""}}).str(), "<p title=\"&quot; onclick=&quot;x\"></p>");
  EXPECT_EQ(tag("meta", {{"charset", "utf-8"}}).str(), "<meta charset=\"utf-8\">");
}

TEST(Html, Coordinates) {
  EXPECT_EQ(px(1.5), "1.5");
  EXPECT_EQ(px(-0.001), "0");
  EXPECT_EQ(px(std::nan("")), "0");
  EXPECT_EQ(px(1e300), "1000000");
}

TEST(Charts, TicksAreRound) {
  EXPECT_EQ(ticks(0, 10, 5), (std::vector<double>{0, 2, 4, 6, 8, 10}));
  EXPECT_EQ(ticks(3, 3, 5), std::vector<double>{});
  EXPECT_EQ(ticks(0, std::numeric_limits<double>::infinity(), 5), std::vector<double>{});
  EXPECT_LE(ticks(0, 1e300, 6).size(), 12u);
}

TEST(Charts, NothingFiniteIsNothing) {
  Chart c;
  EXPECT_TRUE(chart(c).empty());
  c.series.push_back({"", {{std::nan(""), 1}}, "c0", false});
  EXPECT_TRUE(chart(c).empty());
  c.x.logarithmic = true;
  c.series = {{"", {{-1, 1}, {0, 2}}, "c0", false}};
  EXPECT_TRUE(chart(c).empty());
  EXPECT_TRUE(timeline({}).empty());
  EXPECT_TRUE(topology({}).empty());
}

TEST(Pages, AreWholeAndBalanced) {
  for (const Tool& tool : tools()) {
    const std::string html = tool.page(tool.sample);
    EXPECT_EQ(unbalanced(html), "") << tool.name;
    EXPECT_EQ(html.rfind("<!doctype html>", 0), 0u);
    EXPECT_NE(html.find("<title>PyFlame "), std::string::npos);
    EXPECT_NE(html.find("prefers-color-scheme: dark"), std::string::npos);
    EXPECT_NE(html.find("<h1"), std::string::npos);
  }
}

TEST(Pages, LoadNothing) {
  for (const Tool& tool : tools()) {
    const std::string html = tool.page(tool.sample);
    for (const char* word : {"http://", "https://", "@import", "url(", " src=", "<link", "<iframe", "<img"})
      EXPECT_EQ(html.find(word), std::string::npos) << tool.name << " has " << word;
    EXPECT_NE(html.find("default-src &#39;none&#39;"), std::string::npos);
  }
}

TEST(Pages, SayWhatTheDocumentSays) {
  const std::string doctor = doctor::html_page(samples::doctor());
  for (const char* part : {"Two settings contradict each other.", "title of ENV-1",
                           "These settings contradict each other", "class=\"topology\"", "NUMA 1",
                           "unset A &amp;&amp; echo &quot;b&quot;", "HIP_VISIBLE_DEVICES", "failed", "PCIe 5 ×16"})
    EXPECT_NE(doctor.find(part), std::string::npos) << part;
  const std::string inspect = inspect::html_page(samples::inspect());
  for (const char* part :
       {"void kernel_0&lt;float, 4&gt;", "class=\"line c0\"", "130 VGPRs", "For 4 waves: save 2 VGPRs", "narrow loads",
        "4 × v_mfma", "no LLVM library was found", "256 × 1 × 1"})
    EXPECT_NE(inspect.find(part), std::string::npos) << part;
  const std::string report = profile::html_page(samples::report());
  for (const char* part : {"Matrix products bound this step.", "60.0 %", "class=\"timeline\"",
                           "fp16, bf16 1307 TFLOP/s", "the host was busy", "GEMM 4096", "PT_VERSION", "all_reduce"})
    EXPECT_NE(report.find(part), std::string::npos) << part;
  const std::string train = apps::gpt::html_page(samples::train());
  for (const char* part : {"What ran slower, or elsewhere, than asked", "sort on rocm:0 ran on the host 3 times"})
    EXPECT_NE(train.find(part), std::string::npos) << part;
}

// A trace of the host has steps or operators, and a CPU's rates are in GFLOP/s.
TEST(Pages, AReportOfTheHostHasNoKernels) {
  for (const bool operators : {false, true}) {
    nlohmann::json document = samples::report();
    document["signals"]["on_host"] = true;
    document["signals"]["operators"] = operators;
    const std::string page = profile::html_page(document), body = page.substr(page.find("<h1"));
    for (const char* part : {operators ? "Operators by time" : "Steps by time",
                             operators ? "arithmetic per byte of each operator" : "arithmetic per byte of each step",
                             "fp16, bf16 1.307e+06 GFLOP/s"})
      EXPECT_NE(body.find(part), std::string::npos) << part;
    for (const char* part : {"TFLOP/s", "Kernels by time", ">Kernel<", "each kernel", "Why the GPU waited"})
      EXPECT_EQ(body.find(part), std::string::npos) << part;
  }
}

TEST(Pages, SameDocumentSameBytes) {
  for (const Tool& tool : tools()) EXPECT_EQ(tool.page(tool.sample), tool.page(tool.sample)) << tool.name;
}

TEST(Pages, HostileStringsStayText) {
  const std::vector<std::string> hostile = {"</script><script>alert(1)</script>",
                                            "\"><img src=x onerror=alert(1)>",
                                            "'; --",
                                            "<!--",
                                            "]]>",
                                            "\xff\xfe\xed\xa0\x80",
                                            "\xe2\x80\xae",
                                            std::string("\0\x1b[31m", 6)};
  for (const Tool& tool : tools())
    for (const std::string& text : hostile) {
      json d = tool.sample;
      each_string(d, [&](std::string& s) { s = text; });
      const std::string html = tool.page(d);
      EXPECT_EQ(unbalanced(html), "") << tool.name << " with " << text;
      const std::string markup = markup_of(html);
      EXPECT_EQ(markup.find("<img"), std::string::npos) << tool.name;
      EXPECT_EQ(markup.find("<script"), std::string::npos) << tool.name;
      EXPECT_EQ(html.find("alert(1)</script>"), std::string::npos) << tool.name;
      EXPECT_EQ(html.find('\xff'), std::string::npos) << tool.name;
      EXPECT_EQ(html.find('\0'), std::string::npos) << tool.name;
    }
}

TEST(Pages, HugeStringsAreCut) {
  for (const Tool& tool : tools()) {
    json d = tool.sample;
    each_string(d, [](std::string& s) { s += std::string(200'000, 'x'); });
    const std::string html = tool.page(d);
    EXPECT_EQ(unbalanced(html), "") << tool.name;
    EXPECT_LT(html.size(), 8'000'000u) << tool.name;
  }
}

TEST(Pages, AnyKeyMayBeMissingOrWrong) {
  const std::vector<json> wrong = {nullptr,
                                   "text",
                                   -1,
                                   1e308,
                                   true,
                                   json::array(),
                                   json::object(),
                                   json::array({nullptr, 1, "x", json::array(), json::object()}),
                                   std::nan(""),
                                   std::numeric_limits<uint64_t>::max()};
  for (const Tool& tool : tools()) {
    std::vector<json::json_pointer> all;
    paths(tool.sample, json::json_pointer(), all);
    ASSERT_GT(all.size(), 50u);
    // The pages of inspect are long: a few kernels have every key too.
    json small = tool.sample;
    if (small.contains("kernels") && small["kernels"].size() > 2)
      small["kernels"].erase(small["kernels"].begin() + 2, small["kernels"].end());
    for (const json::json_pointer& path : all) {
      json without = small;
      without[path.parent_pointer()].is_object() ? (void)without[path.parent_pointer()].erase(path.back())
                                                 : without[path.parent_pointer()].clear();
      EXPECT_EQ(unbalanced(tool.page(without)), "") << tool.name << " without " << path;
      for (const json& value : wrong) {
        json changed = small;
        changed[path] = value;
        ASSERT_EQ(unbalanced(tool.page(changed)), "") << tool.name << " with " << path << " = " << value;
      }
    }
  }
}

TEST(Pages, NoDocumentIsAPageToo) {
  for (const Tool& tool : tools())
    for (const json& d : {json(), json::object(), json::array(), json("x"), json(3)})
      EXPECT_EQ(unbalanced(tool.page(d)), "") << tool.name;
}

TEST(Pages, SizeIsBounded) {
  const std::string html = inspect::html_page(samples::inspect(10'000));
  EXPECT_EQ(unbalanced(html), "");
  EXPECT_LT(html.size(), 5'000'000u);
  EXPECT_NE(html.find("kernel_9999"), std::string::npos);
  json d = samples::report();
  for (int i = 0; i < 100'000; ++i) d["timeline"]["tracks"][0]["events"].push_back({2000.0 + i, 0.5, 1, 0});
  for (int i = 0; i < 5'000; ++i) d["kernels"].push_back(d["kernels"][0]);
  EXPECT_LT(profile::html_page(d).size(), 5'000'000u);
}

TEST(Pages, TopologyOfAnyNumberOfDevices) {
  for (int n : {1, 2, 3, 4, 8, 16, 64, 100}) {
    const std::string html = doctor::html_page(samples::doctor(n));
    EXPECT_EQ(unbalanced(html), "") << n;
    EXPECT_EQ(html.find("class=\"topology\"") != std::string::npos, n >= 2 && n <= 64) << n;
  }
}

TEST(Pages, LinksOfDevicesThatAreNotThere) {
  json d = samples::doctor(2);
  d["facts"]["links"] = json::array({{{"from", 0}, {"to", 99}},
                                     {{"from", -5}, {"to", 1}},
                                     {{"from", 1e300}, {"to", 0}},
                                     {{"from", "x"}, {"to", 0}},
                                     {{"from", 1}, {"to", 1}}});
  EXPECT_EQ(unbalanced(doctor::html_page(d)), "");
}

}  // namespace
}  // namespace pyflame::tools::view
