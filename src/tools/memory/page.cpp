#include "tools/memory/page.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "tools/view/document.h"
#include "tools/view/kit.h"
#include "tools/view/svg.h"
#include "tools/view/text.h"

namespace pyflame::tools::memory {

using namespace view;

namespace {

using Json = nlohmann::json;

constexpr size_t kRows = 5000, kPoints = 5000;  // keep the page of any file at a few megabytes
constexpr double kMiB = 1 << 20;

Html kinds_bar(const Json& doc) {
  double total = 0;
  for (const Json& k : list(doc, "kinds")) total += std::max(0.0, num(k, "bytes"));
  std::vector<Share> shares;
  for (const Json& k : list(doc, "kinds"))
    if (total > 0)
      shares.push_back(
          {str(k, "kind"), bytes(num(k, "bytes")), num(k, "bytes") / total, static_cast<int>(shares.size() % 10)});
  return shares.empty() ? Html{} : stacked("bytes by what holds them", shares);
}

Html curve(const Json& doc) {
  Series used{"", {}, "c3", true};
  for (const Json& point : list(doc, "timeline")) {
    if (used.points.size() >= kPoints) break;
    if (!point.is_array() || point.size() != 2 || !point[0].is_number() || !point[1].is_number()) continue;
    used.points.emplace_back(point[0].get<double>(), point[1].get<double>() / kMiB);
  }
  Chart c;
  c.title = "bytes in use since the recording began";
  c.x.title = "seconds";
  c.y.title = "MiB in use";
  c.y.low = 0;
  c.series = {std::move(used)};
  c.width = 900, c.height = 300;
  return chart(c);
}

Html places(const Json& doc) {
  Table table("memory by the line that took it", {"line", ">blocks", ">bytes"});
  for (const Json& p : list(doc, "places"))
    if (table.rows() < kRows)
      table.row({code_cell(str(p, "at").empty() ? "(values in between)" : str(p, "at")),
                 cell(num(p, "blocks"), str(p, "blocks")), cell(num(p, "bytes"), bytes(num(p, "bytes")))});
  return table.html();
}

Html blocks(const Json& doc) {
  Table table("all blocks", {">bytes", "held by", "name", "line", ">taken after"});
  for (const Json& b : list(doc, "blocks")) {
    if (table.rows() >= kRows) break;
    const double seconds = num(b, "seconds");
    table.row({cell(num(b, "bytes"), bytes(num(b, "bytes"))), cell(str(b, "kind")), code_cell(str(b, "holder")),
               code_cell(str(b, "at")),
               std::isfinite(seconds) ? cell(seconds, fmt::format("{:.3f} s", seconds)) : cell("")});
  }
  return table.html();
}

}  // namespace

bool is_snapshot(const Json& document) { return str(document, "tool") == "memory snapshot"; }

std::string html_page(const Json& doc) {
  Page page;
  page.tool = "memory";
  page.title = "memory of " + str(doc, "device");
  page.headline = fmt::format("{} in use on {}", bytes(num(doc, "stats.allocated")), str(doc, "device"));
  if (!flag(doc, "recorded")) page.subline = "pf.memory.record() was not called before: the lines are not known.";
  else if (num(doc, "dropped") > 0)
    page.subline = fmt::format("{} older changes were forgotten: the curve begins later.", str(doc, "dropped"));
  page.hero =
      stats(stat("in use", bytes(num(doc, "stats.allocated"))) + stat("reserved", bytes(num(doc, "stats.reserved"))) +
            stat("peak", bytes(num(doc, "stats.peak_allocated"))) +
            stat("free, of all processes", bytes(num(doc, "stats.free")))) +
      kinds_bar(doc);
  page.sections = {{"time", "Over time", "", curve(doc)},
                   {"lines", "Lines", "The lines of the program that took what is still in use.", places(doc)},
                   {"blocks", "Blocks", "The largest first.", blocks(doc)}};
  return render(page);
}

}  // namespace pyflame::tools::memory
