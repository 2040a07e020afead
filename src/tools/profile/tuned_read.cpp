// Recognises the format of a tuning file, and imports it. See tuned_read.h.
#include <fmt/core.h>

#include <algorithm>

#include "tools/profile/file_input.h"
#include "tools/profile/tuned_read.h"

namespace pyflame::tools::profile {

std::string tuned_format(std::string_view head, std::string_view file_name) {
  const std::string_view line = head.substr(0, std::min(head.find('\n'), head.size()));
  if (line.rfind("Validator,", 0) == 0 || line.find("TunableOp_") != std::string_view::npos) return "TunableOp results";
  if (head.find("hipblaslt-bench ") != std::string_view::npos ||
      head.find("rocblas-bench ") != std::string_view::npos ||
      head.find("MIOpenDriver conv") != std::string_view::npos ||
      head.find("rocblas_function:") != std::string_view::npos)
    return "bench log";
  if (line.find('{') == std::string_view::npos) {
    std::string_view second = head.substr(std::min(line.size() + 1, head.size()));
    second = second.substr(0, second.find('\n'));
    for (const std::string_view header : {line, second})
      if (const std::string_view format = detail::table_format(header); !format.empty()) return std::string(format);
  }
  const auto named = [&](const char* suffix) { return file_name.find(suffix) != std::string_view::npos; };
  const bool find_values = line.find(",miopenConv") != std::string_view::npos;
  const size_t equals = line.find('=');
  const bool key = equals != std::string_view::npos &&
                   std::count(line.begin(), line.begin() + static_cast<std::ptrdiff_t>(equals), '-') >= 13 &&
                   line.find(':', equals) != std::string_view::npos;
  if (key) return find_values || named("fdb") ? "MIOpen find-db" : "MIOpen perf-db";
  return "";
}

TunedFile read_tuned_text(std::string_view format, std::string_view text, std::string_view file_name) {
  TunedFile file;
  if (format == "TunableOp results") detail::read_tunableop(text, file);
  else if (format == "bench log") detail::read_bench_lines(text, file);
  else if (format == "MIOpen find-db" || format == "MIOpen perf-db") {
    std::tie(file.out.gfx, file.out.cus) = miopen_device(file_name);
    detail::read_miopen_text(text, format == "MIOpen find-db", file);
  } else detail::read_table(text, file_name, file);
  if (file.out.entries.size() >= kMostEntries)
    file.problems.emplace_back("file", fmt::format("only the first {} rows were read", kMostEntries));
  return file;
}

namespace {

constexpr size_t kMostBytes = size_t{256} << 20;

template <int kFormat>
struct Tuned {
  static constexpr const char* kNames[] = {
      "TunableOp results",       "bench log",       "hipBLASLt table",       "aiter table",
      "MIOpen find-db",          "MIOpen perf-db",  "aiter untuned list",    "aiter fMoE table",
      "aiter untuned fMoE list", "aiter GDN table", "aiter untuned GDN list"};
  static bool recognise(const Source& source) { return tuned_format(source.head, source.name()) == kNames[kFormat]; }
  static void read(const Source& source, Profile& profile, const Progress&) {
    FileInput input(source.path);
    std::string text;
    for (size_t got = 1; got > 0 && text.size() < kMostBytes;) {
      const size_t before = text.size();
      text.resize(before + (size_t{1} << 20));
      got = input.read(text.data() + before, size_t{1} << 20);
      text.resize(before + got);
    }
    if (!input.error().empty()) profile.problem(source.path, input.error());
    if (text.size() >= kMostBytes) profile.problem(source.path, "only its first 256 MiB were read");
    take(read_tuned_text(kNames[kFormat], text, source.name()), source, profile);
  }
  static void take(TunedFile file, const Source& source, Profile& profile) {
    TunedFiles& all = profile.tuned;
    for (TunedEntry& entry : file.out.entries) {
      entry.file = source.path;
      all.entries.push_back(std::move(entry));
    }
    // If files of different machines have different keys, the first one is kept and the other is reported.
    for (auto& [key, value] : file.out.validators) {
      const auto same = std::find_if(all.validators.begin(), all.validators.end(),
                                     [&k = key](const auto& v) { return v.first == k; });
      if (same == all.validators.end()) all.validators.emplace_back(key, value);
      else if (same->second != value)
        profile.problem(source.path,
                        fmt::format("its {} is {}, but that of an earlier file is {}: their entries are not comparable",
                                    key, value, same->second));
    }
    if (all.gfx.empty()) all.gfx = file.out.gfx, all.cus = file.out.cus;
    for (auto& [where, what] : file.problems)
      profile.problem(fmt::format("{}, {}", source.path, where), std::move(what));
  }
};

bool is_miopen_sqlite(const Source& source) {
  // The schema is on the first page of the file, as text.
  return source.head.rfind("SQLite format 3", 0) == 0 && source.head.find("perf_db") != std::string::npos;
}

void read_miopen(const Source& source, Profile& profile, const Progress&) {
  Tuned<0>::take(read_miopen_sqlite(source.path), source, profile);
}

const Importer kTunedImporters[] = {
    {Tuned<0>::kNames[0], Tuned<0>::recognise, Tuned<0>::read},
    {Tuned<1>::kNames[1], Tuned<1>::recognise, Tuned<1>::read},
    {Tuned<2>::kNames[2], Tuned<2>::recognise, Tuned<2>::read},
    {Tuned<3>::kNames[3], Tuned<3>::recognise, Tuned<3>::read},
    {Tuned<4>::kNames[4], Tuned<4>::recognise, Tuned<4>::read},
    {Tuned<5>::kNames[5], Tuned<5>::recognise, Tuned<5>::read},
    {Tuned<6>::kNames[6], Tuned<6>::recognise, Tuned<6>::read},
    {Tuned<7>::kNames[7], Tuned<7>::recognise, Tuned<7>::read},
    {Tuned<8>::kNames[8], Tuned<8>::recognise, Tuned<8>::read},
    {Tuned<9>::kNames[9], Tuned<9>::recognise, Tuned<9>::read},
    {Tuned<10>::kNames[10], Tuned<10>::recognise, Tuned<10>::read},
    {"MIOpen perf-db (SQLite)", is_miopen_sqlite, read_miopen},
};

}  // namespace

std::span<const Importer> tuned_importers() { return kTunedImporters; }

}  // namespace pyflame::tools::profile
