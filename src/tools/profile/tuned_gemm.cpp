// Matrix products: TunableOp's results, the lines of hipblaslt-bench and rocblas-bench. See tuned_read.h.
#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <optional>
#include <unordered_map>

#include "pyflame/base/gpu_arch.h"
#include "tools/base/text.h"
#include "tools/profile/tuned_read.h"

namespace pyflame::tools::profile {

namespace {

using detail::dtype_of;
using detail::number;

std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> words;
  for (size_t at = 0; at < line.size();) {
    const size_t begin = line.find_first_not_of(" \t", at);
    if (begin == std::string_view::npos) break;
    const size_t end = std::min(line.find_first_of(" \t", begin), line.size());
    words.push_back(line.substr(begin, end - begin));
    at = end;
  }
  return words;
}

// Calls handle(line, number) for each line that is not empty.
template <class F>
void for_lines(std::string_view text, F handle) {
  int64_t line_number = 0;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
    ++line_number;
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    if (line.find_first_not_of(" \t") != std::string_view::npos) handle(line, line_number);
  }
}

void bad(TunedFile& file, int64_t line, std::string what) {
  if (file.problems.size() < 100) file.problems.emplace_back(fmt::format("line {}", line), std::move(what));
}

// --- TunableOp

// "GemmTunableOp_BFloat16_TN" or "ScaledGemmTunableOp_Float8_e4m3fn_Float8_e4m3fn_BFloat16_TN": op, types, layout.
bool parse_signature(std::string_view text, std::vector<std::string>& types, std::string& layout) {
  const size_t first = text.find('_'), last = text.rfind('_');
  if (first == std::string_view::npos || first == last || text.find("TunableOp") == std::string_view::npos)
    return false;
  layout = text.substr(last + 1);
  if (layout.size() != 2 || layout.find_first_not_of("NT") != std::string::npos) return false;
  std::string_view rest = text.substr(first + 1, last - first - 1);
  // Names contain underscores: a type is the longest sequence of parts that is a known type.
  while (!rest.empty()) {
    size_t length = rest.size();
    while (length > 0 && dtype_of(rest.substr(0, length)).bytes == 0) {
      const size_t cut = rest.substr(0, length).rfind('_');
      length = cut == std::string_view::npos ? 0 : cut;
    }
    if (length == 0) return false;
    types.emplace_back(rest.substr(0, length));
    rest = length < rest.size() ? rest.substr(length + 1) : std::string_view();
  }
  return !types.empty();
}

// "tn_M_N_K[_B_batch][_ld_a_b_c][_rw_x_bias_y]"; in PyTorch 2.3 "nt_M_N_K".
bool parse_parameters(std::string_view text, double (&mnk)[3], double& batch) {
  const std::vector<std::string_view> part = split(text, '_');
  if (part.size() < 4 || part[0].size() != 2) return false;
  for (size_t i = 0; i < 3; ++i)
    if (!number(part[1 + i], mnk[i]) || mnk[i] < 0) return false;
  for (size_t i = 4; i + 1 < part.size(); ++i)
    if (part[i] == "B") return number(part[i + 1], batch);
  return true;
}

}  // namespace

void detail::read_tunableop(std::string_view text, TunedFile& file) {
  for_lines(text, [&](std::string_view line, int64_t line_number) {
    const std::vector<std::string_view> field = split(line, ',');
    if (field[0] == "Validator") {
      if (field.size() < 3) return bad(file, line_number, "a Validator line without a value");
      file.out.validators.emplace_back(field[1], line.substr(static_cast<size_t>(field[2].data() - line.data())));
      if (field[1] == "GCN_ARCH_NAME") file.out.gfx = split(field[2], ':')[0];
      return;
    }
    std::vector<std::string> types;
    std::string layout;
    double mnk[3] = {}, batch = 1, ms = 0;
    if (field.size() < 2 || field.size() > 5 || !parse_signature(field[0], types, layout) ||
        !parse_parameters(field[1], mnk, batch))
      return bad(file, line_number, "not a row of TunableOp; it was left out");
    if (file.out.entries.size() >= kMostEntries) return;
    TunedEntry row = detail::gemm_entry(mnk[0], mnk[1], mnk[2], batch, layout, types);
    if (field[0].rfind("GemmAndBias", 0) == 0) row.problem += ", bias";
    row.line = line_number;
    if (field.size() > 2) row.choice = field[2];
    if (field.size() > 3) {
      // 0 and inf stand for kernels that were not measured.
      if (number(field[3], ms) && ms >= 0) row.us = ms > 0 ? ms * 1000 : -1;
      else if (field[3] != "inf") bad(file, line_number, "the time is not a number");
    }
    file.out.entries.push_back(std::move(row));
  });
  // PyTorch compares the Validator lines with its own versions. A file without them was truncated or edited.
  if (file.out.validators.empty() && !file.out.entries.empty() && !file.out.entries[0].choice.empty())
    file.problems.emplace_back("file", "there are no Validator lines, so PyTorch will not accept this file");
}

namespace {

// --- bench programs

double option(const std::unordered_map<std::string_view, std::string_view>& options,
              std::initializer_list<std::string_view> names, double fallback) {
  double value = fallback;
  for (const std::string_view name : names)
    if (const auto it = options.find(name); it != options.end() && number(it->second, value)) return value;
  return fallback;
}

std::string word(const std::unordered_map<std::string_view, std::string_view>& options,
                 std::initializer_list<std::string_view> names, std::string_view fallback) {
  for (const std::string_view name : names)
    if (const auto it = options.find(name); it != options.end()) return std::string(it->second);
  return std::string(fallback);
}

std::optional<TunedEntry> bench_row(const std::vector<std::string_view>& words) {
  TunedEntry conv;
  if (detail::read_miopen_driver(words, conv)) return conv;
  size_t at = 0;
  while (at < words.size() && words[at].find("hipblaslt-bench") == std::string_view::npos &&
         words[at].find("rocblas-bench") == std::string_view::npos)
    ++at;
  if (at == words.size()) return std::nullopt;
  const bool rocblas = words[at].find("rocblas-bench") != std::string_view::npos;
  std::unordered_map<std::string_view, std::string_view> options;
  for (size_t i = at + 1; i < words.size(); ++i)
    if (words[i].size() > 1 && words[i][0] == '-' && !std::isdigit(static_cast<unsigned char>(words[i][1])))
      options[words[i]] = i + 1 < words.size() ? words[i + 1] : std::string_view();
  if (rocblas && word(options, {"-f", "--function"}, "").find("gemm") == std::string::npos) return std::nullopt;
  const double m = option(options, {"-m", "--sizem"}, 0), n = option(options, {"-n", "--sizen"}, 0),
               k = option(options, {"-k", "--sizek"}, 0);
  if (m <= 0 || n <= 0 || k <= 0) return std::nullopt;
  const std::string layout =
      word(options, {"--transA", "--transposeA"}, "N") + word(options, {"--transB", "--transposeB"}, "N");
  const std::string plain = word(options, {"-r", "--precision"}, "f32_r");
  TunedEntry row = detail::gemm_entry(m, n, k, std::max(1.0, option(options, {"--batch_count"}, 1)), layout,
                                      {word(options, {"--a_type"}, plain), word(options, {"--b_type"}, plain),
                                       word(options, {"--d_type", "--c_type"}, plain)});
  if (options.count("--bias_vector") > 0) row.problem += ", bias";
  const std::string activation = word(options, {"--activation_type"}, "none");
  if (activation != "none") row.problem += ", " + activation;
  const double solution = option(options, {"--solution_index"}, 0);
  if (solution != 0) row.choice = fmt::format("solution {}", solution);
  return row;
}

}  // namespace

void detail::read_bench_lines(std::string_view text, TunedFile& file) {
  std::map<std::string, size_t> known;  // the same problem is logged at each call, so calls are counted
  int64_t skipped = 0;
  for_lines(text, [&](std::string_view line, int64_t line_number) {
    // rocBLAS' profile: "- { rocblas_function: "rocblas_gemm_ex", ..., call_count: 12 }" becomes the words of a command line.
    std::string rewritten;
    double calls = 1;
    if (const size_t brace = line.find('{');
        brace != std::string_view::npos && line.find("rocblas_function") != std::string_view::npos) {
      rewritten = "rocblas-bench";
      for (std::string_view pair : split(line.substr(brace + 1, line.rfind('}') - brace - 1), ',')) {
        const size_t colon = pair.find(':');
        if (colon == std::string_view::npos) continue;
        const auto trimmed = [](std::string_view s) {
          while (!s.empty() && std::string_view(" \"'").find(s.front()) != std::string_view::npos) s.remove_prefix(1);
          while (!s.empty() && std::string_view(" \"'").find(s.back()) != std::string_view::npos) s.remove_suffix(1);
          return s;
        };
        const std::string key = std::string(trimmed(pair.substr(0, colon)));
        const std::string_view value = trimmed(pair.substr(colon + 1));
        if (key == "call_count") number(value, calls);
        const std::string name = key == "rocblas_function"                ? "-f"
                                 : key == "M" || key == "N" || key == "K" ? "-" + lower(key)
                                                                          : "--" + key;
        rewritten += fmt::format(" {} {}", name, value);
      }
      line = rewritten;
    }
    std::optional<TunedEntry> row = bench_row(words_of(line));
    if (!row) return void(++skipped);
    row->line = line_number;
    row->calls = static_cast<int64_t>(std::clamp(calls, 1.0, 1e15));
    const auto [it, fresh] =
        known.emplace(row->problem + "|" + row->dtype + "|" + row->choice, file.out.entries.size());
    if (!fresh) file.out.entries[it->second].calls += row->calls;
    else if (file.out.entries.size() < kMostEntries) file.out.entries.push_back(std::move(*row));
    else known.erase(it);
  });
  if (skipped > 0)
    file.problems.emplace_back(
        "file", fmt::format("{} lines are not bench commands of matrix products or convolutions", skipped));
}

namespace detail {

DtypeFact dtype_of(std::string_view any) {
  static const std::unordered_map<std::string, DtypeFact> facts = {{"float", {"f32", 4}},
                                                                   {"f32_r", {"f32", 4}},
                                                                   {"fp32", {"f32", 4}},
                                                                   {"torch.float32", {"f32", 4}},
                                                                   {"s", {"f32", 4}},
                                                                   {"double", {"f64", 8}},
                                                                   {"f64_r", {"f64", 8}},
                                                                   {"fp64", {"f64", 8}},
                                                                   {"d", {"f64", 8}},
                                                                   {"half", {"f16", 2}},
                                                                   {"f16_r", {"f16", 2}},
                                                                   {"fp16", {"f16", 2}},
                                                                   {"h", {"f16", 2}},
                                                                   {"torch.float16", {"f16", 2}},
                                                                   {"bfloat16", {"bf16", 2}},
                                                                   {"bf16_r", {"bf16", 2}},
                                                                   {"bf16", {"bf16", 2}},
                                                                   {"bfp16", {"bf16", 2}},
                                                                   {"torch.bfloat16", {"bf16", 2}},
                                                                   {"i8_r", {"i8", 1}},
                                                                   {"int8", {"i8", 1}},
                                                                   {"torch.int8", {"i8", 1}},
                                                                   {"i32_r", {"i32", 4}},
                                                                   {"int32", {"i32", 4}},
                                                                   {"f8_r", {"fp8 e4m3", 1}},
                                                                   {"float8_e4m3fn", {"fp8 e4m3", 1}},
                                                                   {"torch.float8_e4m3fn", {"fp8 e4m3", 1}},
                                                                   {"bf8_r", {"fp8 e5m2", 1}},
                                                                   {"float8_e5m2", {"fp8 e5m2", 1}},
                                                                   {"torch.float8_e5m2", {"fp8 e5m2", 1}},
                                                                   {"f8_fnuz_r", {"fp8 e4m3fnuz", 1}},
                                                                   {"float8_e4m3fnuz", {"fp8 e4m3fnuz", 1}},
                                                                   {"torch.float8_e4m3fnuz", {"fp8 e4m3fnuz", 1}},
                                                                   {"bf8_fnuz_r", {"fp8 e5m2fnuz", 1}},
                                                                   {"float8_e5m2fnuz", {"fp8 e5m2fnuz", 1}},
                                                                   {"fp8", {"fp8", 1}},
                                                                   {"bfp8", {"fp8 e5m2", 1}},
                                                                   {"c10::complex<float>", {"c64", 8}},
                                                                   {"f32_c", {"c64", 8}},
                                                                   {"c10::complex<double>", {"c128", 16}},
                                                                   {"f64_c", {"c128", 16}},
                                                                   {"tf32", {"tf32", 4}},
                                                                   {"a8w8", {"a8w8", 1}},
                                                                   {"fp4", {"fp4", 0.5}},
                                                                   {"torch.int4", {"i4", 0.5}},
                                                                   {"fp4x2", {"fp4", 0.5}},
                                                                   {"torch.float4_e2m1fn_x2", {"fp4", 0.5}}};
  const auto it = facts.find(lower(any));
  return it == facts.end() ? DtypeFact{"", 0} : it->second;
}

bool number(std::string_view text, double& value) {
  if (text.empty() || text.size() > 40 || text.find_first_not_of("0123456789.eE+-") != std::string_view::npos)
    return false;
  const std::string copy(text);
  char* end = nullptr;
  const double parsed = std::strtod(copy.c_str(), &end);
  if (end != copy.c_str() + copy.size() || !(parsed > -1e300 && parsed < 1e300)) return false;
  value = parsed;
  return true;
}

TunedEntry gemm_entry(double m, double n, double k, double batch, std::string_view layout,
                      const std::vector<std::string>& types) {
  TunedEntry row;
  row.kind = "gemm";
  row.problem = fmt::format("{}x{}x{}{}{}{}", m, n, k, layout.empty() ? "" : " ", layout,
                            batch > 1 ? fmt::format(", batch {}", batch) : "");
  const auto type = [&](size_t i) {
    return i < types.size() ? std::string_view(types[i]) : types.empty() ? std::string_view() : types.back();
  };
  const DtypeFact a = dtype_of(type(0)), b = dtype_of(type(1)), d = dtype_of(type(2));
  const auto name = [&](const DtypeFact& fact, size_t i) {
    return fact.bytes > 0 ? std::string(fact.name) : std::string(type(i));
  };
  row.dtype = name(a, 0);
  if (name(b, 1) != row.dtype) row.dtype += " x " + name(b, 1);
  if (name(d, 2) != name(a, 0)) row.dtype += " -> " + name(d, 2);
  row.problem = fmt::format("GEMM {} {}", row.problem, row.dtype);
  row.flops = 2 * m * n * k * batch;
  if (a.bytes > 0 && b.bytes > 0 && d.bytes > 0)
    row.bytes = batch * (m * k * a.bytes + k * n * b.bytes + m * n * d.bytes);
  return row;
}

}  // namespace detail

}  // namespace pyflame::tools::profile
