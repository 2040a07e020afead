// The page of `inspect`: a table of the kernels in the order of the document, worst first, and details of the first of them.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "pyflame/base/gpu_arch.h"
#include "tools/inspect/page.h"
#include "tools/view/document.h"
#include "tools/view/finding.h"
#include "tools/view/kit.h"
#include "tools/view/svg.h"
#include "tools/view/text.h"

namespace pyflame::tools::inspect {

using namespace view;

namespace {

// Limits that keep the page of any library at a few megabytes: kernels with details, rows of the table, rows with complete names.
constexpr size_t kDetailed = 24, kOpen = 3, kRows = 10000, kLongNames = 300;
constexpr int kChartWidth = 400, kChartHeight = 260;

struct MixClass {
  const char* key;
  const char* name;
  int color;
};
constexpr std::array kMix = {MixClass{"matrix", "matrix", 9},
                             MixClass{"valu", "vector ALU", 0},
                             MixClass{"salu", "scalar ALU", 8},
                             MixClass{"smem", "scalar loads", 5},
                             MixClass{"vmem_load", "global loads", 1},
                             MixClass{"vmem_store", "global stores", 7},
                             MixClass{"atomic", "atomics", 2},
                             MixClass{"lds", "LDS", 3},
                             MixClass{"scratch", "scratch", 6},
                             MixClass{"barrier", "barriers", 4},
                             MixClass{"wait", "waits", 10},
                             MixClass{"branch", "branches", 11},
                             MixClass{"other", "other", 8}};

Html mix_bar(const Json& mix, std::string_view title) {
  double total = 0;
  for (const MixClass& m : kMix)
    if (const double n = num(mix, m.key); n > 0) total += n;
  if (!(total > 0) || !std::isfinite(total)) return {};
  std::vector<Share> shares;
  for (const MixClass& m : kMix)
    if (const double n = num(mix, m.key); n > 0) shares.push_back({m.name, count(n), n / total, m.color});
  return el("div", "slim", stacked(title, shares));
}

Cell number_cell(const Json& value, std::string_view path) {
  const double n = num(value, path);
  return std::isfinite(n) ? cell(n, str(value, path)) : cell("");
}

// "4 / 8", sorted by the share.
Cell waves_cell(const Json& k) {
  const double waves = num(k, "occupancy.waves_per_simd"), most = num(k, "occupancy.max_waves");
  if (!std::isfinite(waves)) return cell("");
  return cell(waves, std::isfinite(most) ? fmt::format("{:g} / {:g}", waves, most) : fmt::format("{:g}", waves));
}

std::string kernel_name(const Json& k) { return str(k, "name", str(k, "symbol", "unnamed kernel")); }

// One kernel for each kernel of the source: the worst of its architectures, and the number of the others.
struct Row {
  const Json* kernel;
  size_t others;
};
std::vector<Row> rows_of(const Json& doc) {
  const Json& kernels = list(doc, "kernels");
  std::vector<Row> rows;
  for (const Json& group : list(doc, "groups"))
    if (group.is_array() && !group.empty() && group[0].is_number_unsigned() && group[0].get<size_t>() < kernels.size())
      rows.push_back({&kernels[group[0].get<size_t>()], group.size() - 1});
  // Of one kernel alone, each architecture is shown.
  if (rows.size() > 1) return rows;
  rows.clear();
  for (const Json& k : kernels) rows.push_back({&k, 0});
  return rows;
}

// "1 HIGH, 2 MED", sorted by the worst.
Cell findings_cell(const Json& k) {
  double weight = 0;
  std::string shown;
  for (const auto& [severity, unit] : {std::pair("HIGH", 1e4), std::pair("MED", 1e2), std::pair("LOW", 1.0)}) {
    int n = 0;
    for (const Json& f : list(k, "isa.findings")) n += str(f, "severity") == severity;
    for (const Json& f : list(k, "advice")) n += str(f, "severity") == severity;
    if (n > 0) shown += (shown.empty() ? "" : ", ") + fmt::format("{} {}", n, severity);
    weight += n * unit;
  }
  return has(k, "isa") ? cell(weight, shown.empty() ? "none" : shown) : cell("");
}

Html kernel_table(const std::vector<Row>& rows) {
  Table table("Kernels, worst first", {"Kernel", "GPU", "Findings", ">Waves / SIMD", "Limited by", ">VGPR", ">AGPR",
                                       ">SGPR", ">Spills", ">Scratch B", ">LDS B", ">Code B"});
  bool folded = false;
  for (const auto& [kernel, others] : rows) {
    const Json& k = *kernel;
    const size_t row = table.rows();
    if (row == kRows) break;
    const std::string name = kernel_name(k);
    Cell first = code_cell(name, row < kLongNames ? 240 : 90);
    if (row < kDetailed) first.content = tag("a", {{"href", fmt::format("#kernel-{}", row)}}, first.content);
    const double spills = num(k, "vgpr_spill") + num(k, "sgpr_spill");
    folded = folded || others > 0;
    table.row({first, cell(str(k, "gfx") + (others > 0 ? fmt::format(" +{}", others) : "")), findings_cell(k),
               waves_cell(k), cell(str(k, "occupancy.limiter")), number_cell(k, "vgpr"), number_cell(k, "agpr"),
               number_cell(k, "sgpr"), std::isfinite(spills) ? cell(spills, fmt::format("{:g}", spills)) : cell(""),
               number_cell(k, "scratch"), number_cell(k, "lds"), number_cell(k, "code_bytes")});
  }
  Html out = table.html(table.rows() > 200 ? "tall cold" : table.rows() > 30 ? "tall" : "");
  if (folded)
    out += note(
        "gfx942 +2: the same kernel for two more architectures. The row shows the worst of them; --arch selects one.");
  if (rows.size() > table.rows())
    out += note(fmt::format("{} more kernels are in the document that --json prints.", rows.size() - table.rows()));
  return out;
}

// The resources of the GPU that a kernel uses.
Html resources(const Json& k) {
  const GpuArch* arch = find_gpu_arch(str(k, "gfx"));
  Html out;
  const auto add = [&out](const char* label, double used, double limit, const std::string& shown) {
    if (!std::isfinite(used)) return;
    const double share = limit > 0 ? used / limit : HUGE_VAL;
    out += gauge(label, share, shown);
  };
  const double vgpr = num(k, "vgpr"), sgpr = num(k, "sgpr"), lds = num(k, "lds"), agpr = num(k, "agpr");
  if (arch) {
    add("VGPRs", vgpr, arch->addressable_vgprs,
        fmt::format("{:g} of {}{}", vgpr, arch->addressable_vgprs,
                    agpr > 0 ? fmt::format(", {:g} of them AGPRs", agpr) : ""));
    add("SGPRs", sgpr, arch->addressable_sgprs, fmt::format("{:g} of {}", sgpr, arch->addressable_sgprs));
    const auto most = static_cast<double>(arch->max_lds_per_workgroup);
    add("LDS of a workgroup", lds, most, fmt::format("{} of {}", bytes(lds), bytes(most)));
  } else {
    add("VGPRs", vgpr, 0, fmt::format("{:g}", vgpr));
    add("SGPRs", sgpr, 0, fmt::format("{:g}", sgpr));
    add("LDS of a workgroup", lds, 0, bytes(lds));
  }
  // Resources that do not limit the waves are left out.
  const double all = num(k, "occupancy.max_waves");
  for (const auto& [name, most] : object(k, "occupancy.limits").items()) {
    const double waves = num(most, "");
    if (waves < all)
      out += gauge("Waves that " + name + " allow", waves / all, fmt::format("{:g} of {:g}", waves, all),
                   name == str(k, "occupancy.limiter") ? "accent" : "");
  }
  return out;
}

// [[most VGPRs, waves], …] of the kernel's GPU and wave size, from the document's summary.
const Json& curve_of(const Json& doc, const Json& k) {
  const Json& of_gfx = at(at(doc, "summary.curve"), str(k, "gfx"));
  return of_gfx.is_object() ? list(of_gfx, str(k, "occupancy.wave", str(k, "wave"))) : list(of_gfx, "");
}

Html occupancy_curve(const Json& doc, const Json& k) {
  std::vector<std::pair<double, double>> steps;
  for (const Json& p : curve_of(doc, k))
    if (p.is_array() && p.size() >= 2 && steps.size() < 256 && num(p[0], "") > 0)
      steps.emplace_back(num(p[0], ""), num(p[1], ""));
  std::sort(steps.begin(), steps.end());
  if (steps.size() < 2) return {};
  Series curve{"", {}, "c0", true};
  double from = 0;
  for (const auto& [vgprs, waves] : steps) {
    curve.points.emplace_back(from, waves);
    from = vgprs;
  }
  curve.points.emplace_back(steps.back());
  Chart c;
  const double vgpr = num(k, "vgpr"), waves = num(k, "occupancy.waves_per_simd");
  c.x = {"VGPRs of a wave", false, 0, steps.back().first};
  const double most = num(k, "occupancy.max_waves");
  c.y = {"waves per SIMD", false, 0, std::isfinite(most) ? std::max(most, steps.front().second) : steps.front().second};
  c.width = kChartWidth;
  c.height = kChartHeight;
  c.series = {curve};
  if (std::isfinite(vgpr) && std::isfinite(waves))
    c.marks.push_back({vgpr, waves, fmt::format("{:g} VGPRs", vgpr), "", "This kernel", ""});
  for (const Json& change : list(k, "occupancy.next.changes")) {
    const double to = num(change, "to"), next = num(k, "occupancy.next.waves");
    if (str(change, "resource") == "VGPRs" && std::isfinite(to) && std::isfinite(next)) {
      c.series.push_back({"", {{vgpr, waves}, {to, next}}, "aim", false});
      c.marks.push_back({to, next, fmt::format("{:g}", to), "", "The next step", "aim"});
    }
  }
  c.title = fmt::format("Waves per SIMD by VGPRs: from {:g} waves down to {:g}. This kernel has {:g} VGPRs.",
                        steps.front().second, steps.back().second, vgpr);
  return el("figure", "",
            el("figcaption", "", "Waves that registers allow, and the position of this kernel") + chart(c));
}

Html block_chart(const Json& k) {
  std::vector<Upright> bars;
  for (const Json& b : list(k, "occupancy.blocks")) {
    const double waves = num(b, "waves_per_simd");
    if (bars.size() < 64 && std::isfinite(waves))
      bars.push_back(
          {str(b, "block"), fmt::format("{:g}", waves), waves, num(b, "block") == num(k, "occupancy.block")});
  }
  const Html picture = uprights("Waves per SIMD by block size", "threads of a workgroup", "waves per SIMD",
                                num(k, "occupancy.max_waves"), bars, kChartWidth, kChartHeight);
  return picture.empty()
             ? Html()
             : el("figure", "",
                  el("figcaption", "", "By block size. The marked one was assumed or is required") + picture);
}

Html loops(const Json& isa) {
  Table table("Loops", {"Addresses", ">Depth", ">Instructions", ">Matrix share", "Matrix instructions", ">Issue cycles",
                        ">Load B", ">Store B", ">LDS B", "Full waits"});
  for (const Json& loop : list(isa, "loops")) {
    if (table.rows() == 24) break;
    std::string matrix, waits;
    for (const Json& m : list(loop, "matrix"))
      if (matrix.size() < 160)
        matrix += (matrix.empty() ? "" : ", ") + str(m, "count") + " × " +
                  str(m, "name", str(m, "shape") + " " + str(m, "type"));
    for (const auto& [name, n] : object(loop, "waits").items())
      if (name != "all" && num(n, "") > 0 && waits.size() < 100)
        waits += (waits.empty() ? "" : ", ") + name + " × " + str(n, "");
    const double share = num(loop, "matrix_share");
    table.row({code_cell(str(loop, "begin") + "–" + str(loop, "end")), number_cell(loop, "depth"),
               number_cell(loop, "instructions"), std::isfinite(share) ? cell(share, percent(share)) : cell(""),
               cell(matrix), number_cell(loop, "issue_cycles"), number_cell(loop, "load_bytes"),
               number_cell(loop, "store_bytes"), number_cell(loop, "lds_bytes"), cell(waits)});
  }
  if (!table.rows()) return {};
  return el("h3", "", "Loops") + table.html() +
         note(
             "Bytes and cycles are those of one wave and one iteration. Cycles count the issue only, without waiting.");
}

Html launch(const Json& k) {
  const Json& l = object(k, "launch");
  if (l.empty()) return {};
  const auto share = [&](const char* path) {
    return std::isfinite(num(l, path)) ? text(percent(num(l, path))) : Html();
  };
  return el("h3", "", "Launch") +
         pairs({{"Grid", text(str(l, "grid"))},
                {"Workgroups", text(str(l, "workgroups"))},
                {"At once", text(str(l, "at_once"))},
                {"Rounds", text(str(l, "rounds"))},
                {"Fill", share("fill")},
                {"Fill, last round", share("tail_fill")},
                {"Balance", share("balance")}}) +
         finding_cards(list(l, "advice"), 10);
}

std::string next_text(const Json& k) {
  if (!has(k, "occupancy.next.waves")) return "";
  std::string out =
      fmt::format("For {} waves: save {}.", str(k, "occupancy.next.waves"), str(k, "occupancy.next.save"));
  const std::string hint = str(k, "occupancy.next.hint");
  return hint.empty() ? out : out + " Ask for it with " + hint + ".";
}

Html details(const Json& doc, const Json& k, size_t index) {
  const double waves = num(k, "occupancy.waves_per_simd"), most = num(k, "occupancy.max_waves");
  Html summary = el("code", "", text(kernel_name(k), 300));
  if (num(k, "vgpr_spill") + num(k, "sgpr_spill") > 0) summary += badge("HIGH", "spills");
  if (num(k, "scratch") > 0) summary += badge("MED", "scratch");
  summary += el("span", "key", str(k, "gfx"));
  if (std::isfinite(waves)) summary += el("span", "key", fmt::format("{:g} of {:g} waves", waves, most));
  if (has(k, "occupancy.limiter")) summary += el("span", "key", "limited by " + str(k, "occupancy.limiter"));

  std::string facts;
  const auto fact = [&facts](const std::string& part) {
    facts += part.empty() ? "" : (facts.empty() ? "" : " · ") + part;
  };
  if (has(k, "wave")) fact("wave" + str(k, "wave"));
  if (has(k, "occupancy.block"))
    fact("block " + str(k, "occupancy.block") + (str(k, "occupancy.block_from") == "assumed" ? " (assumed)" : ""));
  if (has(k, "required_workgroup")) {
    std::string size = str(k, "required_workgroup");
    for (size_t comma; (comma = size.find(", ")) != std::string::npos;) size.replace(comma, 2, " × ");
    fact("requires " + size + " threads");
  }
  if (num(k, "vgpr_spill") > 0) fact(str(k, "vgpr_spill") + " VGPRs spilled");
  if (num(k, "sgpr_spill") > 0) fact(str(k, "sgpr_spill") + " SGPRs spilled");
  if (num(k, "scratch") > 0) fact(str(k, "scratch") + " B of scratch a lane");
  if (has(k, "kernarg")) fact(str(k, "kernarg") + " B of arguments");
  if (has(k, "code_bytes")) fact(bytes(num(k, "code_bytes")) + " of code");
  if (flag(k, "dynamic_stack")) fact("stack of unknown size");

  const Html left = note(facts) + resources(k) + (next_text(k).empty() ? Html() : el("p", "next", next_text(k)));
  const Html problem = has(k, "occupancy_problem") ? note(str(k, "occupancy_problem")) : Html();
  Html body = el("div", "three", el("div", "", left + problem) + occupancy_curve(doc, k) + block_chart(k));
  body += finding_cards(list(k, "advice"), 10);
  const Json& isa = object(k, "isa");
  const Html mix = mix_bar(at(isa, "mix"), "Instruction mix");
  if (!mix.empty()) body += el("h3", "", fmt::format("Instructions: {}", count(num(isa, "instructions")))) + mix;
  body += loops(isa);
  const Html found = finding_cards(list(isa, "findings"), 30);
  if (!found.empty()) body += el("h3", "", "Findings in its machine code") + found;
  body += launch(k);
  if (!list(isa, "assumptions").empty()) {
    Html items;
    for (const Json& a : list(isa, "assumptions")) items += el("li", "", str(a, ""));
    body += fold(text("Assumptions of the estimates"), el("ul", "muted", items));
  }
  return Html::raw(fmt::format("<details class=\"card\" id=\"kernel-{}\"{}>", index, index < kOpen ? " open" : "")) +
         el("summary", "", summary) + el("div", "folded", body) + Html::raw("</details>");
}

Html all_details(const Json& doc, const std::vector<Row>& rows) {
  Html out;
  for (size_t i = 0; i < std::min(kDetailed, rows.size()); ++i) out += details(doc, *rows[i].kernel, i);
  return out;
}

// The number of kernels by their occupancy, for each target.
Html targets(const Json& kernels) {
  struct Target {
    std::array<size_t, 4> quarter{};
    size_t all = 0, spilling = 0, unknown = 0;
  };
  std::map<std::string, Target> by;
  for (const Json& k : kernels) {
    Target& t = by[str(k, "target", str(k, "gfx", "unknown"))];
    ++t.all;
    if (num(k, "vgpr_spill") + num(k, "sgpr_spill") > 0) ++t.spilling;
    const double share = num(k, "occupancy.waves_per_simd") / num(k, "occupancy.max_waves");
    if (std::isfinite(share)) ++t.quarter[static_cast<size_t>(std::clamp(std::ceil(share * 4) - 1, 0.0, 3.0))];
    else ++t.unknown;
  }
  Html out;
  for (const auto& [name, t] : by) {
    const GpuArch* arch = find_gpu_arch(name);
    Html body = el("div", "head", el("h3", "", name) + el("span", "id", arch ? arch->family : ""));
    body += note(fmt::format("{} kernel{}{}", t.all, t.all == 1 ? "" : "s",
                             t.spilling ? fmt::format(", {} with spills", t.spilling) : ""));
    std::vector<Share> shares;
    constexpr std::array kNames = {"≤ 1/4 of the waves", "≤ 1/2", "≤ 3/4", "> 3/4"};
    constexpr std::array kColors = {6, 3, 7, 0};
    for (size_t i = 0; i < 4; ++i)
      shares.push_back({kNames[i], std::to_string(t.quarter[i]),
                        static_cast<double>(t.quarter[i]) / static_cast<double>(t.all), kColors[i]});
    shares.push_back(
        {"unknown", std::to_string(t.unknown), static_cast<double>(t.unknown) / static_cast<double>(t.all), 10});
    out += el("article", "card slim", body + stacked("Occupancy of its kernels", shares));
  }
  return out.empty() ? Html() : el("div", "grid broad", out);
}

Html objects(const Json& doc) {
  Table table("Code objects", {"File", "Member", "Container", "Target", ">Version", ">Size", ">Kernels"});
  for (const Json& o : list(doc, "objects")) {
    if (table.rows() == 1000) break;
    table.row({code_cell(str(o, "path")), code_cell(str(o, "member")), cell(str(o, "container")),
               cell(str(o, "target")), number_cell(o, "code_object_version"),
               cell(num(o, "bytes"), has(o, "bytes") ? bytes(num(o, "bytes")) : ""), number_cell(o, "kernels")});
  }
  Html out = table.html(table.rows() > 30 ? "tall" : "");
  if (list(doc, "objects").size() > table.rows())
    out += note(fmt::format("{} more are in the document.", list(doc, "objects").size() - table.rows()));
  return out;
}

Html problems(const Json& doc) {
  Html out;
  for (const Json& m : list(doc, "missing")) out += el("p", "", badge("MED", "missing") + text(" " + str(m, "")));
  Table table("Problems", {"Where", "What"});
  for (const Json& p : list(doc, "problems"))
    if (table.rows() < 300) table.row({code_cell(str(p, "where")), cell(str(p, "what"))});
  return out + table.html();
}

}  // namespace

std::string html_page(const Json& document) {
  const Json& kernels = list(document, "kernels");
  const Json& summary = object(document, "summary");
  Page page;
  page.tool = "inspect";
  page.title = "PyFlame inspect: " + str(document, "inputs");
  const std::vector<Row> rows = rows_of(document);
  const auto total = [&](const char* key) {
    const double n = num(summary, key);
    return std::isfinite(n) ? static_cast<size_t>(n) : 0;
  };
  const auto with = [&](const char* severity) {
    return std::count_if(kernels.begin(), kernels.end(), [&](const Json& k) {
      const auto has_it = [&](const Json& found) {
        return std::any_of(found.begin(), found.end(), [&](const Json& f) { return str(f, "severity") == severity; });
      };
      return has_it(list(k, "isa.findings")) || has_it(list(k, "advice"));
    });
  };
  const size_t spilling = total("spilling"), scratch = total("scratch"), unknown = total("unknown_spills");
  const size_t low = total("low_occupancy"), low_alone = low - std::min(low, total("low_with_matrix"));
  const auto high = with("HIGH"), med = with("MED");
  const auto plural = [](size_t n, const char* one) { return fmt::format("{} {}{}", n, one, n == 1 ? "" : "s"); };
  page.headline = has(document, "verdict")
                      ? str(document, "verdict")
                      : fmt::format("{} in {}", plural(kernels.size(), "kernel"),
                                    plural(list(document, "objects").size(), "code object")) +
                            (spilling                    ? fmt::format(", {} of them with spilled registers", spilling)
                             : kernels.empty()           ? ""
                             : unknown == kernels.size() ? ", whose files do not say whether registers are spilled"
                                                         : ", none known to spill registers");
  page.tone = spilling || high ? "high" : low_alone || med ? "med" : kernels.empty() ? "" : "good";
  page.subline = some(list(document, "inputs"), 3);
  page.hero = stats(stat("kernels", std::to_string(kernels.size()),
                         rows.size() == kernels.size() ? "" : fmt::format("{} different ones", rows.size())) +
                    stat("with findings of HIGH", std::to_string(high), "", high ? "high" : "") +
                    stat("with findings of MED", std::to_string(med), "", med ? "med" : "") +
                    stat("spilling", std::to_string(spilling), unknown ? fmt::format("{} unknown", unknown) : "",
                         spilling ? "high" : "") +
                    stat("with scratch", std::to_string(scratch), "", scratch ? "med" : "") +
                    stat("under half of the waves", std::to_string(low),
                         low > low_alone ? fmt::format("{} with matrix instructions", low - low_alone) : "",
                         low_alone ? "med" : ""));
  Html found;
  for (const std::string_view severity : kSeverities)
    for (const auto& [id, n] : object(object(summary, "by_severity"), severity).items())
      found += el("li", "", badge(severity) + chip(id) + el("b", "", str(n, "") + " kernels"));
  page.sections = {
      {"targets", "Architectures", "The share of the waves of a SIMD that the kernels reach.", targets(kernels)},
      {"kernels", "Kernels", "", kernel_table(rows)},
      {"details", "In detail",
       rows.size() > kDetailed ? fmt::format("The first {} kernels of the table.", kDetailed) : "",
       all_details(document, rows)},
      {"findings", "Findings by kind", "", found.empty() ? Html() : el("ul", "legend", found)},
      {"objects", "Code objects", "", objects(document)},
      {"problems", "What could not be read", "", problems(document)},
  };
  return render(page);
}

}  // namespace pyflame::tools::inspect
