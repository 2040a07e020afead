// The machine that this program runs on. Reads are limited in size, and only regular files are opened, so a probe cannot block on a
// pipe or disturb a device.
#include <dirent.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>

#include <fmt/format.h>

#include "tools/system/host.h"
#include "tools/system/read_file.h"
#include "tools/system/text.h"

extern char** environ;

namespace pyflame::tools::system {

Reading read_regular_file(const std::string& path, size_t limit) {
  Reading out;
  const auto failed = [&out](int error) {
    out.state = error == ENOENT || error == ENOTDIR ? Reading::missing
                : error == EACCES || error == EPERM ? Reading::denied
                                                    : Reading::failed;
    if (out.state != Reading::missing) out.why = std::strerror(error);
    return out;
  };
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) return failed(errno);
  struct stat st {};
  if (::fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
    ::close(fd);
    return failed(S_ISDIR(st.st_mode) ? EISDIR : EINVAL);
  }
  // Files of /sys and /proc report a size of 0 or 4,096 bytes. Their real length is known only after reading.
  int error = 0;
  while (out.text.size() < limit) {
    const size_t have = out.text.size(), step = std::min<size_t>(limit - have, have == 0 ? 4096 : 65536);
    out.text.resize(have + step);
    const ssize_t n = ::read(fd, out.text.data() + have, step);
    out.text.resize(have + static_cast<size_t>(std::max<ssize_t>(n, 0)));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) error = errno;
    if (n <= 0) break;
  }
  ::close(fd);
  if (error != 0) {
    out.text.clear();
    return failed(error);
  }
  out.state = Reading::ok;
  return out;
}

std::vector<std::string> list_folder(const std::string& path) {
  std::vector<std::string> names;
  DIR* dir = ::opendir(path.c_str());
  if (!dir) return names;
  while (names.size() < kListLimit) {
    const dirent* entry = ::readdir(dir);
    if (!entry) break;
    if (std::strcmp(entry->d_name, ".") != 0 && std::strcmp(entry->d_name, "..") != 0)
      names.emplace_back(entry->d_name);
  }
  ::closedir(dir);
  std::sort(names.begin(), names.end(), natural_less);
  return names;
}

namespace {

std::string user_name(uid_t uid) {
  passwd entry{}, *found = nullptr;
  std::string buffer(16384, '\0');
  return ::getpwuid_r(uid, &entry, buffer.data(), buffer.size(), &found) == 0 && found ? found->pw_name
                                                                                       : std::to_string(uid);
}

std::string group_name(gid_t gid) {
  group entry{}, *found = nullptr;
  std::string buffer(65536, '\0');
  return ::getgrgid_r(gid, &entry, buffer.data(), buffer.size(), &found) == 0 && found ? found->gr_name
                                                                                       : std::to_string(gid);
}

// The types are from statfs(2). Only file systems that a report may meet are listed.
std::string file_system_name(unsigned long type) {
  static constexpr struct {
    unsigned long type;
    const char* name;
  } table[] = {
      {0xEF53, "ext4"},     {0x58465342, "xfs"},     {0x9123683E, "btrfs"},    {0x01021994, "tmpfs"},
      {0x6969, "nfs"},      {0x794C7630, "overlay"}, {0x2FC12FC1, "zfs"},      {0xFF534D42, "cifs"},
      {0xFE534D42, "smb"},  {0x0BD00BD0, "lustre"},  {0x47504653, "gpfs"},     {0x00C36400, "ceph"},
      {0x65735546, "fuse"}, {0x01021997, "9p"},      {0x19830326, "beegfs"},   {0x858458F6, "ramfs"},
      {0xF2F52010, "f2fs"}, {0x5346414F, "afs"},     {0x73717368, "squashfs"}, {0xCA451A4E, "bcachefs"},
  };
  for (const auto& row : table)
    if (row.type == type) return row.name;
  return fmt::format("{:#x}", type);
}

class LiveHost final : public Host {
 public:
  Reading read(const std::string& path, size_t limit) const override { return read_regular_file(path, limit); }
  std::vector<std::string> list_if(const std::string& path, const Keep& keep) const override {
    std::vector<std::string> names = list_folder(path);
    if (keep) std::erase_if(names, [&](const std::string& name) { return !keep(name); });
    return names;
  }

  Status status(const std::string& path) const override {
    Status s;
    struct stat st {};
    if (::stat(path.c_str(), &st) != 0) return s;
    s.exists = true;
    s.device = S_ISCHR(st.st_mode) || S_ISBLK(st.st_mode);
    s.mode = st.st_mode & 07777;
    s.uid = st.st_uid;
    s.gid = st.st_gid;
    s.owner = user_name(st.st_uid);
    s.group = group_name(st.st_gid);
    s.readable = ::access(path.c_str(), R_OK) == 0;
    s.writable = ::access(path.c_str(), W_OK) == 0;
    return s;
  }

  std::optional<std::string> real_path(const std::string& path) const override {
    char buffer[PATH_MAX];
    if (!::realpath(path.c_str(), buffer)) return std::nullopt;
    return buffer;
  }

  std::optional<Space> space(const std::string& path) const override {
    struct statfs st {};
    if (::statfs(path.c_str(), &st) != 0) return std::nullopt;
    const auto block = static_cast<int64_t>(st.f_bsize);
    return Space{file_system_name(static_cast<unsigned long>(st.f_type) & 0xFFFFFFFFu),
                 static_cast<int64_t>(st.f_blocks) * block, static_cast<int64_t>(st.f_bavail) * block};
  }

  std::optional<Environment> environment(std::optional<int64_t> pid) const override {
    Environment all;
    const auto add = [&all](std::string_view entry) {
      const size_t equals = entry.find('=');
      if (equals != entry.npos) all.emplace(entry.substr(0, equals), entry.substr(equals + 1));
    };
    if (!pid) {
      for (char** entry = environ; entry && *entry; ++entry) add(*entry);
      return kept(all);
    }
    const Reading r = read_regular_file(fmt::format("/proc/{}/environ", *pid), 2 << 20);
    if (!r) return std::nullopt;
    for (std::string_view entry : split(r.text, '\0')) add(entry);
    return kept(all);
  }

  User user() const override {
    User u;
    u.uid = ::geteuid();
    u.name = user_name(::geteuid());
    std::vector<gid_t> gids(static_cast<size_t>(std::max(0, ::getgroups(0, nullptr))));
    const int n = ::getgroups(static_cast<int>(gids.size()), gids.data());
    gids.resize(static_cast<size_t>(std::max(0, n)));
    if (std::find(gids.begin(), gids.end(), ::getegid()) == gids.end()) gids.insert(gids.begin(), ::getegid());
    for (gid_t gid : gids) u.groups.emplace_back(gid, group_name(gid));
    return u;
  }

  std::string name() const override { return "this machine"; }
};

}  // namespace

std::unique_ptr<Host> this_machine() { return std::make_unique<LiveHost>(); }

}  // namespace pyflame::tools::system
