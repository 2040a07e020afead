#include "tools/inspect/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "tools/inspect/names.h"
#include "tools/inspect/text_kernel.h"
#include "tools/view/finding.h"

namespace pyflame::tools::inspect {

namespace {

using Json = nlohmann::json;
using view::Style;
using view::Tone;

constexpr size_t kMostProblems = 12;

std::string more(const Style& style, size_t n, const char* what) {
  return n == 0 ? std::string()
                : view::paint(style, Tone::dim, fmt::format("… {} more {}; --all shows them\n", n, what));
}

std::string findings_cell(const Style& style, const Json& k) {
  const auto isa = k.find("isa");
  if (isa == k.end() || !isa->contains("findings")) return "–";
  std::map<std::string, int, std::less<>> counts;
  for (const Json& f : (*isa)["findings"]) ++counts[f.value("severity", "")];
  for (const Json& f : k["advice"]) ++counts[f.value("severity", "")];
  std::string out;
  for (const std::string_view severity : kSeverities)
    if (const auto n = counts.find(severity); n != counts.end() && severity != "INFO")
      out += (out.empty() ? "" : " ") +
             view::paint(style, view::severity_tone(severity), fmt::format("{}{}", n->second, severity[0]));
  return out.empty() ? "none" : out;
}

std::string spill_cell(const Style& style, const Json& k) {
  if (k["vgpr_spill"].is_null()) return "–";
  const int64_t vgprs = integer(k, "vgpr_spill"), sgprs = integer(k, "sgpr_spill");
  const std::string text = sgprs > 0 ? fmt::format("{} + {} s", vgprs, sgprs) : fmt::format("{}", vgprs);
  return vgprs > 0 ? view::paint(style, Tone::red, text) : text;
}

std::string waves_cell(const Style& style, const Json& k) {
  const auto o = k.find("occupancy");
  if (o == k.end()) return "–";
  const int64_t waves = integer(*o, "waves_per_simd"), most = integer(*o, "max_waves");
  const Tone tone = 4 * waves <= most ? Tone::red : 2 * waves < most ? Tone::yellow : Tone::plain;
  return view::paint(style, tone, fmt::format("{}/{}", waves, most));
}

// The architecture of the first kernel of a group, and how many others there are.
std::string target_cell(const Json& k, size_t others) {
  const auto target = k["target"].get<std::string>();
  return target.substr(0, target.find(':')) + (others > 0 ? fmt::format(" +{}", others) : "");
}

// Short names; those that stand twice with the file that they are in.
std::vector<std::string> labels(const Json& d, const std::vector<const Json*>& kernels, size_t width) {
  std::map<std::pair<std::string, std::string>, int> times;
  std::vector<std::string> names, files;
  for (const Json* k : kernels) {
    names.push_back(view::clean(short_name((*k)["name"].get<std::string>()), 4000));
    const Json& object = d["objects"][(*k)["object"].get<size_t>()];
    const auto member = object["member"].get<std::string>();
    files.push_back(view::clean(object["path"].get<std::string>() + (member.empty() ? "" : ": " + member), 4000));
    ++times[{names.back(), (*k)["target"].get<std::string>()}];
  }
  std::vector<std::string> twice;
  for (size_t i = 0; i < names.size(); ++i)
    if (times[{names[i], (*kernels[i])["target"].get<std::string>()}] > 1) twice.push_back(files[i]);
  // The folders that all of them are in tell nothing.
  for (size_t slash; !twice.empty() && (slash = twice[0].find('/')) != std::string::npos;) {
    const std::string folder = twice[0].substr(0, slash + 1);
    if (!std::all_of(twice.begin(), twice.end(), [&](const std::string& f) { return f.starts_with(folder); })) break;
    for (std::string& f : twice) f.erase(0, folder.size());
  }
  twice = distinct(twice, width / 2);
  size_t next = 0;
  for (size_t i = 0; i < names.size(); ++i)
    if (times[{names[i], (*kernels[i])["target"].get<std::string>()}] > 1) {
      const std::string file = " in " + twice[next++];
      const size_t room =
          width > static_cast<size_t>(view::width_of(file)) + 8 ? width - static_cast<size_t>(view::width_of(file)) : 8;
      names[i] = view::clean(names[i], static_cast<int>(room)) + file;
    }
  return distinct(names, width);
}

std::string kernel_table(const Json& d, const Style& style, size_t top) {
  constexpr int kLeastName = 24, kWidestName = 120;
  const Json& all = d["kernels"];
  // Of one kernel alone, the architectures are what is asked for.
  const bool folded = d["groups"].size() > 1;
  std::vector<const Json*> kernels;
  std::vector<size_t> others;
  const size_t count = folded ? d["groups"].size() : all.size();
  for (size_t i = 0; i < std::min(top, count); ++i) {
    kernels.push_back(&all[folded ? d["groups"][i][0].get<size_t>() : i]);
    others.push_back(folded ? d["groups"][i].size() - 1 : 0);
  }
  std::vector<std::string> titles = {"kernel",   "gfx",   ">VGPR",  ">spills", ">LDS",
                                     ">scratch", ">code", ">waves", "limit",   "findings"};
  std::vector<std::vector<std::string>> rows;
  for (size_t i = 0; i < kernels.size(); ++i) {
    const Json& k = *kernels[i];
    const auto o = k.find("occupancy");
    rows.push_back(
        {"", target_cell(k, others[i]),
         integer(k, "agpr") > 0 ? fmt::format("{} ({} acc)", shown(k, "vgpr"), integer(k, "agpr")) : shown(k, "vgpr"),
         spill_cell(style, k), size_cell(k, "lds"), size_cell(k, "scratch"), size_cell(k, "code_bytes"),
         waves_cell(style, k), o == k.end() ? "–" : (*o)["limiter"].get<std::string>(), findings_cell(style, k)});
  }
  // Columns in which no kernel has anything leave their room to the names.
  for (size_t column = titles.size(); column-- > 0;) {
    if (titles[column] != ">spills" && titles[column] != ">scratch") continue;
    const auto nothing = [&](const auto& row) { return row[column] == "0" || row[column] == "–"; };
    if (!std::all_of(rows.begin(), rows.end(), nothing)) continue;
    titles.erase(titles.begin() + static_cast<std::ptrdiff_t>(column));
    for (auto& row : rows) row.erase(row.begin() + static_cast<std::ptrdiff_t>(column));
  }
  int taken = 0;
  for (size_t column = 1; column < titles.size(); ++column) {
    int widest = view::width_of(titles[column]) - (titles[column].starts_with('>') ? 1 : 0);
    for (const auto& row : rows) widest = std::max(widest, view::width_of(row[column]));
    taken += widest + 2;
  }
  // Wider than the terminal rather than two rows that look alike.
  Style wide = style;
  std::vector<std::string> names;
  for (int width = std::max(kLeastName, style.width - taken); width <= kWidestName;
       width += rows.size() > 200 ? 24 : 4) {
    names = labels(d, kernels, static_cast<size_t>(width));
    // A narrow terminal shows a paragraph for each row instead of a table.
    wide.width = style.width < 80 ? style.width : std::max(style.width, taken + width);
    std::set<std::pair<std::string, std::string>> seen;
    for (size_t i = 0; i < rows.size(); ++i) seen.emplace(names[i], rows[i][1]);
    if (seen.size() == rows.size()) break;
  }
  for (size_t i = 0; i < rows.size(); ++i) rows[i][0] = names[i];
  std::string out = view::table(wide, titles, rows) + more(style, count - rows.size(), "kernels");
  if (std::any_of(others.begin(), others.end(), [](size_t n) { return n > 0; }))
    out += view::paint(style, Tone::dim,
                       view::wrap("gfx942 +2: the same kernel for two more architectures. The row shows the worst of "
                                  "them; --arch selects one.",
                                  style.width)) +
           "\n";
  return out;
}

std::string joined(const Json& counts, size_t most) {
  std::vector<std::pair<int64_t, std::string>> items;
  for (const auto& [name, n] : counts.items()) items.emplace_back(n.get<int64_t>(), name);
  std::sort(items.begin(), items.end(),
            [](const auto& a, const auto& b) { return a.first != b.first ? a.first > b.first : a.second < b.second; });
  std::string out;
  for (size_t i = 0; i < std::min(most, items.size()); ++i)
    out += fmt::format("{}{} {}", i ? ", " : "", items[i].first, view::clean(items[i].second, 80));
  if (items.size() > most) out += fmt::format(" and {} more", items.size() - most);
  return out;
}

std::string summary_text(const Json& d, const Style& style) {
  const Json& s = d["summary"];
  std::string out;
  const int64_t kernels = integer(s, "kernels"), found = integer(s, "kernels_found");
  std::string head = fmt::format("{} in {} code {} of {} {}", plural(kernels, "kernel"), integer(s, "objects"),
                                 integer(s, "objects") == 1 ? "object" : "objects", integer(s, "files"),
                                 integer(s, "files") == 1 ? "file" : "files");
  if (const size_t different = d["groups"].size(); different != static_cast<size_t>(kernels))
    head += fmt::format(", {} without those that differ by architecture only", different);
  if (found != kernels) head += fmt::format("; {} others do not match --kernel and --arch", found - kernels);
  out += titled(style, "found", head);
  if (!s["targets"].empty()) out += titled(style, "targets", joined(s["targets"], 12));
  std::string attention;
  const auto add = [&](const char* key, const char* one, const char* many) {
    const int64_t n = integer(s, key);
    if (n > 0) attention += fmt::format("{}{} {}", attention.empty() ? "" : ", ", n, n == 1 ? one : many);
  };
  add("spilling", "spills VGPRs", "spill VGPRs");
  add("scratch", "uses scratch memory", "use scratch memory");
  if (attention.empty()) attention = "no kernel uses scratch memory or is known to spill VGPRs";
  if (const int64_t n = integer(s, "unknown_spills"); n > 0)
    attention += fmt::format("; the files do not say whether {} {}", plural(n, "kernel"), n == 1 ? "spills" : "spill");
  if (kernels > 0) out += titled(style, "attention", attention);
  if (const int64_t low = integer(s, "low_occupancy"); low > 0) {
    const int64_t matrix = integer(s, "low_with_matrix");
    std::string text = low == 1 ? "1 kernel reaches less than half of the waves"
                                : fmt::format("{} kernels reach less than half of the waves", low);
    if (matrix > 0)
      text += fmt::format("; {} {} matrix instructions, with which that is usual",
                          matrix == low ? (low == 1 ? "it" : "all") : fmt::format("{}", matrix),
                          matrix == 1 ? "has" : "have");
    out += titled(style, "occupancy", text);
  }
  for (const std::string_view severity : kSeverities)
    if (const auto found_ids = s["by_severity"].find(std::string(severity)); found_ids != s["by_severity"].end())
      out += titled(style, std::string(severity), joined(*found_ids, 10));
  if (!s["others"].empty()) out += titled(style, "passed over", joined(s["others"], 8));
  return out;
}

}  // namespace

std::string problems_text(const Json& d, const Style& style) {
  std::string out;
  for (const Json& m : d["missing"]) out += titled(style, "missing", view::clean(m.get<std::string>()));
  const Json& problems = d["problems"];
  for (size_t i = 0; i < std::min(kMostProblems, problems.size()); ++i)
    out += titled(style, "problem",
                  view::clean(problems[i]["where"].get<std::string>(), 200) + ": " +
                      view::clean(problems[i]["what"].get<std::string>(), 400));
  if (problems.size() > kMostProblems)
    out += view::paint(style, Tone::dim,
                       fmt::format("… {} more problems; --json shows them\n", problems.size() - kMostProblems));
  return out;
}

std::string document_text(const Json& d, const Style& style, const TextOptions& options) {
  std::string out;
  if (d["kernels"].size() == 1) {
    out += kernel_text(d, d["kernels"][0], style);
    return out + problems_text(d, style);
  }
  if (!d["kernels"].empty()) out += kernel_table(d, style, options.top) + "\n";
  return out + summary_text(d, style) + problems_text(d, style);
}

std::string diff_text(const Json& d, const Style& style, const TextOptions& options) {
  std::vector<std::vector<std::string>> rows;
  const Json& changed = d["changed"];
  for (size_t i = 0; i < std::min(options.top, changed.size()); ++i) {
    const Json& c = changed[i];
    bool first = true;
    for (const Json& x : c["changes"]) {
      const bool worse = x["worse"].get<bool>();
      rows.push_back({first ? view::clean(short_name(c["name"].get<std::string>())) : "",
                      first ? c["target"].get<std::string>() : "", view::clean(x["title"].get<std::string>(), 40),
                      view::count(x["from"].get<double>()), view::count(x["to"].get<double>()),
                      view::paint(style, worse ? Tone::red : Tone::green, worse ? "worse" : "better")});
      first = false;
    }
  }
  std::string out;
  if (!rows.empty()) out += view::table(style, {"kernel", "gfx", "figure", ">before", ">after", ""}, rows);
  out += more(style, changed.size() - std::min(options.top, changed.size()), "kernels");
  for (const char* key : {"added", "removed"}) {
    for (size_t i = 0; i < std::min(options.top, d[key].size()); ++i)
      out += fmt::format("{:<9}{} ({})\n", key, view::clean(short_name(d[key][i]["name"].get<std::string>()), 120),
                         view::clean(d[key][i]["target"].get<std::string>(), 60));
    out += more(style, d[key].size() - std::min(options.top, d[key].size()), "kernels");
  }
  const Json& s = d["summary"];
  const Json& v = s["verdicts"];
  if (!out.empty()) out += "\n";
  out += titled(style, "summary",
                fmt::format("{} unchanged, {} changed ({} worse, {} better, {} mixed), {} added, {} removed",
                            integer(s, "same"), integer(s, "changed"), integer(v, "worse"), integer(v, "better"),
                            integer(v, "mixed"), integer(s, "added"), integer(s, "removed")));
  return out + problems_text(d, style);
}

std::string gate_text(const Json& g, const Style& style, const TextOptions& options) {
  std::string out;
  const Json& worse = g["worse"];
  std::vector<std::vector<std::string>> rows;
  const auto cell = [](const Json& n) {
    return n.is_null() ? std::string("not known") : fmt::format("{}", n.get<int64_t>());
  };
  for (size_t i = 0; i < std::min(options.top, worse.size()); ++i)
    rows.push_back({view::clean(short_name(worse[i]["name"].get<std::string>())),
                    view::clean(worse[i]["target"].get<std::string>(), 40),
                    view::clean(worse[i]["what"].get<std::string>(), 60), cell(worse[i]["budget"]),
                    view::paint(style, Tone::red, cell(worse[i]["now"]))});
  if (!rows.empty())
    out += view::table(style, {"worse", "gfx", "figure", ">budget", ">now"}, rows) +
           more(style, worse.size() - rows.size(), "rows");
  const auto names = [](const Json& list, const char* key) {
    std::string text;
    for (size_t i = 0; i < std::min<size_t>(list.size(), 5); ++i)
      text += fmt::format("{}{}", i ? ", " : ": ", view::clean(short_name(list[i][key].get<std::string>()), 80));
    return text + (list.size() > 5 ? ", …" : "");
  };
  if (!g["unlisted"].empty())
    out += titled(style, "not in budget",
                  plural(static_cast<int64_t>(g["unlisted"].size()), "kernel") + names(g["unlisted"], "name"));
  if (!g["vanished"].empty())
    out += titled(style, "vanished",
                  plural(static_cast<int64_t>(g["vanished"].size()), "row") + names(g["vanished"], "kernel"));
  for (const Json& n : g["notes"]) out += titled(style, "note", n.get<std::string>());
  const std::string verdict =
      worse.empty() ? view::paint(style, Tone::green, "passed") : view::paint(style, Tone::red, "got worse");
  out +=
      titled(style, "gate",
             fmt::format("{}: {} checked against {}, {}", verdict, plural(integer(g, "checked"), "kernel"),
                         view::clean(g["file"].get<std::string>(), 200),
                         worse.empty() ? "no kernel is worse"
                                       : plural(static_cast<int64_t>(worse.size()), "figure") + " beyond the budget"));
  return out;
}

}  // namespace pyflame::tools::inspect
