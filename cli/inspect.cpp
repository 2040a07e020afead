// `pyflame inspect`: shows what AMD GPU code objects contain. It prints one document (inspect/document.h) as text, JSON or a page. It can
// also compare two documents, or check one against a committed budget in CI.
#include <fmt/core.h>
#include <unistd.h>

#include <CLI/Error.hpp>
#include <CLI/Option.hpp>
#include <CLI/Validators.hpp>
#include <charconv>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>

#include "apps/progress.h"
#include "commands.h"
#include "output.h"
#include "pyflame/base/error.h"
#include "pyflame/io/atomic_file.h"
#include "tools/inspect/compare.h"
#include "tools/inspect/document.h"
#include "tools/inspect/page.h"
#include "tools/inspect/scan.h"
#include "tools/inspect/text.h"
#include "tools/view/text.h"

namespace pyflame::apps::cli {

namespace {

using Json = nlohmann::json;

constexpr int kGotWorse = 3;
constexpr size_t kBudgetLimit = 64 << 20;

struct InspectSettings {
  std::vector<std::string> paths;
  tools::inspect::ScanOptions scan;
  tools::inspect::DocumentOptions document;
  std::string sort = "worst", launch, html, gate, write_gate;
  size_t top = 40;
  bool all = false, no_isa = false, as_json = false;
};

void show(StatusLine& line, const tools::inspect::ScanProgress& p) {
  if (!line.is_due()) return;
  std::string text = fmt::format("inspect: {} of {} files, {} kernels", p.files_done, p.files, p.kernels);
  if (p.to_read > 0) text += fmt::format(", machine code of {} of {}", p.kernels_read, p.to_read);
  // If the machine code is read, finding the kernels is the smaller part of the work.
  const auto share = [](size_t part, size_t whole) {
    return whole == 0 ? 0.0 : static_cast<double>(part) / static_cast<double>(whole);
  };
  const double files = share(p.files_done, p.files);
  line.show(p.to_read > 0 ? files * share(p.kernels_read, p.to_read) : files / 2, text);
}

Json read_document(const InspectSettings& s, const std::vector<std::string>& paths) {
  tools::inspect::ScanOptions options = s.scan;
  options.isa = !s.no_isa;
  StatusLine line;
  options.progress = [&line](const tools::inspect::ScanProgress& p) { show(line, p); };
  return tools::inspect::document(tools::inspect::scan(paths, options), s.document);
}

// "GRID,BLOCK": one to three sizes of the grid in workgroups, then the threads of a workgroup.
void parse_launch(InspectSettings& s) {
  std::vector<int64_t> numbers;
  std::stringstream parts(s.launch);
  for (std::string part; std::getline(parts, part, ',');) {
    int64_t n = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), n);
    const bool whole = error == std::errc() && end == part.data() + part.size() && n > 0;
    if (!whole)
      throw CLI::ValidationError("--launch",
                                 fmt::format("'{}' is not a size; expected GRID,BLOCK such as 608,256 or 64,8,1,256",
                                             tools::view::clean(part, 40)));
    numbers.push_back(n);
  }
  if (numbers.size() < 2 || numbers.size() > 4 || numbers.back() > 1024)
    throw CLI::ValidationError(
        "--launch", "expected GRID,BLOCK such as 608,256 or 64,8,1,256, with at most 1024 threads in a block");
  s.document.block = static_cast<int>(numbers.back());
  std::array<int64_t, 3> grid = {1, 1, 1};
  std::copy(numbers.begin(), numbers.end() - 1, grid.begin());
  s.document.grid = grid;
}

tools::inspect::TextOptions text_options(const InspectSettings& s) { return {s.all ? SIZE_MAX : s.top}; }

int run_inspect(const InspectSettings& s) {
  Json d = read_document(s, s.paths);
  if (!s.gate.empty())
    d["gate"] = tools::inspect::check_gate(d, read_text_file("inspect", s.gate, kBudgetLimit), s.gate);
  const bool worse = d.contains("gate") && !d["gate"]["worse"].empty();
  const tools::view::Style style = tools::view::Style::of(STDOUT_FILENO);
  if (s.as_json) print_json(d);
  else if (d.contains("gate"))
    print(tools::inspect::gate_text(d["gate"], style, text_options(s)) + tools::inspect::problems_text(d, style));
  else print(tools::inspect::document_text(d, style, text_options(s)));
  if (!s.html.empty()) write_page("inspect", s.html, tools::inspect::html_page(d));
  if (!s.write_gate.empty()) {
    PF_CHECK(!d["kernels"].empty(), Value, "inspect: no kernel was found, so there is nothing to make a budget of");
    write_file_atomically("inspect", s.write_gate, json_text(tools::inspect::make_gate(d)));
    fmt::print(stderr, "pyflame: the budget of {} kernels is in {}\n", d["kernels"].size(), s.write_gate);
  }
  // A path without code objects is no failure, unless something in it could not be read.
  const bool nothing = d["objects"].empty() && !d["problems"].empty();
  return worse ? kGotWorse : nothing ? kFailure : kOk;
}

int run_diff(const InspectSettings& s, const std::string& a, const std::string& b) {
  const Json before = read_document(s, {a}), after = read_document(s, {b});
  const Json d = tools::inspect::diff(before, after);
  if (s.as_json) print_json(d);
  else print(tools::inspect::diff_text(d, tools::view::Style::of(STDOUT_FILENO), text_options(s)));
  const bool nothing = before["objects"].empty() || after["objects"].empty();
  if (nothing && !s.as_json)
    fmt::print(stderr, "pyflame: inspect: no code object was found in {}\n", before["objects"].empty() ? a : b);
  return nothing ? kFailure : kOk;
}

void add_choices(CLI::App* cmd, InspectSettings& s) {
  cmd->add_option(names("kernel"), s.scan.kernel,
                  "Only kernels whose name or symbol matches this extended regular expression");
  cmd->add_option(names("arch"), s.scan.arch, "Only code for this GPU: gfx942, gfx942:xnack-");
  cmd->add_option(names("block"), s.document.block,
                  "Threads per workgroup, for the occupancy; default: what the kernel requires, or else 256")
      ->check(CLI::Range(1, 1024));
  cmd->add_option(names("dynamic_lds"), s.document.dynamic_lds, "Bytes of LDS that are added at launch")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 20));
  cmd->add_option(names("top"), s.top, "Most rows of each table in the text")
      ->check(CLI::Range(0, 1 << 30))
      ->capture_default_str();
  cmd->add_flag(names("all"), s.all, "Show all rows of each table");
  cmd->add_flag(names("no_isa"), s.no_isa, "Show registers and occupancy only; do not read the machine code");
  cmd->add_option(names("llvm"), s.scan.llvm, "LLVM that disassembles: its folder, library or tool");
  cmd->add_option(names("threads"), s.scan.threads, "Threads; default: as many as the machine has")
      ->check(CLI::Range(1, 256));
  cmd->add_flag(names("json"), s.as_json, "Print one JSON document");
}

}  // namespace

void add_inspect(CLI::App& app, Run& run) {
  CLI::App* cmd = app.add_subcommand("inspect", "Show registers, occupancy and machine code of AMD GPU kernels");
  cmd->footer(
      "PATH is a code object (.co, .hsaco), a program, library, object file or archive with GPU code, a bundle, a "
      "kernel database, or a "
      "folder of them, such as ~/.triton/cache, ~/.cache/comgr or the library folder of rocBLAS. Exit code: 3 if "
      "--gate found "
      "that a kernel got worse.");
  auto s = std::make_shared<InspectSettings>();
  cmd->add_option("path", s->paths, "Files and folders")->type_name("PATH");
  add_choices(cmd, *s);
  cmd->add_option(names("sort"), s->sort, "Which kernels come first")
      ->check(CLI::IsMember({"worst", "vgpr", "scratch", "spills", "occupancy", "name", "code"}))
      ->capture_default_str();
  cmd->add_option(names("launch"), s->launch,
                  "Show how a launch fills the GPU: GRID,BLOCK, where GRID is 1 to 3 numbers of workgroups");
  cmd->add_option(names("cus"), s->document.cus,
                  "Compute units of the GPU for --launch; default: those of the architecture's first product")
      ->check(CLI::Range(1, 4096));
  cmd->add_option(names("html"), s->html, "Also write a page with charts into this file")->type_name("FILE");
  cmd->add_option(names("gate"), s->gate, "Compare with this budget and fail if a kernel got worse")
      ->check(CLI::ExistingFile);
  cmd->add_option(names("write_gate"), s->write_gate,
                  "Write a budget: the present figures of each kernel become its limits");

  CLI::App* sub = cmd->add_subcommand("diff", "Compare two builds, kernel by kernel");
  auto ds = std::make_shared<InspectSettings>();
  auto a = std::make_shared<std::string>(), b = std::make_shared<std::string>();
  sub->add_option("before", *a, "File or folder of the first build")->required();
  sub->add_option("after", *b, "File or folder of the second build")->required();
  add_choices(sub, *ds);

  cmd->final_callback([&run, s, ds, a, b, sub] {
    if (sub->parsed()) {
      run = [ds, a, b] { return run_diff(*ds, *a, *b); };
      return;
    }
    if (s->paths.empty()) throw CLI::RequiredError("PATH");
    if (!s->launch.empty()) parse_launch(*s);
    s->document.sort = tools::inspect::sort_by(s->sort).value_or(tools::inspect::SortBy::worst);
    run = [s] { return run_inspect(*s); };
  });
}

}  // namespace pyflame::apps::cli
