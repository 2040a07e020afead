// `pyflame report`: makes one report from the files that other programs' profilers and tuners wrote.
#include <fmt/core.h>
#include <unistd.h>

#include <climits>

#include <nlohmann/json.hpp>

#include "apps/progress.h"
#include "commands.h"
#include "output.h"
#include "pyflame/base/error.h"
#include "tools/profile/compare.h"
#include "tools/profile/document.h"
#include "tools/profile/page.h"

namespace pyflame::apps::cli {

namespace {

struct Arguments {
  std::vector<std::string> paths;
  bool json = false;
  std::string html, steps;
  int rank = -1;
  tools::profile::Options options;
};

// "3:7", "3:", ":7" or "3".
void parse_steps(const std::string& text, tools::profile::Options& o) {
  if (text.empty()) return;
  const size_t colon = text.find(':');
  const std::string first = text.substr(0, colon), last = colon == std::string::npos ? first : text.substr(colon + 1);
  const auto number = [&](const std::string& part, int64_t otherwise) -> int64_t {
    if (part.empty()) return otherwise;
    const bool digits = part.size() < 10 && part.find_first_not_of("0123456789") == std::string::npos;
    PF_CHECK(digits, Value, "report: --steps is not understood; got '{}'; expected FIRST:LAST, such as 3:7", text);
    return std::stoll(part);
  };
  o.first_step = number(first, 0);
  o.last_step = number(last, -1);
  PF_CHECK(o.last_step < 0 || o.first_step <= o.last_step, Value,
           "report: --steps ends before it begins; got '{}'; expected FIRST:LAST, such as 3:7", text);
}

tools::profile::Profile load(const std::vector<std::string>& paths, int rank) {
  StatusLine line;
  const auto progress = [&line](const std::string& path, double fraction) {
    if (line.is_due())
      line.show(fraction, fmt::format("report: reading {}, {:.0f} %", tools::view::clean(path, 60), fraction * 100));
  };
  return tools::profile::load(paths, progress, rank);
}

int report(const Arguments& a) {
  const nlohmann::json document = tools::profile::make_document(load(a.paths, a.rank), a.options);
  if (!a.html.empty()) write_page("report", a.html, tools::profile::html_page(document));
  if (a.json) print_json(document);
  else print(tools::profile::to_text(document, tools::view::Style::of(STDOUT_FILENO)));
  return kOk;
}

int report_diff(const Arguments& a) {
  tools::profile::Options all = a.options;
  all.top = INT_MAX;
  const auto document = [&](const std::string& path) {
    return tools::profile::make_document(load({path}, a.rank), all);
  };
  const nlohmann::json c = tools::profile::compare_reports(document(a.paths[0]), document(a.paths[1]), a.options.top);
  if (!a.html.empty()) write_page("report", a.html, tools::profile::comparison_page(c));
  if (a.json) print_json(c);
  else print(tools::profile::comparison_text(c, tools::view::Style::of(STDOUT_FILENO)));
  return kOk;
}

void add_outputs(CLI::App* cmd, Arguments& a) {
  cmd->add_flag("--json", a.json, "Print one JSON document");
  cmd->add_option("--html", a.html, "Also write a page with charts into this file")->type_name("FILE");
  cmd->add_option("--top", a.options.top, "Most rows of each table")->check(CLI::Range(1, 10000));
}

void add_device(CLI::App* cmd, Arguments& a) {
  cmd->add_option("--gfx", a.options.gfx,
                  "Architecture of the device, such as gfx942, if the profile does not name it");
  cmd->add_option("--product", a.options.product,
                  "Product name of the device, such as MI300X; it selects the peak rates");
}

std::shared_ptr<Arguments> add_diff(CLI::App* sub) {
  auto a = std::make_shared<Arguments>();
  a->paths.resize(2);
  sub->add_option("before", a->paths[0], "File or folder of the first run")->required();
  sub->add_option("after", a->paths[1], "File or folder of the second run")->required();
  add_outputs(sub, *a);
  add_device(sub, *a);
  return a;
}

}  // namespace

void add_report(CLI::App& app, Run& run) {
  CLI::App* cmd =
      app.add_subcommand("report", "Show where the GPU's time was spent, from traces and tuning files of other tools");
  auto a = std::make_shared<Arguments>();
  cmd->add_option("paths", a->paths,
                  "Traces of PyTorch (.json, .json.gz), also of several ranks, files or folders of rocprofv3 (CSV, "
                  "JSON, rocpd .db), tuning files and logs");
  add_outputs(cmd, *a);
  cmd->add_option("--steps", a->steps, "Report on these steps only: FIRST:LAST");
  cmd->add_option("--device", a->options.device, "Report on this device instead of the busiest one")
      ->check(kAtLeastZero);
  cmd->add_option("--rank", a->rank, "Of several ranks, report on this one instead of the one that the others wait for")
      ->check(kAtLeastZero);
  add_device(cmd, *a);
  CLI::App* sub = cmd->add_subcommand("diff", "Compare two runs: what takes more or less time, and what counters say");
  const std::shared_ptr<Arguments> pair = add_diff(sub);
  cmd->final_callback([&run, a, sub, pair] {
    if (sub->parsed()) {
      run = [pair] { return report_diff(*pair); };
      return;
    }
    if (a->paths.empty()) throw CLI::RequiredError("paths");
    run = [a] {
      parse_steps(a->steps, a->options);
      return report(*a);
    };
  });
}

}  // namespace pyflame::apps::cli
