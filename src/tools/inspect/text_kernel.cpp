#include "tools/inspect/text_kernel.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tools/view/finding.h"

namespace pyflame::tools::inspect {

namespace {

using Json = nlohmann::json;
using view::Style;
using view::Tone;

constexpr size_t kMostLoops = 8, kMostFindings = 25, kMostArguments = 24;

// Wraps text so that all of its lines begin at column `indent`. A word of that length takes the place of the label.
std::string hanging(const Style& style, const std::string& text, size_t indent) {
  const std::string stand_in = std::string(indent - 1, '.') + " ";
  const std::string wrapped = view::wrap(stand_in + text, style.width, static_cast<int>(indent));
  return wrapped.starts_with(stand_in) ? wrapped.substr(indent) : text;
}

class Sheet {
 public:
  explicit Sheet(const Style& style) : style_(style) {}
  void row(const std::string& title, const std::string& text) { out += titled(style_, title, text); }
  void title(const std::string& text) { out += "\n" + view::paint(style_, Tone::bold, text) + "\n"; }
  std::string out;

 private:
  const Style& style_;
};

void put_resources(Sheet& sheet, const Json& d, const Json& k) {
  const Json& object = d["objects"][k["object"].get<size_t>()];
  std::string where = view::clean(object["path"].get<std::string>(), 300);
  if (const auto member = object["member"].get<std::string>(); !member.empty())
    where += ": " + view::clean(member, 200);
  sheet.row("file", fmt::format("{} ({})", where, object["container"].get<std::string>()));
  sheet.row("target",
            fmt::format("{}, wave{}{}{}", view::clean(k["target"].get<std::string>(), 60), shown(k, "wave"),
                        object["code_object_version"].is_number()
                            ? fmt::format(", code object V{}", integer(object, "code_object_version"))
                            : "",
                        k["wgp_mode"].is_boolean() ? (k["wgp_mode"].get<bool>() ? ", WGP mode" : ", CU mode") : ""));
  if (const auto t = object.find("triton"); t != object.end())
    sheet.row("Triton", fmt::format("{}: num_warps {}, num_stages {}, {} bytes of LDS at the launch",
                                    view::clean((*t)["name"].get<std::string>(), 100), integer(*t, "num_warps"),
                                    integer(*t, "num_stages"), integer(*t, "shared")));
  sheet.row("registers",
            fmt::format("{} VGPRs{}, {} SGPRs", shown(k, "vgpr"),
                        integer(k, "agpr") > 0 ? fmt::format(" ({} of them accumulators)", integer(k, "agpr")) : "",
                        shown(k, "sgpr")));
  sheet.row("spills", k["vgpr_spill"].is_null()
                          ? "not known"
                          : fmt::format("{} VGPRs, {} SGPRs", shown(k, "vgpr_spill"), shown(k, "sgpr_spill")));
  sheet.row(
      "memory",
      fmt::format("{} LDS, {} scratch a lane{}, {} bytes of arguments", size_cell(k, "lds"), size_cell(k, "scratch"),
                  k["dynamic_stack"] == true ? " and a stack of unknown size" : "", shown(k, "kernarg")));
  std::string group = fmt::format("at most {} threads", shown(k, "max_workgroup"));
  if (const Json& r = k["required_workgroup"]; r.is_array() && r.size() == 3)
    group += fmt::format(", must be {} x {} x {}", r[0].get<uint64_t>(), r[1].get<uint64_t>(), r[2].get<uint64_t>());
  sheet.row("workgroup", group);
  sheet.row("code", size_cell(k, "code_bytes"));
  if (k["source"] == "descriptor")
    sheet.row("note",
              "the metadata is missing: the figures come from the kernel descriptor, with registers as allocated");
}

void put_arguments(Sheet& sheet, const Json& k) {
  const auto args = k.find("args");
  if (args == k.end() || args->empty()) return;
  std::string text;
  size_t n = 0, hidden = 0;
  for (const Json& a : *args) {
    const auto kind = a["kind"].get<std::string>();
    if (kind.starts_with("hidden_")) {
      ++hidden;
      continue;
    }
    if (++n > kMostArguments) continue;
    text += fmt::format("{}{} {} ({} B)", text.empty() ? "" : ", ", view::clean(kind, 40),
                        view::clean(a.value("name", fmt::format("@{}", integer(a, "offset"))), 60), integer(a, "size"));
  }
  if (n > kMostArguments) text += fmt::format(" and {} more", n - kMostArguments);
  if (hidden > 0) text += fmt::format("{}{} hidden", text.empty() ? "" : ", ", hidden);
  sheet.row("arguments", text);
}

void put_occupancy(Sheet& sheet, const Json& k, const Style& style) {
  const auto problem = k.find("occupancy_problem");
  if (problem != k.end()) sheet.row("problem", view::clean(problem->get<std::string>()));
  const auto at = k.find("occupancy");
  if (at == k.end()) return;
  const Json& o = *at;
  sheet.title(fmt::format("Occupancy with {} threads: {} of {} waves per SIMD, limited by {}", integer(o, "block"),
                          integer(o, "waves_per_simd"), integer(o, "max_waves"), o["limiter"].get<std::string>()));
  if (o.value("block_from", "") == "assumed") {
    std::string why = "assumed: the file does not say how many threads a launch has";
    const int64_t usual = std::min<int64_t>(256, k["max_workgroup"].is_number() ? integer(k, "max_workgroup") : 1024);
    if (integer(o, "block") < usual) why += fmt::format("; {} do not fit", usual);
    sheet.row("block", why + "; --block N asks for another number");
  }
  std::string limits;
  for (const auto& [name, waves] : o["limits"].items())
    limits += fmt::format("{}{} {}", limits.empty() ? "" : ", ", name, waves.get<int64_t>());
  sheet.row("limits", limits +
                          fmt::format(" (waves per SIMD); {} {}", integer(o, "workgroups"),
                                      integer(o, "workgroups") == 1 ? "workgroup" : "workgroups") +
                          (o.contains("workgroups_per") ? " per " + o["workgroups_per"].get<std::string>() : ""));
  if (const Json& next = o["next"]; next.is_object()) {
    sheet.row("next step", fmt::format("{} waves with {}{}", integer(next, "waves"), next.value("save", ""),
                                       next.contains("hint") ? "; " + next["hint"].get<std::string>() : ""));
  }
  std::vector<std::vector<std::string>> rows;
  for (const Json& b : o["blocks"])
    rows.push_back({fmt::format("{}", integer(b, "block")), fmt::format("{}", integer(b, "workgroups")),
                    fmt::format("{}", integer(b, "waves_per_simd")), view::bar(b.value("fill", 0.0), 20),
                    b.value("limiter", "")});
  if (!rows.empty())
    sheet.out += view::table(style, {">threads", ">workgroups", ">waves per SIMD", "", "limited by"}, rows);
}

void put_launch(Sheet& sheet, const Json& k, const Style& style) {
  const auto at = k.find("launch");
  if (at == k.end()) return;
  const Json& l = *at;
  const Json& machine = l["machine"];
  const std::string name = machine["name"].is_string() ? machine["name"].get<std::string>() + ", " : "";
  sheet.title(
      fmt::format("Launch of {} workgroups on {}{} CUs", integer(l, "workgroups"), name, integer(machine, "cus")));
  sheet.row("rounds", fmt::format("{} of {} workgroups at once; the first fills {}, the last {}", integer(l, "rounds"),
                                  integer(l, "at_once"), view::percent(l["fill"].get<double>()),
                                  view::percent(l["tail_fill"].get<double>())));
  sheet.row("busy", fmt::format("{} of {} {}s have work, balance {}", integer(l, "busy_units"), integer(l, "units"),
                                l["unit"].get<std::string>(), view::percent(l["balance"].get<double>())));
  if (!l.contains("advice")) return;
  for (const Json& f : l["advice"]) sheet.out += "\n" + view::finding_text(f, style);
}

std::string mix_text(const Json& mix) {
  std::string out;
  for (const auto& [name, n] : mix.items())
    if (n.is_number() && n.get<int64_t>() > 0)
      out += fmt::format("{}{} {}", out.empty() ? "" : ", ", name, view::count(n.get<double>()));
  return out;
}

void put_loop(Sheet& sheet, const Json& l) {
  std::string text = fmt::format("{}–{}, {}, {} of code", l["begin"].get<std::string>(), l["end"].get<std::string>(),
                                 plural(integer(l, "instructions"), "instruction"), size_cell(l, "bytes"));
  if (l.contains("issue_cycles") && l["issue_cycles"].is_number())
    text += fmt::format(", about {} issue cycles", view::count(l["issue_cycles"].get<double>()));
  for (const auto& [key, what] :
       {std::pair("load_bytes", "loaded"), std::pair("store_bytes", "stored"), std::pair("lds_bytes", "through LDS")})
    if (integer(l, key) > 0) text += fmt::format(", {} {}", view::bytes(static_cast<double>(integer(l, key))), what);
  if (const auto m = l.find("matrix"); m != l.end() && !m->empty()) {
    for (const Json& x : *m)
      text += fmt::format(", {} x {}", integer(x, "count"), view::clean(x.value("name", ""), 60));
    if (l.contains("matrix_share") && l["matrix_share"].is_number())
      text += fmt::format(" ({} of the instructions)", view::percent(l["matrix_share"].get<double>()));
  }
  if (l.contains("mix")) text += "; " + mix_text(l["mix"]);
  sheet.row(
      fmt::format("{}loop",
                  std::string(static_cast<size_t>(std::clamp<int64_t>(2 * (integer(l, "depth") - 1), 0, 8)), ' ')),
      text);
}

void put_isa(Sheet& sheet, const Json& k, const Style& style) {
  const auto at = k.find("isa");
  if (at == k.end()) return;
  const Json& isa = *at;
  sheet.title(fmt::format("Machine code: {}", plural(integer(isa, "instructions"), "instruction")));
  if (isa.contains("mix")) sheet.row("mix", mix_text(isa["mix"]));
  if (integer(isa, "widest_load") > 0 || integer(isa, "widest_store") > 0)
    sheet.row("widest access", fmt::format("load {} bytes, store {} bytes of global memory in one lane",
                                           integer(isa, "widest_load"), integer(isa, "widest_store")));
  if (isa.contains("loops")) {
    const Json& loops = isa["loops"];
    for (size_t i = 0; i < std::min(kMostLoops, loops.size()); ++i) put_loop(sheet, loops[i]);
    if (loops.size() > kMostLoops)
      sheet.row("", fmt::format("… {} more loops; --json shows them", loops.size() - kMostLoops));
  }
  if (!isa.contains("findings")) return;
  const Json& findings = isa["findings"];
  for (size_t i = 0; i < std::min(kMostFindings, findings.size()); ++i)
    sheet.out += "\n" + view::finding_text(findings[i], style);
  if (findings.size() > kMostFindings)
    sheet.row("", fmt::format("… {} more findings; --json shows them", findings.size() - kMostFindings));
  if (findings.empty()) sheet.row("findings", "none");
  if (isa.contains("assumptions") && !isa["assumptions"].empty()) {
    sheet.out += "\n";
    for (const Json& a : isa["assumptions"]) sheet.row("assumed", view::clean(a.get<std::string>()));
  }
}

}  // namespace

int64_t integer(const Json& j, const char* key) {
  const auto at = j.find(key);
  return at != j.end() && at->is_number() ? at->get<int64_t>() : 0;
}

std::string shown(const Json& j, const char* key) {
  const auto at = j.find(key);
  return at != j.end() && at->is_number() ? fmt::format("{}", at->get<int64_t>()) : "–";
}

std::string size_cell(const Json& j, const char* key) {
  const auto at = j.find(key);
  if (at == j.end() || !at->is_number()) return "–";
  return at->get<double>() == 0 ? "0" : view::bytes(at->get<double>());
}

std::string titled(const Style& style, const std::string& title, const std::string& text) {
  constexpr size_t kColumn = 14;
  const std::string head = title + std::string(title.size() < kColumn ? kColumn - title.size() : 1, ' ');
  return view::paint(style, Tone::dim, head) + hanging(style, text, head.size()) + "\n";
}

std::string plural(int64_t n, const char* what) { return fmt::format("{} {}{}", n, what, n == 1 ? "" : "s"); }

std::string kernel_text(const Json& d, const Json& k, const Style& style) {
  Sheet sheet(style);
  sheet.out +=
      view::paint(style, Tone::bold, view::wrap(view::clean(k["name"].get<std::string>(), 4000), style.width)) + "\n";
  put_resources(sheet, d, k);
  put_arguments(sheet, k);
  for (const Json& f : k["advice"]) sheet.out += "\n" + view::finding_text(f, style);
  put_occupancy(sheet, k, style);
  put_launch(sheet, k, style);
  put_isa(sheet, k, style);
  return sheet.out;
}

}  // namespace pyflame::tools::inspect
