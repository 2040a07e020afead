// A Host that forwards every call to another one: the base class of hosts that observe calls.
#pragma once
#include "tools/system/host.h"

namespace pyflame::tools::system {

class HostView : public Host {
 public:
  explicit HostView(const Host& host) : host_(host) {}
  Reading read(const std::string& path, size_t limit) const override { return host_.read(path, limit); }
  std::vector<std::string> list_if(const std::string& path, const Keep& keep) const override {
    return host_.list_if(path, keep);
  }
  Status status(const std::string& path) const override { return host_.status(path); }
  std::optional<std::string> real_path(const std::string& path) const override { return host_.real_path(path); }
  std::optional<Space> space(const std::string& path) const override { return host_.space(path); }
  std::optional<Environment> environment(std::optional<int64_t> pid) const override { return host_.environment(pid); }
  User user() const override { return host_.user(); }
  std::string name() const override { return host_.name(); }

 protected:
  const Host& host() const { return host_; }

 private:
  const Host& host_;
};

}  // namespace pyflame::tools::system
