// Turns files into a profile. There is a table of importers; each recognises its format by content, never by the file's
// name. For a folder, its files are read. A file that cannot be read becomes a line under problems, so the rest is
// still reported.
#pragma once
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tools/profile/ranks.h"
#include "tools/profile/set_up.h"
#include "tools/profile/trace.h"
#include "tools/profile/tuned.h"

namespace pyflame::tools::profile {

struct Problem {
  std::string where, what;
};

struct Profile {
  std::vector<std::string> inputs;   // files read
  std::vector<std::string> formats;  // of the importers that read them, each once
  Trace trace;
  TunedFiles tuned;
  Ranks ranks;
  std::vector<Problem> problems;
  std::vector<std::string> processes;  // index = GpuEvent::process: file name prefixes or process ids
  std::vector<SetUp> set_up;           // time that the trace's events do not have

  void problem(std::string where, std::string what);
  int32_t process(const std::string& key);
};

struct Source {
  std::string path;
  std::string head;  // the first 64 KiB, decompressed if it is gzip
  int64_t size = 0;  // of the file

  std::string name() const;                            // last part of the path
  std::string first_line() const;                      // of head, without the end of line
  bool head_starts_with(std::string_view text) const;  // after blanks and a byte order mark
};

// Called from time to time with the file and the fraction of it that is done.
using Progress = std::function<void(const std::string& path, double fraction)>;

struct Importer {
  const char* name;  // the name of the format in the report
  bool (*recognise)(const Source& source);
  void (*read)(const Source& source, Profile& profile, const Progress& progress);
  bool refuses = false;  // recognised only to say what to do instead
};

// In the order in which they are asked. A known format that cannot be read has a reader that fails and says what to do
// instead.
std::span<const Importer> importers();

// Reads files and folders. Fails if a path does not exist, or if nothing could be read. Of several ranks the profile
// has the events of one: `rank`, or if it is negative, that which merge_ranks() chooses.
Profile load(const std::vector<std::string>& paths, const Progress& progress = {}, int rank = -1);

// Each importer is in the file of its format.
bool is_kineto(const Source& source);
void read_kineto(const Source& source, Profile& profile, const Progress& progress);
bool is_own_trace(const Source& source);
void read_own_trace(const Source& source, Profile& profile, const Progress& progress);
bool is_rocprof_csv(const Source& source);
void read_rocprof_csv(const Source& source, Profile& profile, const Progress& progress);
bool is_rocprof_v1_csv(const Source& source);
void read_rocprof_v1_csv(const Source& source, Profile& profile, const Progress& progress);
bool is_rocprof_compute_csv(const Source& source);
bool is_rocprof_v1_json(const Source& source);
void read_rocprof_v1_json(const Source& source, Profile& profile, const Progress& progress);
bool is_xplane(const Source& source);
void read_xplane(const Source& source, Profile& profile, const Progress& progress);
bool is_rocprof_json(const Source& source);
void read_rocprof_json(const Source& source, Profile& profile, const Progress& progress);
bool is_rocpd(const Source& source);
void read_rocpd(const Source& source, Profile& profile, const Progress& progress);

}  // namespace pyflame::tools::profile
