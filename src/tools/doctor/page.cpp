// The doctor's page: first the findings, then the machine.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "tools/doctor/page.h"
#include "tools/view/document.h"
#include "tools/view/finding.h"
#include "tools/view/kit.h"
#include "tools/view/svg.h"
#include "tools/view/text.h"

namespace pyflame::tools::doctor {

using namespace view;

namespace {

constexpr size_t kMostFindings = 400, kMostCards = 16;

Html paragraph(std::string_view classes, const std::string& untrusted) {
  return untrusted.empty() ? Html() : el("p", classes, untrusted);
}

Html absence_card(const Json& absence) {
  if (absence.is_null()) return {};
  Html body =
      el("div", "head", badge("CRIT", "No usable GPU") + el("h3", "", str(absence, "what", str(absence, "code"))));
  body += paragraph("muted", str(absence, "why"));
  const std::string fix = str(absence, "fix");
  if (!fix.empty()) body += el("p", "fix", "This fixes it:") + command(fix);
  return el("article", "card finding tone-crit", body);
}

// The number of a finding's severity. Unknown severities come last.
size_t rank(const Json& finding) { return static_cast<size_t>(severity_in(finding)); }

size_t worst(const std::vector<const Json*>& members) {
  size_t least = kSeverities.size();
  for (const Json* f : members) least = std::min(least, rank(*f));
  return least;
}

Html clash(const std::vector<const Json*>& members) {
  Html body = el("h3", "", "These settings contradict each other");
  for (const Json* f : members) body += finding_card(*f);
  return el("div", "clash", body);
}

// If the rule that found the absence says the same, one card is enough.
bool is_among_findings(const Json& doc, const Json& absence) {
  const std::string fix = str(absence, "fix");
  const Json& all = list(doc, "findings");
  return !fix.empty() && std::any_of(all.begin(), all.end(), [&](const Json& f) { return str(f, "command") == fix; });
}

Html findings(const Json& doc) {
  const Json& absence = at(doc, "facts.absence");
  Html out = is_among_findings(doc, absence) ? Html() : absence_card(absence);
  std::map<std::string, std::vector<const Json*>> clashes;
  std::array<std::vector<const Json*>, kSeverities.size()> by_severity;
  size_t shown = 0, all = 0;
  for (const Json& f : list(doc, "findings")) {
    ++all;
    if (shown == kMostFindings) continue;
    ++shown;
    const std::string group = str(f, "group");
    if (!group.empty()) clashes[group].push_back(&f);
    else by_severity[rank(f)].push_back(&f);
  }
  for (auto it = clashes.begin(); it != clashes.end();) {
    // A single finding contradicts nothing.
    if (it->second.size() > 1) {
      ++it;
      continue;
    }
    by_severity[rank(*it->second[0])].push_back(it->second[0]);
    it = clashes.erase(it);
  }
  for (size_t i = 0; i < by_severity.size(); ++i) {
    // Contradictions come before single findings of the same severity.
    for (const auto& [group, members] : clashes)
      if (worst(members) == i) out += clash(members);
    Html cards;
    for (const Json* f : by_severity[i]) cards += finding_card(*f);
    if (cards.empty()) continue;
    const bool quiet = i == static_cast<size_t>(Severity::info);
    out += quiet ? fold(text(fmt::format("{} for information", by_severity[i].size())), cards, out.empty()) : cards;
  }
  if (shown < all) out += note(fmt::format("{} more findings are in the document that --json prints.", all - shown));
  if (out.empty() && has(doc, "findings"))
    out = el("p", "", badge("", "Nothing found") + text(" Every rule that could be checked holds."));
  return out;
}

std::string size_text(const Json& value, const char* path) {
  const double n = num(value, path);
  return std::isfinite(n) ? bytes(n) : "";
}

std::string joined(std::initializer_list<std::string> parts, std::string_view separator) {
  std::string out;
  for (const std::string& part : parts) {
    if (part.empty()) continue;
    if (!out.empty()) out += separator;
    out += part;
  }
  return out;
}

// "PCIe 5 ×16": the generation from the transfer rate.
std::string pcie_text(double gts, double width) {
  if (!std::isfinite(gts) || !std::isfinite(width)) return "";
  const char* generation = gts < 4 ? "1" : gts < 7 ? "2" : gts < 12 ? "3" : gts < 24 ? "4" : gts < 48 ? "5" : "6";
  return fmt::format("PCIe {} ×{:.0f}", generation, width);
}

bool slow_link(const Json& gpu) {
  return num(gpu, "pcie.gts") < num(gpu, "pcie.max_gts") || num(gpu, "pcie.width") < num(gpu, "pcie.max_width");
}

std::string capitalised(std::string word) {
  if (!word.empty() && word[0] >= 'a' && word[0] <= 'z') word[0] = static_cast<char>(word[0] - 'a' + 'A');
  return word;
}

Html gpu_gauges(const Json& gpu) {
  Html out;
  const double vram = num(gpu, "vram_bytes"), used = num(gpu, "vram_used_bytes");
  if (vram > 0) {
    const double share = std::isfinite(used) ? used / vram : HUGE_VAL;
    out += gauge("VRAM", share, std::isfinite(used) ? fmt::format("{} of {}", bytes(used), bytes(vram)) : bytes(vram),
                 std::isfinite(share) && share > 0.9 ? "high" : "");
  }
  if (const double busy = num(gpu, "busy_percent"); std::isfinite(busy))
    out += gauge("Busy", busy / 100, fmt::format("{:.0f} %", std::clamp(busy, 0.0, 1e6)));
  for (const Json& t : list(gpu, "temperatures")) {
    const double c = num(t, "c"), limit = num(t, "limit_c");
    if (!std::isfinite(c) || std::abs(c) > 1e4) continue;
    const bool hot = limit > 0 && c > limit - 10;
    out += gauge(str(t, "label") == "mem" ? "Memory" : capitalised(str(t, "label", "temperature")),
                 c / (limit > 0 ? limit : 110),
                 limit > 0 ? fmt::format("{:.0f} of {:.0f} °C", c, limit) : fmt::format("{:.0f} °C", c),
                 hot ? "high" : "");
  }
  if (const double cap = num(gpu, "power.cap_w"), top = num(gpu, "power.max_w"); cap > 0)
    out += gauge("Power cap", cap < top ? cap / top : HUGE_VAL,
                 top > 0 ? fmt::format("{:.0f} of {:.0f} W", cap, top) : fmt::format("{:.0f} W", cap));
  const std::string link = pcie_text(num(gpu, "pcie.gts"), num(gpu, "pcie.width"));
  if (!link.empty()) {
    const double full = num(gpu, "pcie.max_gts") * num(gpu, "pcie.max_width");
    const double share = full > 0 ? num(gpu, "pcie.gts") * num(gpu, "pcie.width") / full : 1;
    std::string value = link;
    if (slow_link(gpu)) value += ", maximum " + pcie_text(num(gpu, "pcie.max_gts"), num(gpu, "pcie.max_width"));
    out += gauge("Link", share, value, slow_link(gpu) ? "high" : "");
  }
  return out;
}

Html gpu_card(const Json& gpu) {
  Html head = el("h3", "", fmt::format("GPU {}", str(gpu, "index", "?"))) + el("span", "id", str(gpu, "pci"));
  Html body = el("div", "head", head) + el("p", "", str(gpu, "name", "unknown GPU"));
  const double cus = num(gpu, "cus");
  body += el("p", "muted",
             joined({str(gpu, "gfx"), str(gpu, "family"), std::isfinite(cus) ? str(gpu, "cus") + " CUs" : "",
                     joined({str(gpu, "compute_partition"), str(gpu, "memory_partition")}, "/")},
                    " · "));
  Html marks;
  if (flag(gpu, "integrated")) marks += badge("INFO", "integrated") + Html::raw(" ");
  if (str(gpu, "support") == "unsupported") marks += badge("HIGH", "not supported by ROCm") + Html::raw(" ");
  if (str(gpu, "support") == "unlisted") marks += badge("LOW", "not on AMD's list") + Html::raw(" ");
  if (has(gpu, "render_accessible") && !flag(gpu, "render_accessible"))
    marks += badge("HIGH", "no permission") + Html::raw(" ");
  if (num(gpu, "ras_uncorrectable") > 0) marks += badge("CRIT", "uncorrectable memory errors");
  if (!marks.empty()) body += el("p", "", marks);
  body += gpu_gauges(gpu);
  if (!list(gpu, "users").empty()) {
    std::string users;
    for (const Json& u : list(gpu, "users"))
      if (users.size() < 200)
        users += (users.empty() ? "" : ", ") + str(u, "pid") +
                 (has(u, "vram_bytes") ? " (" + size_text(u, "vram_bytes") + ")" : "");
    body += el("p", "muted", "Used by process " + users);
  }
  return el("article", "card", body);
}

Html gpus(const Json& facts) {
  const Json& all = list(facts, "gpus");
  if (all.empty()) return {};
  if (all.size() <= kMostCards) {
    Html cards;
    for (const Json& gpu : all) cards += gpu_card(gpu);
    return el("div", "grid", cards);
  }
  Table table("GPUs", {">GPU", "Name", "Architecture", "PCI", ">VRAM used", ">VRAM", "Link", "Partition"});
  for (const Json& gpu : all)
    table.row({cell(num(gpu, "index"), str(gpu, "index")), cell(str(gpu, "name")), cell(str(gpu, "gfx")),
               code_cell(str(gpu, "pci")), cell(num(gpu, "vram_used_bytes"), size_text(gpu, "vram_used_bytes")),
               cell(num(gpu, "vram_bytes"), size_text(gpu, "vram_bytes")),
               cell(pcie_text(num(gpu, "pcie.gts"), num(gpu, "pcie.width"))),
               cell(joined({str(gpu, "compute_partition"), str(gpu, "memory_partition")}, "/"))});
  return table.html("tall");
}

Html host_pairs(const Json& facts) {
  const Json& host = object(facts, "host");
  const auto value = [](const std::string& s) { return s.empty() ? Html() : text(s, 300); };
  const std::string version = str(facts, "driver.version"), kind = str(facts, "driver.kind");
  const std::string driver = !has(facts, "driver.loaded") ? ""
                             : flag(facts, "driver.loaded")
                                 ? joined({"amdgpu", version, kind.empty() ? "" : "(" + kind + ")"}, " ")
                                 : "amdgpu is not loaded";
  const std::string kfd = !has(facts, "kfd.exists") ? ""
                          : !flag(facts, "kfd.exists")
                              ? "missing"
                              : joined({flag(facts, "kfd.writable") ? "accessible" : "no permission",
                                        joined({str(facts, "kfd.group"), str(facts, "kfd.mode")}, " ")},
                                       ", ");
  const double shm = num(host, "shm_bytes");
  return pairs(
      {{"System", value(str(host, "os.name"))},
       {"Kernel", value(str(host, "kernel"))},
       {"Processors",
        value(joined({str(host, "cpus"),
                      has(host, "numa_nodes")
                          ? str(host, "numa_nodes") + (num(host, "numa_nodes") == 1 ? " NUMA node" : " NUMA nodes")
                          : ""},
                     ", "))},
       {"Memory", value(size_text(host, "memory_bytes"))},
       {"Container", value(str(host, "container"))},
       {"Virtualised", value(flag(host, "wsl")  ? "WSL"
                             : flag(host, "vm") ? "virtual machine"
                                                : "")},
       {"Driver", value(driver)},
       {"/dev/kfd", value(kfd)},
       {"ROCm", value(str(facts, "rocm.version"))},
       {"IOMMU", value(!has(host, "iommu.active")
                           ? ""
                           : joined({flag(host, "iommu.active") ? "on" : "off", str(host, "iommu.mode")}, ", "))},
       {"ACS", value(str(facts, "acs.state"))},
       {"NUMA balancing", value(!has(host, "numa_balancing")      ? ""
                                : num(host, "numa_balancing") > 0 ? "on"
                                                                  : "off")},
       {"Huge pages", value(str(host, "thp"))},
       {"Shared memory",
        value(shm > 0
                  ? joined({bytes(shm), has(host, "shm_free_bytes") ? size_text(host, "shm_free_bytes") + " free" : ""},
                           ", ")
                  : "")},
       {"Locked memory",
        value(!has(facts, "process.memlock_bytes")      ? ""
              : num(facts, "process.memlock_bytes") < 0 ? "unlimited"
                                                        : "at most " + size_text(facts, "process.memlock_bytes"))},
       {"User", value(joined({str(host, "user.name"), str(host, "user.groups")}, ": "))},
       {"InfiniBand", value(str(host, "infiniband"))}});
}

Html software(const Json& facts) {
  Table table("ROCm libraries and frameworks", {"Component", "Version", "Built for ROCm", "Path"});
  for (const Json& install : list(facts, "rocm.installs"))
    table.row({cell("ROCm"), cell(str(install, "version")), cell(""), code_cell(str(install, "path"))});
  for (const auto& [name, library] : object(facts, "rocm.libraries").items())
    table.row({cell(name), cell(library.is_null() ? "not found" : str(library, "version")), cell(""),
               code_cell(str(library, "path"))});
  for (const Json& f : list(facts, "frameworks"))
    table.row({cell(str(f, "name")), cell(str(f, "version")),
               cell(joined({str(f, "hip"), flag(f, "bundled_rocm") ? "(brings its own)" : ""}, " ")),
               code_cell(str(f, "path"))});
  return table.html();
}

Html visibility(const Json& facts) {
  const Json& steps = list(facts, "visible.steps");
  if (steps.empty()) return {};
  Html chain = el("li", "", text(fmt::format("{} GPUs in the machine", list(facts, "gpus").size())));
  for (const Json& step : steps) {
    const std::string after = str(step, "after");
    Html item = chip(str(step, "variable") + "=" + str(step, "value")) +
                text(after.empty() ? " leaves none" : " leaves GPU " + after);
    if (has(step, "note")) item += el("div", "muted", str(step, "note"));
    chain += el("li", "", item);
  }
  return el("h3", "", "What hides GPUs") + el("ol", "chain", chain);
}

std::string gb_s(double mb_s) { return mb_s > 0 ? fmt::format("{:.0f} GB/s", mb_s / 1000) : ""; }

Topology machine_map(const Json& facts) {
  Topology t;
  std::map<std::string, std::string> hives;  // id -> letter
  for (const Json& gpu : list(facts, "gpus")) {
    const std::string hive = str(gpu, "hive");
    if (!hive.empty() && hives.size() < 26 && !hives.count(hive))
      hives[hive] = std::string(1, static_cast<char>('A' + hives.size()));
  }
  for (const Json& gpu : list(facts, "gpus")) {
    Topology::Gpu g;
    g.name = "GPU " + str(gpu, "index", std::to_string(t.gpus.size()));
    g.detail = joined({str(gpu, "gfx"), hives.size() > 1 ? "hive " + hives[str(gpu, "hive")] : ""}, " · ");
    g.link = pcie_text(num(gpu, "pcie.gts"), num(gpu, "pcie.width"));
    g.slow = slow_link(gpu);
    g.title = joined(
        {g.name, str(gpu, "name"), str(gpu, "pci"), g.link, has(gpu, "numa") ? "NUMA node " + str(gpu, "numa") : "",
         g.slow ? "its link is slower than its maximum" : ""},
        ", ");
    g.numa = whole(gpu, "numa", -1, 1023);
    t.gpus.push_back(std::move(g));
  }
  std::set<std::pair<size_t, size_t>> seen;  // each link is listed at both ends
  const int last = static_cast<int>(t.gpus.size()) - 1;
  for (const Json& link : list(facts, "links")) {
    const int from = whole(link, "from", -1, last), to = whole(link, "to", -1, last);
    if (from < 0 || to < 0 || from == to ||
        !seen.insert(std::minmax(static_cast<size_t>(from), static_cast<size_t>(to))).second)
      continue;
    Topology::Link l{static_cast<size_t>(from), static_cast<size_t>(to), num(link, "max_mb_s") / 1000,
                     str(link, "kind") == "xgmi", ""};
    l.title = fmt::format(
        "GPU {} to GPU {}: {}", from, to,
        joined({str(link, "kind"), gb_s(num(link, "max_mb_s")), has(link, "hops") ? str(link, "hops") + " hop(s)" : ""},
               ", "));
    t.links.push_back(std::move(l));
  }
  return t;
}

Html link_matrix(const Json& facts, const Topology& t) {
  if (t.links.empty() || t.gpus.size() > 32) return {};
  std::map<std::pair<size_t, size_t>, std::string> shown;
  for (const Topology::Link& l : t.links) {
    const std::string value =
        joined({l.direct ? "xGMI" : "PCIe", l.gb_s > 0 ? fmt::format("{:.0f}", l.gb_s) : ""}, " ");
    shown[{l.from, l.to}] = shown[{l.to, l.from}] = value;
  }
  std::vector<std::string> titles = {"GB/s"};
  for (const Topology::Gpu& g : t.gpus) titles.push_back(g.name);
  Table table("Links between GPUs, peak GB/s in one direction", titles);
  for (size_t i = 0; i < t.gpus.size(); ++i) {
    std::vector<Cell> cells = {cell(t.gpus[i].name)};
    for (size_t k = 0; k < t.gpus.size(); ++k) {
      const auto found = shown.find({i, k});
      cells.push_back(cell(i == k ? "·" : found == shown.end() ? "–" : found->second));
    }
    table.row(cells);
  }
  (void)facts;
  return fold(text("The links as a table"), table.html("matrix"));
}

Html map_section(const Json& facts) {
  const Topology map = machine_map(facts);
  if (map.gpus.size() < 2) return {};
  const auto direct =
      static_cast<size_t>(std::count_if(map.links.begin(), map.links.end(), [](const auto& l) { return l.direct; }));
  const bool slow = std::any_of(map.gpus.begin(), map.gpus.end(), [](const auto& g) { return g.slow; });
  Topology titled = map;
  titled.title = fmt::format("Topology: {} GPUs, {} direct links between them. The same as a table below.",
                             map.gpus.size(), direct);
  std::set<std::string> speeds;
  for (const auto& l : map.links)
    if (l.direct && l.gb_s > 0) speeds.insert(fmt::format("{:.0f}", l.gb_s));
  const auto line = [](const char* look) {
    return tag("span", {{"class", std::string("key-line ") + look}, {"aria-hidden", "true"}});
  };
  Html legend;
  if (direct) {
    std::string all;
    for (const std::string& s : speeds) all += (all.empty() ? "" : " or ") + s;
    legend += el("li", "",
                 line("xgmi-key") + text(fmt::format("xGMI between GPUs, {} links{}", direct,
                                                     all.empty() ? "" : ", " + all + " GB/s each way")));
  }
  if (direct < map.links.size()) legend += el("li", "", line("peer") + text("peers over PCIe"));
  legend += el("li", "", line("pcie") + text("PCIe to the NUMA node"));
  if (slow) legend += el("li", "", line("slow") + text("PCIe link below its maximum"));
  return el("figure", "roomy", topology(titled)) + el("ul", "legend", legend) + link_matrix(facts, map);
}

// The worst finding that names a variable.
const Json* worst_about(const Json& doc, const std::string& name) {
  const Json* worst = nullptr;
  for (const Json& f : list(doc, "findings"))
    for (const Json& n : list(f, "names"))
      if (str(n, "") == name && (!worst || rank(f) < rank(*worst))) worst = &f;
  return worst;
}

Html environment(const Json& doc) {
  const Json& lines = object(doc, "facts.env_lines");
  const Json& readers = object(doc, "readers");  // variable -> who reads it
  std::vector<std::string> titles = {"Variable", "Value", "Verdict"};
  if (!readers.empty()) titles.push_back("Read by");
  if (!lines.empty()) titles.push_back("Where");
  Table table("Environment variables", titles);
  for (const auto& [name, value] : object(doc, "facts.env").items()) {
    if (table.rows() == 1000) break;
    const Json* finding = worst_about(doc, name);
    const Html verdict =
        finding ? badge(str(*finding, "severity", "INFO")) + text(" " + str(*finding, "title", str(*finding, "what")))
                : el("span", "muted", "no finding");
    std::vector<Cell> cells = {code_cell(name), code_cell(str(value, "")), {verdict}};
    // The name of a variable has no dots, but a key of a hostile document may.
    const auto of = [&key = name](const Json& map) { return map.contains(key) ? str(map[key], "") : std::string(); };
    if (!readers.empty()) cells.push_back(cell(of(readers)));
    if (!lines.empty()) cells.push_back(cell(of(lines)));
    table.row(cells);
  }
  return table.html();
}

Html failed_probes(const Json& facts) {
  Table table("Probes that failed", {"Probe", "Why"});
  for (const Json& p : list(facts, "failed_probes"))
    if (table.rows() < 500) table.row({code_cell(str(p, "probe")), cell(str(p, "why"))});
  return table.html();
}

}  // namespace

std::string html_page(const Json& document) {
  const Json& facts = object(document, "facts");
  Page page;
  page.tool = "doctor";
  page.title = "PyFlame doctor";
  page.headline = str(document, "verdict", "What the doctor found");
  const Json& gpu_list = list(facts, "gpus");
  std::string first = gpu_list.empty() ? "" : str(gpu_list[0], "name");
  const bool alike =
      std::all_of(gpu_list.begin(), gpu_list.end(), [&](const Json& g) { return str(g, "name") == first; });
  if (gpu_list.size() > 1)
    first = alike ? fmt::format("{} × {}", gpu_list.size(), first) : fmt::format("{} GPUs", gpu_list.size());
  page.subline =
      joined({first, str(facts, "host.os.name"), has(facts, "rocm.version") ? "ROCm " + str(facts, "rocm.version") : "",
              has(facts, "env_source") ? "settings of " + str(facts, "env_source") : ""},
             " · ");
  Html figures;
  constexpr std::array kWords = {"critical", "high", "medium", "low", "for information"};
  page.tone = has(document, "findings") ? "good" : "";
  for (size_t i = 0; i < kSeverities.size(); ++i) {
    const double n = num(object(document, "counts"), kSeverities[i]);
    if (!(n > 0)) continue;
    figures += stat(kWords[i], count(n), "", tone_of(kSeverities[i]));
    if (page.tone == "good" && i < 4) page.tone = tone_of(kSeverities[i]);
  }
  figures += stat("rules checked", str(document, "checked"));
  page.hero = stats(figures);
  page.sections = {
      {"findings", "Findings", "", findings(document)},
      {"machine", "Machine", "", gpus(facts) + visibility(facts) + el("div", "spaced", host_pairs(facts))},
      {"topology", "Topology", "", map_section(facts)},
      {"environment", "Environment",
       has(facts, "env_source") ? "Of " + str(facts, "env_source") + "; variables that the doctor knows." : "",
       environment(document)},
      {"software", "Software", "", software(facts)},
      {"probes", "What could not be read", "These probes failed. The rest of the page does not use them.",
       failed_probes(facts)},
  };
  return render(page);
}

}  // namespace pyflame::tools::doctor
