#include "tools/view/document.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

namespace pyflame::tools::view {
namespace {

const Json kNull, kList = Json::array(), kObject = Json::object();

std::string scalar(const Json& value) {
  if (value.is_string()) return value.get_ref<const std::string&>();
  if (value.is_boolean()) return value.get<bool>() ? "yes" : "no";
  if (value.is_number_unsigned()) return std::to_string(value.get<uint64_t>());
  if (value.is_number_integer()) return std::to_string(value.get<int64_t>());
  if (value.is_number()) return std::isfinite(value.get<double>()) ? fmt::format("{:.6g}", value.get<double>()) : "";
  return "";
}

}  // namespace

const Json& at(const Json& value, std::string_view path) {
  const Json* here = &value;
  while (!path.empty()) {
    const size_t dot = path.find('.');
    if (!here->is_object()) return kNull;
    const auto found = here->find(path.substr(0, dot));
    if (found == here->end()) return kNull;
    here = &*found;
    if (dot == std::string_view::npos) break;
    path.remove_prefix(dot + 1);
  }
  return *here;
}

bool has(const Json& value, std::string_view path) { return !at(value, path).is_null(); }

std::string str(const Json& value, std::string_view path, std::string_view otherwise) {
  const Json& found = at(value, path);
  std::string out;
  if (found.is_array()) {
    for (const Json& item : found) {
      const std::string one = scalar(item);
      if (one.empty()) continue;
      if (!out.empty()) out += ", ";
      out += one;
    }
  } else {
    out = scalar(found);
  }
  return out.empty() ? std::string(otherwise) : out;
}

std::string some(const Json& list, size_t most) {
  Json first = Json::array();
  for (size_t i = 0; i < std::min(list.size(), most); ++i) first.push_back(list[i]);
  const std::string out = str(first, "");
  return list.size() > most ? fmt::format("{} and {} more", out, list.size() - most) : out;
}

double num(const Json& value, std::string_view path) {
  const Json& found = at(value, path);
  return found.is_number() ? found.get<double>() : std::numeric_limits<double>::quiet_NaN();
}

bool flag(const Json& value, std::string_view path, bool otherwise) {
  const Json& found = at(value, path);
  return found.is_boolean() ? found.get<bool>() : otherwise;
}

const Json& list(const Json& value, std::string_view path) {
  const Json& found = at(value, path);
  return found.is_array() ? found : kList;
}

const Json& object(const Json& value, std::string_view path) {
  const Json& found = at(value, path);
  return found.is_object() ? found : kObject;
}

int whole(const Json& value, std::string_view path, int low, int high) {
  const double number = num(value, path);
  return std::isfinite(number) ? static_cast<int>(std::clamp<double>(number, low, high)) : low;
}

}  // namespace pyflame::tools::view
