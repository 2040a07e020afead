// Finds the importer of a file, and reads folders.
#include "tools/profile/importer.h"

#include <algorithm>
#include <filesystem>

#include "pyflame/base/error.h"
#include "tools/profile/file_input.h"
#include "tools/profile/host_work.h"
#include "tools/profile/tuned_read.h"

namespace pyflame::tools::profile {

namespace fs = std::filesystem;

namespace {

constexpr size_t kHeadBytes = 64 << 10, kMaxProblems = 200, kMaxFiles = 10'000;
constexpr int kMaxFolderDepth = 4;

// Formats that are recognised only to tell the user what to do instead.
bool is_perfetto(const Source& s) {
  // A protobuf of TracePacket: field 1, length-delimited, and not text.
  return s.head.size() > 2 && s.head[0] == 0x0A && s.head.find('\0') != std::string::npos &&
         s.path.find("pftrace") != std::string::npos;
}
bool is_otf2(const Source& s) { return s.head_starts_with("OTF2") || s.path.ends_with(".otf2"); }
bool is_nsys(const Source& s) { return s.path.ends_with(".nsys-rep") || s.path.ends_with(".qdrep"); }

bool is_jax_json(const Source& s) {
  return s.head_starts_with("{") && s.head.find("\"highres-ticks\"") != std::string::npos &&
         (s.head.find("\"/host:CPU") != std::string::npos || s.head.find("\"/device:") != std::string::npos);
}

template <const char* kInstead>
void refuse(const Source& s, Profile&, const Progress&) {
  PF_FAIL(Value, "report: '{}' is {}", s.path, kInstead);
}
constexpr char kJaxJson[] =
    "the browser's view of a JAX profile, which leaves out what a report needs; hint: give the file .xplane.pb beside "
    "it";
constexpr char kPerfetto[] =
    "a Perfetto trace, which this program cannot read; hint: open it in ui.perfetto.dev, or write the profile again "
    "with rocprofv3 --output-format csv";
constexpr char kOtf2[] =
    "an OTF2 archive, which this program cannot read; hint: write the profile again with rocprofv3 --output-format csv";
constexpr char kNsys[] =
    "an Nsight Systems report, which this program cannot read; hint: record with torch.profiler and "
    "export_chrome_trace instead";

const Importer kImporters[] = {
    {"rocpd database", is_rocpd, read_rocpd},
    {"rocprofv3 JSON", is_rocprof_json, read_rocprof_json},
    {"XPlane profile", is_xplane, read_xplane},
    {"JAX trace", is_jax_json, refuse<kJaxJson>, true},
    {"rocprof JSON", is_rocprof_v1_json, read_rocprof_v1_json},
    {"PyFlame trace", is_own_trace, read_own_trace},
    {"Kineto trace", is_kineto, read_kineto},
    {"rocprofv3 CSV", is_rocprof_csv, read_rocprof_csv},
    {"rocprof CSV", is_rocprof_v1_csv, read_rocprof_v1_csv},
    {"rocprof-compute CSV", is_rocprof_compute_csv, read_rocprof_csv},
    {"Perfetto trace", is_perfetto, refuse<kPerfetto>, true},
    {"OTF2 archive", is_otf2, refuse<kOtf2>, true},
    {"Nsight Systems report", is_nsys, refuse<kNsys>, true},
};

Source peek(const std::string& path) {
  Source s;
  s.path = path;
  FileInput input(path);
  s.head.resize(kHeadBytes);
  s.head.resize(input.read(s.head.data(), s.head.size()));
  std::error_code ec;
  s.size = static_cast<int64_t>(fs::file_size(path, ec));
  return s;
}

void list_folder(const fs::path& folder, int depth, std::vector<std::string>& files) {
  std::error_code ec;
  std::vector<fs::path> entries;
  for (fs::directory_iterator it(folder, ec), end; !ec && it != end; it.increment(ec)) {
    if (files.size() + entries.size() >= kMaxFiles) break;
    entries.push_back(it->path());
  }
  std::sort(entries.begin(), entries.end());
  for (const fs::path& p : entries) {
    if (fs::is_directory(p, ec)) {
      if (depth < kMaxFolderDepth && !fs::is_symlink(p, ec)) list_folder(p, depth + 1, files);
    } else if (fs::is_regular_file(p, ec)) {
      files.push_back(p.string());
    }
  }
}

// Reads one file. If `asked` is true, the user named it, so an unknown format is an error.
void load_file(const std::string& path, bool asked, Profile& profile, const Progress& progress) {
  const Source source = peek(path);
  for (const Importer& importer : importers()) {
    if (!importer.recognise(source)) continue;
    importer.read(source, profile, progress);
    profile.inputs.push_back(path);
    if (std::find(profile.formats.begin(), profile.formats.end(), importer.name) == profile.formats.end())
      profile.formats.emplace_back(importer.name);
    return;
  }
  if (!asked) return;
  PF_CHECK(!source.head.empty(), Value, "report: '{}' is an empty file", path);
  std::string known;
  for (const Importer& importer : importers())
    if (!importer.refuses) known += (known.empty() ? "" : ", ") + std::string(importer.name);
  PF_FAIL(Value, "report: unknown format; got '{}'; expected {}", path, known);
}

}  // namespace

std::span<const Importer> importers() {
  static const std::vector<Importer> all = [] {
    std::vector<Importer> list(std::begin(kImporters), std::end(kImporters));
    list.insert(list.end(), tuned_importers().begin(), tuned_importers().end());
    return list;
  }();
  return all;
}

void Profile::problem(std::string where, std::string what) {
  if (problems.size() < kMaxProblems) problems.push_back({std::move(where), std::move(what)});
}

int32_t Profile::process(const std::string& key) {
  const auto found = std::find(processes.begin(), processes.end(), key);
  if (found != processes.end()) return static_cast<int32_t>(found - processes.begin());
  processes.push_back(key);
  return static_cast<int32_t>(processes.size() - 1);
}

std::string Source::name() const { return fs::path(path).filename().string(); }

std::string Source::first_line() const {
  std::string line = head.substr(0, head.find('\n'));
  if (line.starts_with("\xEF\xBB\xBF")) line.erase(0, 3);
  if (!line.empty() && line.back() == '\r') line.pop_back();
  return line;
}

bool Source::head_starts_with(std::string_view text) const {
  size_t at = head.starts_with("\xEF\xBB\xBF") ? 3 : 0;
  while (at < head.size() && std::string_view(" \t\r\n").find(head[at]) != std::string_view::npos) ++at;
  return std::string_view(head).substr(at).starts_with(text);
}

Profile load(const std::vector<std::string>& paths, const Progress& progress, int rank) {
  Profile profile;
  std::string first_failure;
  const auto attempt = [&](const std::string& path, bool asked) {
    try {
      load_file(path, asked, profile, progress);
    } catch (const Error& e) {
      if (first_failure.empty()) first_failure = e.what();
      profile.problem(path, e.what());
    }
  };
  for (const std::string& path : paths) {
    std::error_code ec;
    PF_CHECK(fs::exists(path, ec), OS,
             "report: the path does not exist; got '{}'; expected a trace, a tuning file, or a folder of them", path);
    if (!fs::is_directory(path, ec)) {
      attempt(path, true);
      continue;
    }
    std::vector<std::string> files;
    list_folder(path, 0, files);
    const size_t before = profile.inputs.size();
    for (const std::string& file : files) attempt(file, false);
    if (profile.inputs.size() == before) profile.problem(path, "the folder has no file of a known format");
  }
  if (profile.inputs.empty()) {
    PF_CHECK(first_failure.empty(), Value, "{}", first_failure);
    PF_FAIL(Value,
            "report: the folder has no file of a known format; got '{}'; expected traces of PyTorch, files of "
            "rocprofv3, or tuning files",
            paths.empty() ? "" : paths[0]);
  }
  if (profile.trace.dropped > 0)
    profile.problem(
        "", fmt::format("{} events beyond the limit of 4 million of a kind were left out", profile.trace.dropped));
  merge_ranks(profile, rank);
  profile.set_up = take_set_up(profile.trace);
  link(profile.trace);
  use_operators_as_work(profile.trace);
  return profile;
}

}  // namespace pyflame::tools::profile
