// A recorded tree as a Host. The tree may come from anybody, so nothing outside of it is opened: symbolic links in it are not followed, and
// links of the record are resolved on names only. Each read has a limit. Data that does not have the expected form counts as missing.
#include <sys/stat.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <unordered_map>

#include "pyflame/base/error.h"
#include "tools/system/host.h"
#include "tools/system/read_file.h"
#include "tools/system/text.h"

namespace pyflame::tools::system {

namespace {

using nlohmann::json;

constexpr size_t kRecordLimit = 64 << 20;
constexpr size_t kPathLimit = 4096;
constexpr int kLinkLimit = 32;

const json& member(const json& object, const char* key) {
  static const json none;
  if (!object.is_object()) return none;
  const auto it = object.find(key);
  return it == object.end() ? none : *it;
}
std::string text_of(const json& j) { return j.is_string() ? j.get<std::string>() : std::string(); }
int64_t number_of(const json& j, int64_t otherwise) { return j.is_number_integer() ? j.get<int64_t>() : otherwise; }

// "/a/./b/../c/" → "/a/c"; .. never leaves the root.
std::string normal(std::string_view path) {
  std::vector<std::string_view> parts;
  for (std::string_view part : split(path, '/')) {
    if (part.empty() || part == ".") continue;
    if (part != "..") parts.push_back(part);
    else if (!parts.empty()) parts.pop_back();
  }
  std::string out;
  for (std::string_view part : parts) out.append("/").append(part);
  return out.empty() ? "/" : out;
}

std::string parent_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == 0 || slash == path.npos ? "/" : path.substr(0, slash);
}
std::string name_of(const std::string& path) { return path.substr(path.rfind('/') + 1); }

Environment environment_of(const json& object) {
  Environment all;
  if (object.is_object())
    for (const auto& [name, value] : object.items())
      if (value.is_string()) all[name] = value.get<std::string>();
  return kept(all);
}

class RecordedHost final : public Host {
 public:
  RecordedHost(std::string folder, const json& record) : folder_(std::move(folder)) {
    const json &nodes = member(record, "nodes"), &links = member(record, "links"), &listed = member(record, "listed"),
               &unreadable = member(record, "unreadable"), &spaces = member(record, "filesystems"),
               &processes = member(record, "process_env");
    read_user(member(record, "user"));
    if (nodes.is_object())
      for (const auto& [path, node] : nodes.items()) {
        nodes_[normal(path)] = status_of(node);
        add_name(normal(path));
      }
    if (links.is_object())
      for (const auto& [path, target] : links.items())
        if (path.size() < kPathLimit && text_of(target).rfind('/', 0) == 0 && text_of(target).size() < kPathLimit) {
          links_[normal(path)] = normal(text_of(target));
          add_name(normal(path));
        }
    if (listed.is_object())
      for (const auto& [path, names] : listed.items()) {
        std::set<std::string>& known = names_[normal(path)];
        if (names.is_array())
          for (const json& name : names)
            if (name.is_string() && known.size() < kListLimit) known.insert(text_of(name));
        add_name(normal(path));
      }
    if (unreadable.is_object())
      for (const auto& [path, why] : unreadable.items()) unreadable_[normal(path)] = text_of(why);
    if (spaces.is_object())
      for (const auto& [path, space] : spaces.items())
        spaces_[normal(path)] = {text_of(member(space, "type")), number_of(member(space, "bytes"), 0),
                                 number_of(member(space, "free"), 0)};
    environment_ = environment_of(member(record, "env"));
    if (processes.is_object())
      for (const auto& [pid, env] : processes.items())
        if (const auto number = to_number(pid)) processes_[*number] = environment_of(env);
  }

  Reading read(const std::string& path, size_t limit) const override {
    for (const std::string& p : places(path)) {
      if (const auto it = unreadable_.find(p); it != unreadable_.end()) {
        const bool denied = it->second == "denied";
        return {denied ? Reading::denied : Reading::failed, "", denied ? "Permission denied" : it->second};
      }
      if (!is_plain(p)) continue;
      if (Reading r = read_regular_file(folder_ + p, limit)) return r;
    }
    return {};
  }

  std::vector<std::string> list_if(const std::string& path, const Keep& keep) const override {
    std::set<std::string> names;
    for (const std::string& p : places(path)) {
      if (is_plain(p))
        for (std::string& name : list_folder(folder_ + p))
          if (is_plain(p == "/" ? "/" + name : p + "/" + name)) names.insert(std::move(name));
      if (const auto it = names_.find(p); it != names_.end()) names.insert(it->second.begin(), it->second.end());
    }
    if (keep) std::erase_if(names, [&](const std::string& name) { return !keep(name); });
    std::vector<std::string> out(names.begin(), names.end());
    std::sort(out.begin(), out.end(), natural_less);
    if (out.size() > kListLimit) out.resize(kListLimit);
    return out;
  }

  Status status(const std::string& path) const override {
    for (const std::string& p : places(path)) {
      if (const auto it = nodes_.find(p); it != nodes_.end()) return it->second;
      const auto siblings = names_.find(parent_of(p));
      if (is_plain(p) || names_.count(p) || (siblings != names_.end() && siblings->second.count(name_of(p)))) {
        Status s;
        s.exists = true;
        s.readable = s.writable = !unreadable_.count(p);
        s.device = p.rfind("/dev/", 0) == 0;
        return s;
      }
    }
    return {};
  }

  std::optional<std::string> real_path(const std::string& path) const override {
    const std::string p = normal(path);
    bool is_link = false;
    std::string resolved = resolve(p, &is_link);
    if (is_link || exists(p)) return resolved;
    return std::nullopt;
  }

  std::optional<Space> space(const std::string& path) const override {
    const auto it = spaces_.find(normal(path));
    return it == spaces_.end() ? std::nullopt : std::optional(it->second);
  }

  std::optional<Environment> environment(std::optional<int64_t> pid) const override {
    if (!pid) return environment_;
    const auto it = processes_.find(*pid);
    return it == processes_.end() ? std::nullopt : std::optional(it->second);
  }

  User user() const override { return user_; }
  std::string name() const override { return folder_; }

 private:
  void read_user(const json& user) {
    user_.uid = number_of(member(user, "uid"), 0);
    user_.name = text_of(member(user, "name"));
    if (user_.name.empty()) user_.name = user_.uid == 0 ? "root" : std::to_string(user_.uid);
    if (const json& groups = member(user, "groups"); groups.is_array())
      for (const json& g : groups)
        user_.groups.emplace_back(number_of(member(g, "id"), -1), text_of(member(g, "name")));
  }

  Status status_of(const json& node) const {
    Status s;
    s.exists = true;
    s.device = true;
    unsigned mode = 0;
    for (char c : text_of(member(node, "mode")))
      if (c >= '0' && c <= '7') mode = (mode * 8 + static_cast<unsigned>(c - '0')) & 07777;
    s.mode = mode;
    s.uid = number_of(member(node, "uid"), 0);
    s.gid = number_of(member(node, "gid"), 0);
    s.owner = text_of(member(node, "owner"));
    s.group = text_of(member(node, "group"));
    if (s.owner.empty()) s.owner = s.uid == 0 ? "root" : std::to_string(s.uid);
    if (s.group.empty()) s.group = s.gid == 0 ? "root" : std::to_string(s.gid);
    const unsigned shift = user_.uid == s.uid ? 6 : user_.in_group(s.gid) ? 3 : 0;
    const auto allowed = [&](const char* key, unsigned bit) {
      const json& given = member(node, key);
      return given.is_boolean() ? given.get<bool>() : user_.uid == 0 || ((s.mode >> shift) & bit) != 0;
    };
    s.readable = allowed("readable", 4);
    s.writable = allowed("writable", 2);
    return s;
  }

  // If the record names a path, the folders above it exist.
  void add_name(const std::string& path) {
    for (std::string p = path; p != "/";) {
      const std::string parent = parent_of(p);
      if (!names_[parent].insert(name_of(p)).second) break;
      p = parent;
    }
  }

  // Sets `is_link` if the whole path is a link. Such a path exists even without a target.
  std::string resolve(std::string path, bool* is_link = nullptr) const {
    if (links_.empty()) return path;
    for (int hops = 0; hops < kLinkLimit && path.size() < kPathLimit; ++hops) {
      bool changed = false;
      // The longest link is tried first: the record names a link by the path that was asked for, which may lead through another link.
      for (size_t end = path.size(); end > 0 && end != path.npos; end = path.rfind('/', end - 1)) {
        const auto it = links_.find(path.substr(0, end));
        if (it == links_.end()) continue;
        const std::string next = normal(it->second + path.substr(end));
        changed = next != path;
        if (is_link && end == path.size()) *is_link = true;
        path = next;
        break;
      }
      if (!changed) return path;
    }
    return path;
  }

  // The places where a path is looked for: first through the links, then without them.
  std::vector<std::string> places(const std::string& path) const {
    const std::string p = normal(path);
    std::string resolved = resolve(p);
    if (resolved == p) return {p};
    return {std::move(resolved), p};
  }

  // Whether every part of the path in the tree is a folder or a regular file, and none is a symbolic link or a device.
  bool is_plain(const std::string& path) const {
    if (path == "/") return true;
    if (path.size() > kPathLimit) return false;
    if (const auto it = plain_.find(path); it != plain_.end()) return it->second;
    struct stat st {};
    const bool plain = is_plain(parent_of(path)) && ::lstat((folder_ + path).c_str(), &st) == 0 &&
                       (S_ISREG(st.st_mode) || S_ISDIR(st.st_mode));
    plain_.emplace(path, plain);
    return plain;
  }

  std::string folder_;
  std::unordered_map<std::string, Status> nodes_;
  std::unordered_map<std::string, std::string> links_, unreadable_;
  std::unordered_map<std::string, std::set<std::string>> names_;  // folder → names that need no file
  std::unordered_map<std::string, Space> spaces_;
  std::unordered_map<int64_t, Environment> processes_;
  Environment environment_;
  User user_;
  mutable std::unordered_map<std::string, bool> plain_;
};

}  // namespace

std::unique_ptr<Host> recorded(const std::string& folder) {
  const std::string path = folder + "/pyflame-record.json";
  const Reading r = read_regular_file(path, kRecordLimit);
  PF_CHECK(
      r, Value,
      "doctor: the folder is not a recorded machine; got '{}'; expected a pyflame-record.json in it ({}); make one "
      "with: pyflame doctor --record FOLDER",
      folder, r.state == Reading::missing ? "there is none" : r.why);
  const json record = json::parse(r.text, nullptr, false);
  PF_CHECK(record.is_object(), Value,
           "doctor: the record of the machine is damaged; got '{}', which is not a JSON object; record it again", path);
  const std::string schema = text_of(member(record, "schema"));
  PF_CHECK(schema == "pyflame.record/1", Value,
           "doctor: this version does not know the record's schema; got '{}' in '{}'; expected "
           "'pyflame.record/1'",
           schema, path);
  return std::make_unique<RecordedHost>(folder, record);
}

}  // namespace pyflame::tools::system
