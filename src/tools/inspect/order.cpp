#include "tools/inspect/order.h"

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>

namespace pyflame::tools::inspect {

namespace {

using Json = nlohmann::json;

double rank_number(const Json& k, const char* key) {
  const auto at = k.find(key);
  return at != k.end() && at->is_number() ? at->get<double>() : 0;
}

// The findings of one severity, in the metadata and in the machine code.
double findings_of(const Json& k, std::string_view severity) {
  double n = 0;
  const auto add = [&](const Json& list) {
    for (const Json& f : list) n += f.value("severity", "") == severity;
  };
  add(k["advice"]);
  if (const auto isa = k.find("isa"); isa != k.end() && isa->contains("findings")) add((*isa)["findings"]);
  return n;
}

// Larger values come first; equal ones are sorted by name.
using Rank = std::array<double, 6>;
Rank rank(const Json& k, SortBy by) {
  switch (by) {
    case SortBy::vgpr: return {rank_number(k, "vgpr")};
    case SortBy::scratch: return {rank_number(k, "scratch"), rank_number(k, "vgpr_spill")};
    case SortBy::spills: return {rank_number(k, "vgpr_spill"), rank_number(k, "sgpr_spill"), rank_number(k, "scratch")};
    case SortBy::occupancy: return {-fill(k), rank_number(k, "vgpr")};
    case SortBy::code: return {rank_number(k, "code_bytes")};
    case SortBy::name: return {};
    case SortBy::worst: break;
  }
  return {findings_of(k, "HIGH"), rank_number(k, "vgpr_spill"), rank_number(k, "scratch"),
          findings_of(k, "MED"),  rank_number(k, "sgpr_spill"), -fill(k)};
}

}  // namespace

std::optional<SortBy> sort_by(std::string_view name) {
  constexpr std::pair<std::string_view, SortBy> kNames[] = {
      {"worst", SortBy::worst},   {"vgpr", SortBy::vgpr},           {"scratch", SortBy::scratch},
      {"spills", SortBy::spills}, {"occupancy", SortBy::occupancy}, {"name", SortBy::name},
      {"code", SortBy::code}};
  for (const auto& [n, by] : kNames)
    if (n == name) return by;
  return std::nullopt;
}

double fill(const Json& k) {
  const auto at = k.find("occupancy");
  return at == k.end() ? 1.0 : rank_number(*at, "waves_per_simd") / std::max(1.0, rank_number(*at, "max_waves"));
}

Json sorted(std::vector<Json> kernels, SortBy by) {
  std::vector<std::pair<Rank, size_t>> order;
  for (size_t i = 0; i < kernels.size(); ++i) order.emplace_back(rank(kernels[i], by), i);
  std::sort(order.begin(), order.end(), [&](const auto& a, const auto& b) {
    if (a.first != b.first) return a.first > b.first;
    const auto key = [&](size_t i) {
      return std::tie(kernels[i]["name"].get_ref<const std::string&>(),
                      kernels[i]["target"].get_ref<const std::string&>());
    };
    const auto ka = key(a.second), kb = key(b.second);
    return ka != kb ? ka < kb : a.second < b.second;
  });
  Json out = Json::array();
  for (const auto& o : order) out.push_back(std::move(kernels[o.second]));
  return out;
}

Json groups(const Json& kernels, const Json& objects) {
  // A file may have a name several times for one target, such as a template of two source files: the first one belongs to the
  // first one of the other targets.
  std::vector<size_t> by_object(kernels.size());
  for (size_t i = 0; i < by_object.size(); ++i) by_object[i] = i;
  const auto object_of = [&](size_t i) { return kernels[i]["object"].get<size_t>(); };
  std::stable_sort(by_object.begin(), by_object.end(), [&](size_t a, size_t b) { return object_of(a) < object_of(b); });
  using Key = std::tuple<std::string, std::string, size_t>;  // symbol, name of the file, number
  std::map<std::tuple<std::string, std::string, std::string>, size_t> seen;
  std::vector<Key> keys(kernels.size());
  for (const size_t i : by_object) {
    const auto path = objects[object_of(i)]["path"].get<std::string>();
    const std::string file = path.substr(path.find_last_of('/') + 1);
    const auto symbol = kernels[i]["symbol"].get<std::string>();
    keys[i] = {symbol, file, seen[{symbol, file, kernels[i]["target"].get<std::string>()}]++};
  }
  std::map<Key, size_t> at;
  Json out = Json::array();
  for (size_t i = 0; i < kernels.size(); ++i) {
    const auto [it, fresh] = at.try_emplace(keys[i], out.size());
    if (fresh) out.push_back(Json::array());
    out[it->second].push_back(i);
  }
  return out;
}

}  // namespace pyflame::tools::inspect
