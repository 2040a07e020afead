// MIOpen: find-db and perf-db, as text and SQLite, and the driver lines that it logs. See tuned_read.h.
#include <fmt/core.h>

#include <algorithm>
#include <cctype>
#include <memory>

#include "pyflame/base/error.h"
#include "pyflame/base/gpu_arch.h"
#include "tools/base/sqlite.h"
#include "tools/base/text.h"
#include "tools/profile/tuned_read.h"

namespace pyflame::tools::profile {

namespace {

using detail::number;

// The sizes of the forward convolution, also if the direction is backward.
struct Convolution {
  double n = 0, c = 0, k = 0, groups = 1;
  std::vector<double> in, out, filter;  // spatial, outermost first
  std::string layout, dtype;
  char direction = 'F';
  std::string extra;  // padding, stride, dilation, as text
};

double product(const std::vector<double>& v) {
  double p = 1;
  for (const double x : v) p *= x;
  return p;
}

std::string joined(const std::vector<double>& v) {
  std::string text;
  for (const double x : v) text += fmt::format("{}{}", text.empty() ? "" : "x", x);
  return text;
}

TunedEntry row_of(const Convolution& conv) {
  TunedEntry row;
  row.kind = "conv";
  const detail::DtypeFact type = detail::dtype_of(conv.dtype);
  row.dtype = type.bytes > 0 ? std::string(type.name) : conv.dtype;
  const char* direction = conv.direction == 'F'   ? "forward"
                          : conv.direction == 'B' ? "backward data"
                                                  : "backward weights";
  row.problem =
      fmt::format("conv {} {}x{}x{} -> {}, filter {}{}{}{}", direction, conv.n, conv.c, joined(conv.in), conv.k,
                  joined(conv.filter), conv.extra, conv.groups > 1 ? fmt::format(", {} groups", conv.groups) : "",
                  conv.layout.empty() ? "" : ", " + conv.layout);
  const double groups = std::max(1.0, conv.groups);
  row.flops = 2 * conv.n * conv.k * product(conv.out) * conv.c * product(conv.filter) / groups;
  row.bytes = type.bytes * (conv.n * conv.c * product(conv.in) + conv.n * conv.k * product(conv.out) +
                            conv.k * conv.c * product(conv.filter) / groups);
  return row;
}

bool dimensions(std::string_view text, std::vector<double>& out) {
  out.clear();
  for (const std::string_view part : split(text, 'x')) {
    double value = 0;
    if (!number(part, value)) return false;
    out.push_back(value);
  }
  return true;
}

// InC-[InD-]InH-InW-FhxFw-OutC-[OutD-]OutH-OutW-N-pads-strides-dilations-bias-Layout[-WLayout-OutLayout]-DType-Dir[_g<G>]...
// For a backward problem, "In" is the gradient of the output, because MIOpen calls what it reads the input.
bool parse_key(std::string_view key, Convolution& conv) {
  const std::vector<std::string_view> part = split(key, '-');
  size_t spatial = 0;
  while (1 + spatial < part.size() && part[1 + spatial].find('x') == std::string_view::npos) ++spatial;
  if (spatial != 2 && spatial != 3) return false;
  if (part.size() < 2 * spatial + 10) return false;
  size_t at = 0;
  const auto take = [&](double& value) { return number(part[at++], value); };
  std::vector<double> in(spatial), out(spatial);
  double in_channels = 0, out_channels = 0, bias = 0;
  if (!take(in_channels)) return false;
  for (double& d : in)
    if (!take(d)) return false;
  if (!dimensions(part[at++], conv.filter) || conv.filter.size() != spatial) return false;
  if (!take(out_channels)) return false;
  for (double& d : out)
    if (!take(d)) return false;
  if (!take(conv.n)) return false;
  const std::string_view pads = part[at++], strides = part[at++], dilations = part[at++];
  if (!take(bias)) return false;
  conv.layout = part[at++];
  // Three layouts are written if they differ.
  if (part.size() >= at + 4) at += 2;
  if (part.size() < at + 2) return false;
  conv.dtype = part[at++];
  const std::string_view tail = part[at];
  if (tail.empty() || std::string_view("FBW").find(tail[0]) == std::string_view::npos) return false;
  conv.direction = tail[0];
  if (const size_t g = tail.find("_g"); g != std::string_view::npos) {
    size_t end = g + 2;
    while (end < tail.size() && std::isdigit(static_cast<unsigned char>(tail[end]))) ++end;
    if (!number(tail.substr(g + 2, end - g - 2), conv.groups)) return false;
  }
  const bool forward = conv.direction == 'F';
  conv.c = forward ? in_channels : out_channels;
  conv.k = forward ? out_channels : in_channels;
  conv.in = forward ? in : out;
  conv.out = forward ? out : in;
  conv.extra = fmt::format(", pad {}, stride {}", pads, strides);
  if (dilations.find_first_not_of("1x") != std::string_view::npos)
    conv.extra += fmt::format(", dilation {}", dilations);
  return true;
}

// "Solver:0.045,0,miopenConvolutionFwdAlgoDirect"; the form before 2.0 had algorithm and solver swapped: "algo:Solver,0.045,0,algo,_".
bool parse_found(std::string_view id, std::string_view values, std::pair<std::string, double>& found) {
  const std::vector<std::string_view> value = split(values, ',');
  double ms = 0;
  if (!value.empty() && number(value[0], ms)) {
    found = {std::string(id), ms * 1000};
    return ms >= 0;
  }
  if (value.size() >= 2 && number(value[1], ms)) {
    found = {std::string(value[0]), ms * 1000};
    return ms >= 0;
  }
  return false;
}

}  // namespace

std::pair<std::string, int> miopen_device(std::string_view file_name) {
  if (const size_t slash = file_name.rfind('/'); slash != std::string_view::npos) file_name.remove_prefix(slash + 1);
  file_name = file_name.substr(0, file_name.find('.'));
  if (file_name.rfind("gfx", 0) != 0) return {};
  // The longest known architecture at the start of the name: gfx1101 before gfx110.
  std::string_view gfx;
  for (const GpuArch& arch : gpu_archs())
    if (arch.amd && file_name.rfind(arch.gfx, 0) == 0 && arch.gfx.size() > gfx.size()) gfx = arch.gfx;
  if (gfx.empty()) return {};
  std::string_view rest = file_name.substr(gfx.size());
  for (const std::string_view feature : {"_nosramecc", "_sramecc", "_xnack"})
    if (rest.rfind(feature, 0) == 0) rest.remove_prefix(feature.size());
  const bool decimal = !rest.empty() && rest[0] == '_';
  if (decimal) rest.remove_prefix(1);
  rest = rest.substr(0, rest.find('_'));  // in a user's perf-db, the version of the format follows
  int cus = 0;
  for (const char c : rest) {
    const int digit = std::isdigit(static_cast<unsigned char>(c)) ? c - '0'
                      : !decimal && c >= 'a' && c <= 'f'          ? c - 'a' + 10
                                                                  : -1;
    if (digit < 0 || cus > 10000) return {std::string(gfx), 0};
    cus = cus * (decimal ? 10 : 16) + digit;
  }
  // On gfx10 and later HIP counts work-group processors, which have two CUs each.
  const GpuArch* arch = find_gpu_arch(gfx);
  if (decimal && arch != nullptr && arch->has_wgp) cus *= 2;
  return {std::string(gfx), cus};
}

namespace detail {

void read_miopen_text(std::string_view text, bool find_db, TunedFile& file) {
  int64_t line_number = 0;
  size_t dropped = 0;
  for (std::string_view rest = text; !rest.empty();) {
    const size_t end = rest.find('\n');
    std::string_view line = rest.substr(0, end);
    rest = end == std::string_view::npos ? std::string_view() : rest.substr(end + 1);
    ++line_number;
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    if (line.empty()) continue;
    const auto bad = [&](const char* what) {
      if (file.problems.size() < 100) file.problems.emplace_back(fmt::format("line {}", line_number), what);
    };
    const size_t equals = line.find('=');
    Convolution conv;
    if (equals == std::string_view::npos || !parse_key(line.substr(0, equals), conv)) {
      bad("not a key of a convolution; the line was left out");
      continue;
    }
    if (file.out.entries.size() >= kMostEntries) {
      ++dropped;
      continue;
    }
    TunedEntry row = row_of(conv);
    row.line = line_number;
    for (const std::string_view entry : split(line.substr(equals + 1), ';')) {
      if (entry.empty()) continue;
      const size_t colon = entry.find(':');
      if (colon == std::string_view::npos) {
        bad("a solver without values");
        continue;
      }
      std::pair<std::string, double> found{entry.substr(0, colon), 0.0};
      if (find_db && !parse_found(entry.substr(0, colon), entry.substr(colon + 1), found)) {
        bad("a solver whose time is not a number");
        continue;
      }
      if (!find_db) found.first += fmt::format(" ({})", entry.substr(colon + 1));
      row.others.push_back(std::move(found));
    }
    if (row.others.empty()) {
      bad("no solver");
      continue;
    }
    if (find_db) {
      std::stable_sort(row.others.begin(), row.others.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
      row.us = row.others.front().second;
    }
    row.choice = row.others.front().first;
    row.others.erase(row.others.begin());
    file.out.entries.push_back(std::move(row));
  }
  if (dropped > 0) file.problems.emplace_back("file", fmt::format("{} further rows were not read", dropped));
}

// conv[fp16|bfp16|int8] -n 32 -c 64 -H 56 -W 56 -k 256 -y 1 -x 1 -p 0 -q 0 -u 1 -v 1 -l 1 -j 1 -m conv -g 1 -F 1 -t 1
bool read_miopen_driver(const std::vector<std::string_view>& words, TunedEntry& row) {
  size_t at = 0;
  while (at < words.size() && words[at].find("MIOpenDriver") == std::string_view::npos) ++at;
  if (at + 1 >= words.size() || words[at + 1].rfind("conv", 0) != 0) return false;
  Convolution conv;
  const std::string_view suffix = words[at + 1].substr(4);
  conv.dtype = suffix.empty() ? "FP32" : suffix == "bfp16" ? "BF16" : std::string(suffix);
  double n = 0, c = 0, k = 0, h = 1, w = 1, y = 1, x = 1, p = 0, q = 0, u = 1, v = 1, l = 1, j = 1, g = 1,
         direction = 1;
  const std::pair<std::string_view, double*> options[] = {
      {"-n", &n}, {"-c", &c}, {"-k", &k}, {"-H", &h}, {"-W", &w}, {"-y", &y}, {"-x", &x},        {"-p", &p},
      {"-q", &q}, {"-u", &u}, {"-v", &v}, {"-l", &l}, {"-j", &j}, {"-g", &g}, {"-F", &direction}};
  for (size_t i = at + 2; i + 1 < words.size(); ++i)
    for (const auto& [name, value] : options)
      if (words[i] == name && !number(words[i + 1], *value)) return false;
  if (n <= 0 || c <= 0 || k <= 0 || u <= 0 || v <= 0) return false;
  const auto length = [](double size, double pad, double dilation, double filter, double stride) {
    return std::max(
        0.0, static_cast<double>(static_cast<int64_t>((size + 2 * pad - dilation * (filter - 1) - 1) / stride)) + 1);
  };
  for (const double value : {n, c, k, h, w, y, x, p, q, u, v, l, j})
    if (value < 0 || value > 1e9) return false;
  conv.n = n, conv.c = c, conv.k = k, conv.groups = std::max(1.0, g);
  conv.in = {h, w}, conv.filter = {y, x};
  conv.out = {length(h, p, l, y, u), length(w, q, j, x, v)};
  conv.direction = direction == 1 ? 'F' : direction == 2 ? 'B' : 'W';
  conv.extra = fmt::format(", pad {}x{}, stride {}x{}", p, q, u, v);
  row = row_of(conv);
  return true;
}

}  // namespace detail

TunedFile read_miopen_sqlite(const std::string& path) {
  ForeignDatabase db(path, 1 << 20);
  PF_CHECK(db.problem().empty(), Value, "report: '{}' is not a readable SQLite database: {}", path, db.problem());
  const char* sql =
      "SELECT c.spatial_dim, c.in_channels, c.in_d, c.in_h, c.in_w, c.fil_d, c.fil_h, c.fil_w, c.out_channels, "
      "c.batchsize, c.pad_h, "
      "c.pad_w, c.conv_stride_h, c.conv_stride_w, c.dilation_h, c.dilation_w, c.group_count, c.layout, c.data_type, "
      "c.direction, "
      "p.solver, p.params, p.id FROM perf_db p JOIN config c ON p.config = c.id ORDER BY p.id";
  const SqliteStatement statement = db.prepare(sql);
  sqlite3_stmt* const prepared = statement.get();
  PF_CHECK(prepared != nullptr, Value,
           "report: '{}' is not a MIOpen performance database: {}; expected its tables config and perf_db", path,
           db.error());
  TunedFile file;
  std::tie(file.out.gfx, file.out.cus) = miopen_device(path);
  int step = 0;
  while ((step = db.step(prepared)) == SQLITE_ROW && file.out.entries.size() < kMostEntries) {
    const auto value = [&](int column) { return sqlite3_column_double(prepared, column); };
    const auto words = [&](int column) {
      const unsigned char* text = sqlite3_column_text(prepared, column);
      return std::string(text == nullptr ? "" : reinterpret_cast<const char*>(text));
    };
    Convolution conv;
    const bool three = value(0) == 3;
    conv.n = value(9), conv.groups = std::max(1.0, value(16));
    conv.layout = words(17), conv.dtype = words(18);
    const std::string direction = words(19);
    conv.direction = direction.empty() ? 'F' : direction[0];
    const double in_channels = value(1), out_channels = value(8);
    std::vector<double> in = {value(3), value(4)}, filter = {value(6), value(7)};
    std::vector<double> other;  // the sizes that the table lacks follow from the others
    const double pad[] = {value(10), value(11)}, stride[] = {value(12), value(13)}, dilation[] = {value(14), value(15)};
    for (size_t i = 0; i < 2; ++i) {
      const double reach = dilation[i] * (filter[i] - 1);
      other.push_back(conv.direction == 'F' ? (in[i] + 2 * pad[i] - reach - 1) / std::max(1.0, stride[i]) + 1
                                            : (in[i] - 1) * stride[i] - 2 * pad[i] + reach + 1);
      other.back() = static_cast<double>(static_cast<int64_t>(std::clamp(other.back(), 0.0, 1e9)));
    }
    const bool forward = conv.direction == 'F';
    conv.c = forward ? in_channels : out_channels;
    conv.k = forward ? out_channels : in_channels;
    conv.in = forward ? in : other;
    conv.out = forward ? other : in;
    conv.filter = filter;
    conv.extra = fmt::format(", pad {}x{}, stride {}x{}", pad[0], pad[1], stride[0], stride[1]);
    TunedEntry row = row_of(conv);
    if (three) {
      // The table has no padding and stride of the depth, so the FLOPs are unknown.
      row.problem = fmt::format("{} (3-D: depth {}, filter depth {})", row.problem, value(2), value(5));
      row.flops = row.bytes = -1;
    }
    row.choice = fmt::format("{} ({})", words(20), words(21));
    row.line = sqlite3_column_int64(prepared, 22);
    file.out.entries.push_back(std::move(row));
  }
  if (step != SQLITE_DONE && step != SQLITE_ROW)
    file.problems.emplace_back("database",
                               fmt::format("reading stopped after {} rows: {}", file.out.entries.size(), db.error()));
  if (step == SQLITE_ROW) file.problems.emplace_back("database", "there are more rows than are read");
  return file;
}

}  // namespace pyflame::tools::profile
