#include "tools/model_files/page.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "tools/model_files/text.h"
#include "tools/view/document.h"
#include "tools/view/kit.h"
#include "tools/view/text.h"

namespace pyflame::tools::model_files {

using namespace view;

namespace {

using Json = nlohmann::json;

// Limits that keep the page of any file at a few megabytes.
constexpr size_t kRows = 20000, kMetadata = 1000;

std::string shape_text(const Json& shape) {
  std::string out;
  for (const Json& size : shape) out += (out.empty() ? "" : " × ") + size.dump();
  return out.empty() ? "scalar" : out;
}

Html tensor_table(const Json& rows, std::string_view caption, bool grouped) {
  std::vector<std::string> titles = {"tensor", "shape", "dtype"};
  if (grouped) titles.emplace_back(">count");
  titles.insert(titles.end(), {">elements", ">size"});
  Table table(caption, titles);
  for (const Json& t : rows) {
    if (table.rows() >= kRows) break;
    std::vector<Cell> cells = {code_cell(str(t, "name")), cell(num(t, "elements"), shape_text(at(t, "shape"))),
                               cell(str(t, "dtype"))};
    if (grouped) cells.push_back(cell(num(t, "count"), str(t, "count")));
    cells.push_back(cell(num(t, "elements"), count(num(t, "elements"))));
    cells.push_back(cell(num(t, "bytes"), bytes(num(t, "bytes"))));
    table.row(cells);
  }
  return table.html();
}

Html dtype_bar(const Json& doc) {
  std::vector<Share> shares;
  const double total = num(doc, "totals.bytes");
  for (const Json& d : list(doc, "dtypes"))
    if (total > 0)
      shares.push_back(
          {str(d, "name"), bytes(num(d, "bytes")), num(d, "bytes") / total, static_cast<int>(shares.size() % 10)});
  return shares.empty() ? Html{} : stacked("bytes by dtype", shares);
}

Html metadata_table(const Json& doc) {
  Table table("metadata of the file", {"key", "value"});
  for (const auto& [key, value] : object(doc, "metadata").items())
    if (table.rows() < kMetadata) table.row({code_cell(key), cell(metadata_text(value, false))});
  return table.html();
}

}  // namespace

std::string html_page(const Json& doc) {
  Page page;
  page.tool = "inspect-model";
  page.title = str(doc, "path");
  page.headline = fmt::format("{} {}, {} elements, {}", str(doc, "totals.tensors"),
                              num(doc, "totals.tensors") == 1 ? "tensor" : "tensors",
                              count(num(doc, "totals.elements")), bytes(num(doc, "file_bytes")));
  page.subline = fmt::format("{}: {}", str(doc, "path"), str(doc, "format"));
  page.tone = list(doc, "notes").empty() ? "good" : "med";
  page.hero = stats(stat("tensors", str(doc, "totals.tensors")) + stat("elements", count(num(doc, "totals.elements"))) +
                    stat("weights", bytes(num(doc, "totals.bytes"))) + stat("file", bytes(num(doc, "file_bytes")))) +
              dtype_bar(doc);
  Html notes;
  for (const Json& text : list(doc, "notes"))
    if (text.is_string()) notes += note(text.get<std::string>());
  page.sections = {{"notes", "Notes", "", notes},
                   {"groups", "Layers", "Tensors that differ only in numbers of their names are one row.",
                    tensor_table(list(doc, "groups"), "tensors by layer", true)},
                   {"metadata", "Metadata", "", metadata_table(doc)},
                   {"tensors", "Tensors", "", tensor_table(list(doc, "tensors"), "all tensors", false)}};
  return render(page);
}

}  // namespace pyflame::tools::model_files
