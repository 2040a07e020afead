#include "tools/inspect/compare.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <vector>

#include "pyflame/base/error.h"

namespace pyflame::tools::inspect {

namespace {

using Json = nlohmann::json;

constexpr const char* kGateSchema = "pyflame.inspect.gate/1";

struct Figure {
  const char *key, *title;
  const char* section;  // the part of the kernel that has it, if it is not at the top
  bool more_is_worse;
  bool gated;
  double weight;  // the weight of doubling it, for sorting changes
};

constexpr Figure kFigures[] = {{"vgpr_spill", "VGPR spills", nullptr, true, true, 100},
                               {"scratch", "scratch", nullptr, true, true, 50},
                               {"waves_per_simd", "waves per SIMD", "occupancy", false, true, 40},
                               {"sgpr_spill", "SGPR spills", nullptr, true, true, 10},
                               {"vgpr", "VGPRs", nullptr, true, true, 10},
                               {"lds", "LDS", nullptr, true, true, 10},
                               {"instructions", "instructions", "isa", true, false, 5},
                               {"code_bytes", "code bytes", nullptr, true, true, 5},
                               {"agpr", "AGPRs", nullptr, true, false, 1},
                               {"sgpr", "SGPRs", nullptr, true, false, 1}};

std::optional<int64_t> figure(const Json& kernel, const Figure& f) {
  const Json* from = &kernel;
  if (f.section) {
    const auto at = kernel.find(f.section);
    if (at == kernel.end()) return std::nullopt;
    from = &*at;
  }
  const auto at = from->find(f.key);
  if (at == from->end() || !at->is_number_integer()) return std::nullopt;
  return at->get<int64_t>();
}

// id -> how often it was found. Nothing if the instructions were not read.
std::optional<std::map<std::string, int64_t>> findings(const Json& kernel) {
  const auto isa = kernel.find("isa");
  if (isa == kernel.end() || !isa->contains("findings")) return std::nullopt;
  std::map<std::string, int64_t> out;
  for (const Json& f : (*isa)["findings"]) out[f.value("id", "")] += std::max<int64_t>(1, f.value("count", int64_t{1}));
  return out;
}

Json identity(const Json& k) {
  return {{"name", k["name"]}, {"symbol", k["symbol"]}, {"gfx", k["gfx"]}, {"target", k["target"]}};
}

using Key = std::pair<std::string, std::string>;
Key key_of(const Json& k) { return {k["symbol"].get<std::string>(), k["target"].get<std::string>()}; }

// Kernels by symbol and target. Equal ones (a kernel of a header in many objects) keep their order.
std::map<Key, std::vector<const Json*>> by_key(const Json& document) {
  std::map<Key, std::vector<const Json*>> out;
  for (const Json& k : document["kernels"]) out[key_of(k)].push_back(&k);
  for (auto& [key, list] : out)
    std::stable_sort(list.begin(), list.end(),
                     [](const Json* a, const Json* b) { return (*a)["object"] < (*b)["object"]; });
  return out;
}

Json compare(const Json& a, const Json& b) {
  Json out = identity(b);
  out["changes"] = Json::array();
  double importance = 0;
  int worse = 0, better = 0;
  for (const Figure& f : kFigures) {
    const auto from = figure(a, f), to = figure(b, f);
    if (!from || !to || *from == *to) continue;
    const bool is_worse = (*to > *from) == f.more_is_worse;
    (is_worse ? worse : better) += 1;
    importance += f.weight * std::abs(std::log2((1.0 + static_cast<double>(*to)) / (1.0 + static_cast<double>(*from))));
    out["changes"].push_back({{"what", f.key}, {"title", f.title}, {"from", *from}, {"to", *to}, {"worse", is_worse}});
  }
  const auto fa = findings(a), fb = findings(b);
  if (fa && fb) {
    std::set<std::string> ids;
    for (const auto& [id, n] : *fa) ids.insert(id);
    for (const auto& [id, n] : *fb) ids.insert(id);
    for (const std::string& id : ids) {
      const int64_t from = fa->count(id) ? fa->at(id) : 0, to = fb->count(id) ? fb->at(id) : 0;
      if (from == to) continue;
      (to > from ? worse : better) += 1;
      importance += 3;
      out["changes"].push_back({{"what", "finding"}, {"title", id}, {"from", from}, {"to", to}, {"worse", to > from}});
    }
  }
  out["importance"] = importance;
  out["verdict"] = worse && better ? "mixed" : worse ? "worse" : better ? "better" : "same";
  return out;
}

// '*' matches any text. It needs no recursion, and at most length times length steps.
bool glob(std::string_view pattern, std::string_view text) {
  size_t p = 0, t = 0, star = std::string_view::npos, mark = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      mark = t;
    } else if (p < pattern.size() && pattern[p] == text[t]) {
      ++p;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++mark;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

struct Budget {
  std::string kernel, gfx;
  Json row;
  int64_t used = 0;
  bool takes(const Json& k) const {
    const auto is = [](const Json& value, const std::string& wanted) {
      return value.is_string() && value.get_ref<const std::string&>() == wanted;
    };
    if (gfx != "*" && !is(k["gfx"], gfx) && !is(k["target"], gfx)) return false;
    const auto& symbol = k["symbol"].get_ref<const std::string&>();
    const auto& name = k["name"].get_ref<const std::string&>();
    return kernel == symbol || kernel == name || glob(kernel, symbol) || glob(kernel, name);
  }
};

std::vector<Budget> read_budget(const std::string& text, const std::string& file) {
  const Json j = Json::parse(text, nullptr, false);
  PF_CHECK(
      j.is_object() && j.value("schema", Json()) == kGateSchema && j.contains("kernels") && j["kernels"].is_array(),
      Value, "inspect: '{}' is not a budget; expected a file of --write_gate (schema {})", file, kGateSchema);
  std::vector<Budget> out;
  for (const Json& row : j["kernels"]) {
    const bool named = row.is_object() && row.contains("kernel") && row["kernel"].is_string();
    PF_CHECK(named, Value,
             "inspect: row {} of '{}' names no kernel; expected {{\"kernel\": pattern, \"gfx\": \"gfx942\", …}}",
             out.size() + 1, file);
    const bool any = !row.contains("gfx");
    PF_CHECK(any || row["gfx"].is_string(), Value, "inspect: \"gfx\" of row {} of '{}' is not a text", out.size() + 1,
             file);
    for (const Figure& f : kFigures)
      PF_CHECK(!row.contains(f.key) || row[f.key].is_number_integer(), Value,
               "inspect: \"{}\" of row {} of '{}' is not a whole number", f.key, out.size() + 1, file);
    out.push_back({row["kernel"].get<std::string>(), any ? "*" : row["gfx"].get<std::string>(), row, 0});
  }
  return out;
}

void check_kernel(const Json& k, const Budget& budget, Json& out) {
  const auto add = [&](const std::string& what, const Json& allowed, const Json& now) {
    Json w = identity(k);
    w["what"] = what;
    w["budget"] = allowed;
    w["now"] = now;
    out["worse"].push_back(std::move(w));
  };
  for (const Figure& f : kFigures) {
    if (!f.gated || !budget.row.contains(f.key)) continue;
    const auto allowed = budget.row[f.key].get<int64_t>();
    const auto now = figure(k, f);
    if (!now) add(f.title, allowed, nullptr);  // a value that is not known does not pass
    else if (f.more_is_worse ? *now > allowed : *now < allowed) add(f.title, allowed, *now);
  }
  const auto found = findings(k);
  if (!budget.row.contains("findings") || !found) return;
  std::set<std::string> allowed;
  for (const Json& id : budget.row["findings"])
    if (id.is_string()) allowed.insert(id.get<std::string>());
  for (const auto& [id, n] : *found)
    if (!allowed.count(id)) add("finding " + id, 0, n);
}

}  // namespace

Json diff(const Json& a, const Json& b) {
  Json out = {{"schema", "pyflame.inspect.diff/1"}, {"a", a["inputs"]},       {"b", b["inputs"]},
              {"changed", Json::array()},           {"added", Json::array()}, {"removed", Json::array()}};
  const auto left = by_key(a), right = by_key(b);
  std::vector<Json> changed;
  int64_t same = 0;
  for (const auto& [key, list] : right) {
    const auto at = left.find(key);
    const size_t known = at == left.end() ? 0 : at->second.size();
    for (size_t i = 0; i < list.size(); ++i) {
      if (i >= known) {
        out["added"].push_back(identity(*list[i]));
        continue;
      }
      Json c = compare(*at->second[i], *list[i]);
      if (c["changes"].empty()) ++same;
      else changed.push_back(std::move(c));
    }
  }
  for (const auto& [key, list] : left) {
    const auto at = right.find(key);
    for (size_t i = at == right.end() ? 0 : at->second.size(); i < list.size(); ++i)
      out["removed"].push_back(identity(*list[i]));
  }
  std::stable_sort(changed.begin(), changed.end(), [](const Json& x, const Json& y) {
    return x["importance"].get<double>() > y["importance"].get<double>();
  });
  std::map<std::string, int64_t> verdicts = {{"worse", 0}, {"better", 0}, {"mixed", 0}};
  for (const Json& c : changed) ++verdicts[c["verdict"].get<std::string>()];
  out["summary"] = {{"same", same},
                    {"changed", changed.size()},
                    {"added", out["added"].size()},
                    {"removed", out["removed"].size()},
                    {"verdicts", verdicts}};
  for (Json& c : changed) out["changed"].push_back(std::move(c));
  for (const char* key : {"problems", "missing"}) {
    out[key] = a[key];
    for (const Json& p : b[key])
      if (std::find(out[key].begin(), out[key].end(), p) == out[key].end()) out[key].push_back(p);
  }
  return out;
}

Json make_gate(const Json& document) {
  // A kernel that is in several objects gets one row, with the worst value of each figure.
  std::map<Key, Json> rows;
  for (const Json& k : document["kernels"]) {
    Json& row = rows[{k["symbol"].get<std::string>(), k["target"].get<std::string>()}];
    row["kernel"] = k["symbol"];
    row["gfx"] = k["target"];
    for (const Figure& f : kFigures) {
      const auto now = figure(k, f);
      if (!f.gated || !now) continue;
      const int64_t allowed = std::string_view(f.key) == "code_bytes" ? (*now * 11 / 10 + 63) / 64 * 64 : *now;
      const bool known = row.contains(f.key);
      const int64_t before = known ? row[f.key].get<int64_t>() : allowed;
      row[f.key] = f.more_is_worse ? std::max(before, allowed) : std::min(before, allowed);
    }
    if (const auto found = findings(k)) {
      std::set<std::string> ids;
      if (row.contains("findings")) ids = row["findings"].get<std::set<std::string>>();
      for (const auto& [id, n] : *found) ids.insert(id);
      row["findings"] = ids;
    }
  }
  Json out = {{"schema", kGateSchema}, {"kernels", Json::array()}};
  for (auto& [key, row] : rows) out["kernels"].push_back(std::move(row));
  return out;
}

Json check_gate(const Json& document, const std::string& text, const std::string& file) {
  std::vector<Budget> budgets = read_budget(text, file);
  Json out = {{"file", file},
              {"checked", 0},
              {"worse", Json::array()},
              {"unlisted", Json::array()},
              {"vanished", Json::array()},
              {"notes", Json::array()}};
  // Most rows name one kernel exactly. They are found without trying every pattern.
  std::map<std::string_view, std::vector<size_t>> exact;
  std::vector<size_t> patterns;
  for (size_t i = 0; i < budgets.size(); ++i) {
    if (budgets[i].kernel.find('*') == std::string::npos) exact[budgets[i].kernel].push_back(i);
    else patterns.push_back(i);
  }
  int64_t checked = 0;
  bool findings_unread = false;
  for (const Json& k : document["kernels"]) {
    Budget* row = nullptr;
    const auto look = [&](const std::vector<size_t>& candidates) {
      for (const size_t i : candidates)
        if (!row && budgets[i].takes(k)) row = &budgets[i];
    };
    for (const char* key : {"symbol", "name"})
      if (const auto at = exact.find(k[key].get_ref<const std::string&>()); at != exact.end()) look(at->second);
    look(patterns);
    if (!row) {
      out["unlisted"].push_back(identity(k));
      continue;
    }
    ++row->used;
    ++checked;
    findings_unread |= row->row.contains("findings") && !findings(k);
    check_kernel(k, *row, out);
  }
  for (const Budget& b : budgets)
    if (b.used == 0) out["vanished"].push_back({{"kernel", b.kernel}, {"gfx", b.gfx}});
  out["checked"] = checked;
  if (findings_unread)
    out["notes"].push_back("the instructions of some kernels were not read, so their findings were not compared");
  PF_CHECK(checked > 0, Value,
           "inspect: no kernel here is in the budget '{}' ({} rows, {} kernels); nothing was compared", file,
           budgets.size(), document["kernels"].size());
  return out;
}

}  // namespace pyflame::tools::inspect
