// The report on a terminal: the machine, the verdict, the findings from the worst down.
#include "tools/doctor/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "tools/view/document.h"
#include "tools/view/finding.h"

namespace pyflame::tools::doctor {

namespace {

using Json = nlohmann::json;
using view::at;
using view::clean;
using view::Style;
using view::Tone;

std::string cleaned(const Json& j, std::string_view path) {
  const Json& found = at(j, path);
  return found.is_string() ? clean(found.get<std::string>(), 400) : "";
}
bool holds(const Json& j, std::string_view path) { return at(j, path) == Json(true); }

// What a file of settings is for: "gfx942, ROCm 6.3, inference".
std::string target_text(const Json& facts) {
  const std::string gfx = cleaned(facts, "target.gfx"), rocm = cleaned(facts, "target.rocm"),
                    workload = cleaned(facts, "target.workload");
  std::string out = gfx;
  if (!rocm.empty()) out += (out.empty() ? "ROCm " : ", ROCm ") + rocm;
  if (!workload.empty()) out += (out.empty() ? "" : ", ") + workload;
  return out;
}

// The variables that the doctor knows and that are set: their names, or in full a line for each with its value.
std::string settings_text(const Json& facts, const Style& style, bool in_full) {
  const Json& env = at(facts, "env");
  const std::string source = cleaned(facts, "env_source").empty() ? "this process" : cleaned(facts, "env_source");
  std::string names, lines;
  size_t count = 0;
  if (env.is_object())
    for (const auto& [name, value] : env.items()) {
      ++count;
      names += (names.empty() ? ": " : ", ") + clean(name);
      const std::string shown = value.is_string() ? value.get<std::string>() : value.dump();
      lines += view::labelled(style, "", 12, clean(name) + "=" + clean(shown, 2000)) + "\n";
    }
  return view::labelled(style, "Settings", 12, fmt::format("{} of {}{}", count, source, in_full ? "" : names)) + "\n" +
         (in_full ? lines : "");
}

void header(std::string& out, const Json& facts, const Style& style, bool in_full) {
  const auto line = [&](std::string_view label, const std::string& body) {
    if (!body.empty()) out += view::labelled(style, label, 12, body) + "\n";
  };
  line("For", target_text(facts));
  if (!cleaned(facts, "target.gfx").empty()) return;  // another machine than this one
  std::string system = cleaned(facts, "host.os.name");
  if (const std::string kernel = cleaned(facts, "host.kernel"); !kernel.empty())
    system += (system.empty() ? "Linux " : ", Linux ") + kernel;
  if (const std::string container = cleaned(facts, "host.container"); !container.empty())
    system += ", in a container (" + container + ")";
  if (holds(facts, "host.wsl")) system += ", under WSL";
  line("System", system);
  const Json& gpus = at(facts, "gpus");
  if (gpus.is_array() && gpus.empty()) line("GPUs", "none that ROCm sees");
  if (gpus.is_array()) {
    std::string last;  // consecutive equal GPUs share a line
    size_t first = 0;
    const auto write = [&](size_t end) {
      if (last.empty()) return;
      const std::string numbers = end - first == 1 ? std::to_string(first) : fmt::format("{}-{}", first, end - 1);
      line(first == 0 ? "GPUs" : "", numbers + "  " + last);
    };
    for (size_t i = 0; i < gpus.size(); ++i) {
      const Json& g = gpus[i];
      std::string body = fmt::format("{}, {}", cleaned(g, "name"), cleaned(g, "gfx"));
      if (at(g, "cus").is_number()) body += fmt::format(", {} CUs", at(g, "cus").dump());
      if (at(g, "vram_bytes").is_number()) body += ", " + view::bytes(at(g, "vram_bytes").get<double>());
      if (holds(g, "integrated")) body += ", integrated";
      const Json& seen = at(facts, "visible.gpus");
      if (seen.is_array() && std::find(seen.begin(), seen.end(), Json(i)) == seen.end()) body += ", hidden";
      if (body == last) continue;
      write(i);
      last = body, first = i;
    }
    write(gpus.size());
  }
  if (at(facts, "driver.loaded").is_boolean()) {
    const std::string version = cleaned(facts, "driver.version");
    line("Driver", !holds(facts, "driver.loaded") ? "amdgpu is not loaded"
                   : version.empty()              ? "amdgpu of the kernel"
                                                  : "amdgpu " + version);
  }
  const std::string rocm = cleaned(facts, "rocm.version");
  if (at(facts, "rocm").is_object()) line("ROCm", rocm.empty() ? "not installed" : rocm);
  std::string frameworks;
  if (const Json& list = at(facts, "frameworks"); list.is_array())
    for (const Json& f : list)
      frameworks += (frameworks.empty() ? "" : ", ") + cleaned(f, "name") + " " + cleaned(f, "version");
  line("Frameworks", frameworks);
  out += settings_text(facts, style, in_full);
}

// Findings of severity INFO. Without --verbose only their names are printed, because a line for each would hide the others.
std::string remainder(const std::vector<const Json*>& rest, const Style& style) {
  if (rest.empty()) return "";
  std::string no_ops, others;
  for (const Json* f : rest) {
    const Json& names = at(*f, "names");
    const std::string name = names.is_array() && !names.empty() && names[0].is_string()
                                 ? clean(names[0].get<std::string>())
                                 : fmt::format("{} ({})", cleaned(*f, "title"), cleaned(*f, "id"));
    std::string& list = at(*f, "no_op") == Json(true) ? no_ops : others;
    if ((", " + list + ",").find(", " + name + ",") == std::string::npos) list += (list.empty() ? "" : ", ") + name;
  }
  std::string out;
  if (!no_ops.empty()) out += view::labelled(style, "INFO", 6, "Without effect: " + no_ops + ".") + "\n";
  if (!others.empty()) out += view::labelled(style, "INFO", 6, "Worth knowing: " + others + ".") + "\n";
  return paint(style, Tone::dim, out);
}

}  // namespace

std::string report_text(const Json& document, const Style& style, const TextOptions& options) {
  std::string out;
  const Json& facts = at(document, "facts");
  header(out, facts, style, options.verbose);
  if (const std::string topology = topology_text(facts, style); !topology.empty() && at(facts, "gpus").size() > 1)
    out += "\n" + topology;
  const Json& counts = at(document, "counts");
  const bool bad = at(counts, "CRIT") != Json(0) || at(counts, "HIGH") != Json(0);
  out += "\n" +
         paint(style,
               bad                                                                  ? Tone::red
               : at(counts, "MED") != Json(0) || at(document, "unread").is_string() ? Tone::yellow
                                                                                    : Tone::green,
               view::wrap(clean(at(document, "verdict").get<std::string>(), 2000), style.width)) +
         "\n";
  std::vector<const Json*> rest;
  int below = 0;
  std::string group;
  std::map<std::string, Severity>
      worst;  // group -> the worst severity of its members: a group is shown or left out as a whole
  for (const Json& f : at(document, "findings")) {
    Severity& s = worst.emplace(cleaned(f, "group"), Severity::info).first->second;
    s = std::min(s, view::severity_in(f));
  }
  for (const Json& f : at(document, "findings")) {
    const Severity severity = view::severity_in(f);
    const std::string of_group = cleaned(f, "group");
    if ((of_group.empty() ? severity : worst[of_group]) > options.least) {
      ++below;
    } else if (severity == Severity::info && !options.verbose && options.least == Severity::info && of_group.empty()) {
      rest.push_back(&f);
    } else {
      out += "\n";
      if (!of_group.empty() && of_group != group)
        out += paint(style, Tone::bold, "These contradict each other (" + of_group + "):") + "\n";
      out += view::finding_text(f, style, options.verbose);
      group = of_group;
    }
  }
  if (const std::string short_ones = remainder(rest, style); !short_ones.empty()) out += "\n" + short_ones;
  if (const Json& failed = at(facts, "failed_probes"); failed.is_array() && !failed.empty()) {
    out += "\n";
    for (const Json& p : failed)
      out += paint(style, Tone::dim,
                   view::wrap(fmt::format("Not checked: {}: {}", cleaned(p, "probe"), cleaned(p, "why")), style.width,
                              2)) +
             "\n";
  }
  std::string end = fmt::format("{} rules checked.", at(document, "checked").dump());
  if (!rest.empty()) end += fmt::format(" {} more of severity INFO: --verbose shows them.", rest.size());
  if (below > 0) end += fmt::format(" {} less severe are left out.", below);
  if (const Json& env = at(facts, "env"); !options.verbose && env.is_object() && !env.empty())
    end += " --verbose shows the values of the settings.";
  return out + "\n" + paint(style, Tone::dim, view::wrap(end, style.width, 0)) + "\n";
}

namespace {

// Whether two GPUs are partitions of one module. They share its memory, and no link between them is reported.
bool same_card(const Json& a, const Json& b) {
  const auto device = [](const Json& gpu) { return cleaned(gpu, "pci").substr(0, cleaned(gpu, "pci").find('.')); };
  return !device(a).empty() && device(a) == device(b);
}

}  // namespace

std::string topology_text(const Json& facts, const Style& style) {
  const Json &gpus = at(facts, "gpus"), &links = at(facts, "links");
  if (!gpus.is_array() || gpus.empty()) return "";
  std::map<std::pair<int64_t, int64_t>, std::string> cell;
  if (links.is_array())
    for (const Json& l : links) {
      if (!at(l, "from").is_number_integer() || !at(l, "to").is_number_integer()) continue;
      std::string name = cleaned(l, "kind") == "xgmi"   ? "xGMI"
                         : cleaned(l, "kind") == "pcie" ? "PCIe"
                                                        : cleaned(l, "kind");
      if (at(l, "hops").is_number_integer() && at(l, "hops").get<int64_t>() > 1) name += " x" + at(l, "hops").dump();
      cell[{at(l, "from").get<int64_t>(), at(l, "to").get<int64_t>()}] = name;
    }
  std::vector<std::string> titles = {"GPU"};
  const size_t n = std::min<size_t>(gpus.size(), 64);
  for (size_t i = 0; i < n; ++i) titles.push_back(std::to_string(i));
  titles.insert(titles.end(), {"NUMA", "PCI"});
  std::vector<std::vector<std::string>> rows;
  for (size_t i = 0; i < n; ++i) {
    std::vector<std::string> row = {std::to_string(i)};
    for (size_t j = 0; j < n; ++j) {
      const auto it = cell.find({static_cast<int64_t>(i), static_cast<int64_t>(j)});
      row.push_back(i == j ? "." : it != cell.end() ? it->second : same_card(gpus[i], gpus[j]) ? "card" : "-");
    }
    row.push_back(at(gpus[i], "numa").is_number_integer() ? at(gpus[i], "numa").dump() : "?");
    row.push_back(cleaned(gpus[i], "pci"));
    rows.push_back(row);
  }
  std::string out = view::table(style, titles, rows);
  const bool separate = !same_card(gpus[0], gpus[n - 1]);
  if (n > 1 && cell.empty() && separate)
    out += "No direct links between GPUs are reported (-): data goes through the host.\n";
  std::string machine;
  const auto part = [&](const std::string& s) { machine += (machine.empty() ? "" : ", ") + s; };
  if (at(facts, "host.numa_nodes").is_number()) part("NUMA nodes: " + at(facts, "host.numa_nodes").dump());
  if (at(facts, "host.iommu.active").is_boolean()) {
    const std::string mode = cleaned(facts, "host.iommu.mode");
    part(holds(facts, "host.iommu.active") ? "IOMMU: " + (mode.empty() ? "on" : mode) : "IOMMU: off");
  }
  if (const std::string acs = cleaned(facts, "acs.state"); !acs.empty())
    part("ACS: " + (acs == "unknown" ? "only root can read it" : acs));
  return out + (machine.empty() ? "" : machine + "\n");
}

}  // namespace pyflame::tools::doctor
