#include "tools/model_files/text.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "tools/view/document.h"

namespace pyflame::tools::model_files {

namespace {

using Json = nlohmann::json;
using view::at;
using view::clean;
using view::num;
using view::str;
using view::Style;
using view::Tone;

constexpr size_t kLongArray = 8, kMetadataColumns = 400;

std::string shape_text(const Json& shape) {
  std::string out;
  for (const Json& size : shape) out += (out.empty() ? "" : " x ") + size.dump();
  return out.empty() ? "scalar" : out;
}

void put_tensors(std::string& out, const Style& style, const Json& doc, bool all) {
  const Json& rows = view::list(doc, all ? "tensors" : "groups");
  std::vector<std::vector<std::string>> cells;
  for (const Json& t : rows) {
    const double count = num(t, "count");
    cells.push_back({clean(str(t, "name")), shape_text(at(t, "shape")), str(t, "dtype"),
                     count > 1 ? fmt::format("{:g}", count) : "", view::count(num(t, "elements")),
                     view::bytes(num(t, "bytes"))});
  }
  if (!cells.empty())
    out += "\n" + view::table(style, {"tensor", "shape", "dtype", all ? "" : ">count", ">elements", ">size"}, cells);
}

void put_dtypes(std::string& out, const Json& doc) {
  for (const Json& d : view::list(doc, "dtypes"))
    out +=
        fmt::format("{:<10} {} tensor{}, {} elements, {}\n", str(d, "name"), str(d, "tensors"),
                    num(d, "tensors") == 1 ? "" : "s", view::count(num(d, "elements")), view::bytes(num(d, "bytes")));
}

}  // namespace

std::string metadata_text(const Json& value, bool all) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_array() && value.size() > kLongArray && !all) {
    const std::string first = value[0].dump(-1, ' ', false, Json::error_handler_t::replace);
    return fmt::format("{} items, the first is {}", value.size(), first);
  }
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string document_text(const Json& doc, const Style& style, bool all) {
  std::string out =
      view::paint(style, Tone::bold,
                  fmt::format("{}: {}, {} {}, {} elements, {}", clean(str(doc, "path")), str(doc, "format"),
                              str(doc, "totals.tensors"), num(doc, "totals.tensors") == 1 ? "tensor" : "tensors",
                              view::count(num(doc, "totals.elements")), view::bytes(num(doc, "file_bytes")))) +
      "\n";
  put_dtypes(out, doc);
  for (const Json& note : view::list(doc, "notes"))
    if (note.is_string())
      out += view::paint(style, Tone::yellow, view::wrap("note: " + clean(note.get<std::string>()), style.width, 6)) +
             "\n";
  put_tensors(out, style, doc, all);
  std::vector<std::vector<std::string>> rows;
  for (const auto& [key, value] : view::object(doc, "metadata").items())
    rows.push_back({clean(key, 60), clean(metadata_text(value, all), all ? 100000 : kMetadataColumns)});
  if (!rows.empty()) out += "\n" + view::table(style, {"metadata", "value"}, rows);
  if (!all && view::list(doc, "groups").size() < view::list(doc, "tensors").size())
    out += "\nTensors that differ only in numbers of their names are one row; --all has a row for each.\n";
  return out;
}

}  // namespace pyflame::tools::model_files
