// Makes a recorded tree: the probes run on a Host that notes every answer. So the record has exactly what the probes of this version read.
#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "pyflame/base/error.h"
#include "tools/system/facts.h"
#include "tools/system/host_view.h"

namespace pyflame::tools::system {

using nlohmann::json;
namespace fs = std::filesystem;

namespace {

class Recorder final : public HostView {
 public:
  using HostView::HostView;

  Reading read(const std::string& path, size_t limit) const override {
    Reading r = host().read(path, limit);
    const std::string kept_at = place(path);
    if (r.state == Reading::denied || r.state == Reading::failed) {
      unreadable_[kept_at] = r.state == Reading::denied ? "denied" : r.why;
    } else if (r) {
      // The same file may be read with different limits. The longest text is kept.
      std::string& text = files_[kept_at];
      if (r.text.size() >= text.size()) text = r.text;
    }
    return r;
  }

  std::vector<std::string> list_if(const std::string& path, const Keep& keep) const override {
    std::vector<std::string> names = host().list_if(path, keep);
    if (!names.empty() || host().exists(path))
      listed_[host().real_path(path).value_or(path)].insert(names.begin(), names.end());
    note_link(path);
    return names;
  }

  Status status(const std::string& path) const override {
    Status s = host().status(path);
    if (s.exists)
      nodes_[place(path)] = {{"mode", fmt::format("{:04o}", s.mode)},
                             {"uid", s.uid},
                             {"gid", s.gid},
                             {"owner", s.owner},
                             {"group", s.group},
                             {"readable", s.readable},
                             {"writable", s.writable}};
    return s;
  }

  std::optional<std::string> real_path(const std::string& path) const override {
    note_link(path);
    std::optional<std::string> target = host().real_path(path);
    if (target && !listed_.count(*target) && !files_.count(*target) && !nodes_.count(*target)) status(*target);
    return target;
  }

  std::optional<Space> space(const std::string& path) const override {
    std::optional<Space> s = host().space(path);
    if (s) spaces_[path] = {{"type", s->type}, {"bytes", s->bytes}, {"free", s->free}};
    return s;
  }

  std::optional<Environment> environment(std::optional<int64_t> pid) const override {
    std::optional<Environment> e = host().environment(pid);
    if (e && pid) processes_[std::to_string(*pid)] = *e;
    else if (e) environment_ = *e;
    return e;
  }

  int64_t write(const fs::path& folder) const {
    int64_t count = 0;
    std::error_code error;
    for (const auto& [path, text] : files_) {
      const fs::path file = folder / path.substr(1);
      fs::create_directories(file.parent_path(), error);
      std::ofstream out(file, std::ios::binary);
      out.write(text.data(), static_cast<std::streamsize>(text.size()));
      out.close();
      PF_CHECK(
          out, OS,
          "doctor: a file of the record cannot be written; got '{}': {}; expected a folder on a disk with free space",
          file.string(), std::strerror(errno));
      ++count;
    }
    json groups = json::array();
    const User u = host().user();
    for (const auto& [id, name] : u.groups) groups.push_back({{"id", id}, {"name", name}});
    const json record = {{"schema", "pyflame.record/1"},
                         {"env", environment_},
                         {"process_env", processes_},
                         {"user", {{"uid", u.uid}, {"name", u.name}, {"groups", std::move(groups)}}},
                         {"nodes", nodes_},
                         {"links", links_},
                         {"listed", listed_},
                         {"unreadable", unreadable_},
                         {"filesystems", spaces_}};
    std::ofstream out(folder / "pyflame-record.json");
    out << record.dump(1, ' ', false, json::error_handler_t::replace) << "\n";
    out.close();
    PF_CHECK(out, OS, "doctor: the record cannot be written; got '{}': {}", (folder / "pyflame-record.json").string(),
             std::strerror(errno));
    return count + 1;
  }

 private:
  void note_link(const std::string& path) const {
    const std::optional<std::string> real = host().real_path(path);
    if (real && *real != path) links_[path] = *real;
  }

  // A file is kept below the real path of its folder, so that two paths to it give one file.
  std::string place(const std::string& path) const {
    const size_t slash = path.rfind('/');
    if (slash == 0 || slash == path.npos) return path;
    const std::string folder = path.substr(0, slash);
    const auto known = folders_.find(folder);
    if (known != folders_.end()) return known->second + path.substr(slash);
    const bool process = folder.rfind("/proc/", 0) == 0;  // the target of /proc/self differs from run to run
    if (!process) note_link(folder);
    const std::string real = folders_[folder] = process ? folder : host().real_path(folder).value_or(folder);
    return real + path.substr(slash);
  }

  mutable std::map<std::string, std::string> files_, unreadable_, links_, folders_;
  mutable std::map<std::string, std::set<std::string>> listed_;
  mutable std::map<std::string, json> nodes_, spaces_;
  mutable std::map<std::string, Environment> processes_;
  mutable Environment environment_;
};

}  // namespace

int64_t record(const Host& host, const std::string& folder, std::optional<int64_t> pid) {
  std::error_code error;
  PF_CHECK(
      !fs::exists(folder, error) || fs::is_empty(folder, error), Value,
      "doctor: the folder for the record is not empty; got '{}'; expected an empty folder or one that does not exist",
      folder);
  fs::create_directories(folder, error);
  PF_CHECK(fs::is_directory(folder, error), OS,
           "doctor: the folder for the record cannot be created; got '{}'; expected a path to which you may write",
           folder);
  const Recorder recorder(host);
  CollectOptions options;
  options.pid = pid;
  collect(recorder, options);
  return recorder.write(folder);
}

}  // namespace pyflame::tools::system
