// Tables with a header: hipblaslt-bench's output, hipBLASLt's override file, aiter's configurations. See tuned_read.h.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "tools/base/text.h"
#include "tools/profile/tuned_read.h"

namespace pyflame::tools::profile::detail {

namespace {

std::string_view trimmed(std::string_view s) {
  while (!s.empty() && (s.front() == ' ' || s.front() == '\t')) s.remove_prefix(1);
  while (!s.empty() && (s.back() == ' ' || s.back() == '\t' || s.back() == '\r')) s.remove_suffix(1);
  return s;
}

// "[0]:transA,..." of the bench program
std::string_view without_index(std::string_view line) {
  const size_t colon = line.starts_with("[") ? line.find(':') : std::string_view::npos;
  return colon == std::string_view::npos ? line : line.substr(colon + 1);
}

std::vector<std::string> columns_of(std::string_view line) {
  std::vector<std::string> names;
  for (std::string_view name : split(without_index(line), ',')) names.push_back(lower(trimmed(name)));
  return names;
}

bool has_all(const std::vector<std::string>& names, std::initializer_list<std::string_view> wanted) {
  return std::all_of(wanted.begin(), wanted.end(),
                     [&](std::string_view w) { return std::find(names.begin(), names.end(), w) != names.end(); });
}
bool has_one(const std::vector<std::string>& names, std::initializer_list<std::string_view> wanted) {
  return std::any_of(wanted.begin(), wanted.end(), [&](std::string_view w) { return has_all(names, {w}); });
}

// The types of a product of aiter. Its tables have columns for some of them; the file is named after the others.
std::vector<std::string> aiter_types(const TableRow& row, std::string_view file_name) {
  const std::string_view result = row.get({"outdtype"});
  const std::string out(result.empty() ? "bf16" : result);
  if (const std::string_view in = row.get({"dtype", "q_dtype_w"}); !in.empty())
    return {std::string(in), std::string(in), out};
  const std::string name = lower(file_name) + " " + lower(row.get({"kernelname"}));
  const auto has = [&](std::string_view word) { return name.find(word) != std::string::npos; };
  if (has("a4w4") || has("fp4")) return {"fp4", "fp4", out};
  if (has("a8w8")) {
    const std::string type = has("blockscale") || has("bpreshuffle") || has("mxscale") ? "fp8" : "a8w8";
    return {type, type, out};
  }
  if (has("bf16") || has("a16w16")) return {"bf16", "bf16", out};
  return {};
}

// Two products for each of the chosen experts of each token, and the gate if there is one.
void aiter_experts(const TableRow& row, TunedEntry& entry) {
  const auto value = [&](std::string_view name) { return row.number_of({name}, 0); };
  const double tokens = value("token"), rows = value("model_dim"), inner = value("inter_dim"),
               experts = value("expert"), chosen = value("topk");
  const auto type = [&](std::string_view name) { return dtype_of(row.get({name})); };
  const DtypeFact a = type("q_dtype_a"), w = type("q_dtype_w"), out = type("dtype");
  const double products = value("use_g1u1") > 0 ? 3 : 2;
  entry.kind = "moe";
  entry.dtype = a.name == w.name ? std::string(a.name) : fmt::format("{} x {}", a.name, w.name);
  if (out.name != a.name) entry.dtype += fmt::format(" -> {}", out.name);
  const std::string_view activation = row.get({"act_type"}), scales = row.get({"q_type"});
  const auto last_part = [](std::string_view text) { return lower(text.substr(text.rfind('.') + 1)); };
  entry.problem =
      fmt::format("fMoE {} tokens, {}x{}, {} of {} experts, {}{}{} {}", tokens, rows, inner, chosen, experts,
                  last_part(activation), scales.empty() ? "" : ", ", last_part(scales), entry.dtype);
  entry.flops = 2 * products * tokens * chosen * rows * inner;
  // The number of different experts is that of tokens which choose at random, as the tuner's do.
  const double used = experts > 0 ? experts * (1 - std::pow(1 - std::min(1.0, chosen / experts), tokens)) : 0;
  if (a.bytes > 0 && w.bytes > 0 && out.bytes > 0)
    entry.bytes = used * products * rows * inner * w.bytes + tokens * rows * (a.bytes + out.bytes);
  const std::string first(row.get({"kernelname1"})), second(row.get({"kernelname2"}));
  entry.choice =
      first + (first.empty() || second.empty() || first == second ? "" : " + ") + (first == second ? "" : second);
}

void aiter_gdn(const TableRow& row, TunedEntry& entry) {
  entry.kind = "gdn";
  const DtypeFact type = dtype_of(row.get({"dtype"}));
  entry.dtype = type.name;
  const std::string_view tokens = row.get({"t_flat"}), chunks = row.get({"total_chunks"}), tile = row.get({"bv"});
  const std::string length = !tokens.empty()   ? fmt::format(" {} tokens,", tokens)
                             : !chunks.empty() ? fmt::format(" {} chunks,", chunks)
                                               : "";
  entry.problem = fmt::format("gated delta rule{} {} of {} heads, value size {} {}", length, row.get({"h"}),
                              row.get({"hg"}), row.get({"v"}), entry.dtype);
  if (!tile.empty()) entry.choice = fmt::format("BV {}", tile);
}

// A ratio or "1.5%"; the worst of the two steps of a mixture of experts.
double wrong_results(const TableRow& row) {
  double worst = 0;
  for (const char* name : {"err_ratio", "errratio", "err1", "err2"}) {
    std::string_view text = row.get({name});
    const bool percent = text.ends_with('%');
    if (percent) text.remove_suffix(1);
    double ratio = 0;
    if (number(text, ratio)) worst = std::max(worst, percent ? ratio / 100 : ratio);
  }
  return worst;
}

bool bench_table_row(const TableRow& row, TunedEntry& entry) {
  const double m = row.number_of({"m"}, -1), n = row.number_of({"n"}, -1), k = row.number_of({"k"}, -1);
  if (m < 0 || n < 0 || k < 0) return false;
  const std::string layout = std::string(row.get({"transa"})) + std::string(row.get({"transb"}));
  entry = gemm_entry(m, n, k, std::max(1.0, row.number_of({"batch_count"}, 1)), layout,
                     {std::string(row.get({"a_type", "dtype"})), std::string(row.get({"b_type", "dtype"})),
                      std::string(row.get({"d_type", "outdtype", "c_type"}))});
  return true;
}

void add_result(const TableRow& row, TunedEntry& entry) {
  if (const double us = row.number_of({"us"}, 0); us > 0) entry.us = us;
  const std::string_view name = row.get({"kernelname", "solution_name"}),
                         index = row.get({"solidx", "kernelid", "solution_index"}), library = row.get({"libtype"});
  if (entry.choice.empty())
    entry.choice = !name.empty()    ? std::string(name)
                   : !index.empty() ? fmt::format("{}{}solution {}", library, library.empty() ? "" : " ", index)
                                    : "";
  // The reference of a mixture of experts rounds elsewhere than its kernels: aiter ships rows of up to a quarter.
  const double tolerated = entry.kind == "moe" ? 0.25 : 0.05;
  if (const double wrong = wrong_results(row); wrong > tolerated)
    entry.stale = fmt::format("{:.1f} % of its results were out of tolerance when it was tuned", wrong * 100);
  entry.gfx = row.get({"gfx"});
  entry.cus = static_cast<int>(std::clamp(row.number_of({"cu_num"}, 0), 0.0, 1e6));
}

}  // namespace

std::string_view TableRow::get(std::initializer_list<std::string_view> names) const {
  for (const std::string_view name : names)
    for (size_t i = 0; i < header.size(); ++i)
      if (header[i] == name && i < field.size() && !trimmed(field[i]).empty()) return trimmed(field[i]);
  return {};
}

double TableRow::number_of(std::initializer_list<std::string_view> names, double otherwise) const {
  double value = 0;
  return number(get(names), value) ? value : otherwise;
}

std::string_view table_format(std::string_view header) {
  const std::vector<std::string> names = columns_of(header);
  const bool result = has_one(names, {"us", "kernelname", "kernelname1", "solution_index", "solidx", "bv"});
  if (has_all(names, {"token", "model_dim", "inter_dim", "expert", "topk"}))
    return result ? "aiter fMoE table" : "aiter untuned fMoE list";
  if (has_all(names, {"h", "hg", "v", "use_h0"})) return result ? "aiter GDN table" : "aiter untuned GDN list";
  if (!has_all(names, {"m", "n", "k"})) return "";
  if (has_one(names, {"transa", "transb"})) return "hipBLASLt table";
  if (has_one(names, {"libtype", "kernelid", "splitk", "cu_num"})) return "aiter table";
  return result ? "hipBLASLt table" : "aiter untuned list";
}

bool aiter_row(const TableRow& row, std::string_view file_name, TunedEntry& entry) {
  const std::string_view m = row.get({"m"});
  if (!row.get({"token"}).empty()) aiter_experts(row, entry);
  else if (!row.get({"hg"}).empty()) aiter_gdn(row, entry);
  else if (m.empty() || row.number_of({"m"}, -1) < 0 || row.number_of({"n"}, -1) < 0 || row.number_of({"k"}, -1) < 0)
    return false;
  else
    entry = gemm_entry(row.number_of({"m"}, 0), row.number_of({"n"}, 0), row.number_of({"k"}, 0),
                       std::max(1.0, row.number_of({"b"}, 1)), "", aiter_types(row, file_name));
  return true;
}

void read_table(std::string_view text, std::string_view file_name, TunedFile& file) {
  std::vector<std::string> header;
  bool aiter = false;
  int64_t line_number = 0;
  const auto bad = [&](std::string what) {
    if (file.problems.size() < 100) file.problems.emplace_back(fmt::format("line {}", line_number), std::move(what));
  };
  while (!text.empty()) {
    const size_t end = text.find('\n');
    const std::string_view line = without_index(trimmed(text.substr(0, end)));
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
    ++line_number;
    if (line.empty()) continue;
    if (const std::string_view format = table_format(line); !format.empty()) {
      header = columns_of(line);
      aiter = format.starts_with("aiter");
      continue;
    }
    const std::vector<std::string_view> field = split(line, ',');
    if (header.empty()) {
      if (line_number > 1) bad("there is no header before it");
      continue;  // the first line of an override file is a version
    }
    if (field.size() < header.size()) {
      bad(fmt::format("{} fields; expected {}", field.size(), header.size()));
      continue;
    }
    const TableRow row = {header, field};
    TunedEntry entry;
    if (!(aiter ? aiter_row(row, file_name, entry) : bench_table_row(row, entry))) {
      bad("m, n or k is not a number");
      continue;
    }
    if (file.out.entries.size() >= kMostEntries) continue;
    entry.line = line_number;
    add_result(row, entry);
    if (file.out.gfx.empty()) file.out.gfx = entry.gfx;
    file.out.entries.push_back(std::move(entry));
  }
}

}  // namespace pyflame::tools::profile::detail
