// Runs the probes. If one of them fails, its error is in "failed_probes", and the others still run.
#include "tools/system/facts.h"

#include <fmt/format.h>

#include <functional>

#include "tools/system/absence.h"
#include "tools/system/host_view.h"
#include "tools/system/probes.h"
#include "tools/system/visibility.h"

namespace pyflame::tools::system {

using nlohmann::json;

namespace {

// Notes which files a probe was not allowed to read.
class Noting final : public HostView {
 public:
  using HostView::HostView;
  Reading read(const std::string& path, size_t limit) const override {
    Reading r = host().read(path, limit);
    if (r.state == Reading::denied && denied.size() < 100) denied.push_back(path);
    return r;
  }
  mutable std::vector<std::string> denied;
};

json visible_facts(const json& gpus, const Environment& environment) {
  std::vector<std::string> uuids;
  for (const json& gpu : gpus) uuids.push_back(gpu["uuid"].is_string() ? gpu["uuid"].get<std::string>() : "");
  const Visibility v = visible_gpus(uuids, environment);
  json steps = json::array();
  for (const VisibleStep& s : v.steps)
    steps.push_back({{"variable", s.variable},
                     {"value", s.value},
                     {"before", s.before},
                     {"after", s.after},
                     {"note", or_null(s.note)}});
  return {{"steps", std::move(steps)}, {"gpus", v.gpus}};
}

json audited(const Environment& environment) {
  json out = json::object();
  for (const auto& [name, value] : environment)
    if (audited_variable(name)) out[name] = value;
  return out;
}

json to_json(const std::optional<Absence>& a) {
  if (!a) return nullptr;
  return {{"code", a->code}, {"what", a->what}, {"fix", a->fix}, {"why", a->why}};
}

class Collector {
 public:
  Collector(const Host& host, const CollectOptions& options) : host_(host), options_(options) {
    own_ = host.environment().value_or(Environment());
    if (options.environment) {
      judged_ = kept(*options.environment);
    } else if (options.pid) {
      if (std::optional<Environment> other = host_.environment(options.pid)) judged_ = *other;
      else
        failed("environment",
               fmt::format(
                   "the environment of process {} cannot be read: there is no such process, or it is another user's",
                   *options.pid));
    } else {
      judged_ = own_;
    }
  }

  json run() {
    facts_["host"] = json::object();
    probe("host", [&] { facts_["host"] = host_facts(host_, true); });
    probe("process", [&] { facts_["process"] = process_facts(host_, options_.pid); });
    devices(true);
    probe("links", [&] { facts_["links"] = link_facts(kfd_); });
    probe("cpu_links", [&] { facts_["cpu_links"] = cpu_link_facts(kfd_); });
    const std::vector<std::string> addresses = gpu_addresses();
    probe("iommu", [&] { facts_["host"]["iommu"] = iommu_facts(host_, addresses); });
    probe("acs", [&] { facts_["acs"] = acs_facts(host_, addresses); });
    facts_["host"]["seccomp"] = facts_["process"].is_object() ? facts_["process"].value("seccomp", json()) : json();
    // If a process is given, its environment says where to look for software. The environment of a script says little about that.
    const Environment& places = options_.pid && !judged_.empty() ? judged_ : own_;
    probe("rocm", [&] { facts_["rocm"] = rocm_facts(host_, places); });
    probe("frameworks", [&] { facts_["frameworks"] = framework_facts(host_, places, options_.pid); });
    probe("support", [&] { add_support(); });
    probe("environment", [&] { facts_["env"] = audited(judged_); });
    facts_["env_source"] = options_.environment ? options_.environment_source
                           : options_.pid       ? fmt::format("process {}", *options_.pid)
                                                : std::string("this process");
    facts_["env_lines"] = options_.environment_lines;
    probe("absence", [&] { facts_["absence"] = to_json(absence_of(facts_)); });
    facts_["failed_probes"] = failed_;
    // File names and files may have bytes that are not UTF-8. They are replaced, because the document is text.
    return json::parse(facts_.dump(-1, ' ', false, json::error_handler_t::replace));
  }

  json run_devices() {
    facts_["host"] = json::object();
    probe("host", [&] { facts_["host"] = host_facts(host_, false); });
    devices(false);
    probe("support", [&] { add_support(); });
    return facts_;
  }

 private:
  void devices(bool deep) {
    facts_["gpus"] = facts_["pci_gpus"] = json::array();
    facts_["visible"] = {{"steps", json::array()}, {"gpus", json::array()}};
    probe("kfd", [&] {
      kfd_ = read_kfd(host_, deep);
      facts_["kfd"] = kfd_facts(host_, kfd_);
    });
    probe("driver", [&] { facts_["driver"] = driver_facts(host_); });
    probe("gpus", [&] { facts_["gpus"] = gpu_facts(host_, kfd_, judged_, deep); });
    if (deep || facts_["gpus"].empty()) probe("pci", [&] { facts_["pci_gpus"] = pci_gpu_facts(host_, kfd_); });
    probe("visible", [&] { facts_["visible"] = visible_facts(facts_["gpus"], judged_); });
  }

  // The installed ROCm, or the one that a framework brings along.
  Version rocm_version() const {
    if (!facts_.contains("rocm")) return {};
    if (const json& version = facts_["rocm"]["version"]; version.is_string())
      return parse_version(version.get<std::string>());
    if (facts_.contains("frameworks"))
      for (const json& f : facts_["frameworks"])
        if (f["bundled_rocm"] == true && f["hip"].is_string()) return parse_version(f["hip"].get<std::string>());
    return {};
  }

  void add_support() {
    const Version rocm = rocm_version();
    for (json& gpu : facts_["gpus"]) {
      const std::string gfx = gpu["gfx"].get<std::string>();
      std::string support = support_of(gfx, rocm);
      // The architecture is newer than our tables, but this ROCm has code for it.
      if (support == "unsupported" && facts_.contains("rocm"))
        for (const char* key : {"rocblas_archs", "hipblaslt_archs"})
          for (const json& arch : facts_["rocm"][key])
            if (arch == gfx) support = "unlisted";
      gpu["support"] = support;
    }
  }

  std::vector<std::string> gpu_addresses() const {
    std::vector<std::string> out;
    for (const KfdNode* node : kfd_.gpus())
      if (!node->pci().empty()) out.push_back(node->pci());
    return out;
  }

  void failed(const std::string& name, const std::string& why) { failed_.push_back({{"probe", name}, {"why", why}}); }

  void probe(const std::string& name, const std::function<void()>& run) {
    host_.denied.clear();
    try {
      run();
    } catch (const std::exception& e) {
      failed(name, e.what());
    }
    if (!host_.denied.empty())
      failed(name, fmt::format("no permission to read {}{}", host_.denied.front(),
                               host_.denied.size() == 1 ? "" : fmt::format(" and {} more", host_.denied.size() - 1)));
  }

  Noting host_;
  const CollectOptions& options_;
  Environment own_, judged_;
  Kfd kfd_;
  json facts_ = json::object(), failed_ = json::array();
};

}  // namespace

void set_environment(json& facts, const Environment& environment) {
  const Environment judged = kept(environment);
  facts["env"] = audited(judged);
  for (json& gpu : facts["gpus"]) gpu["override"] = override_facts(gpu["gfx"], gpu["node"], judged);
  facts["visible"] = visible_facts(facts["gpus"], judged);
}

json collect(const Host& host, const CollectOptions& options) { return Collector(host, options).run(); }

json device_facts(const Host& host) {
  const CollectOptions options;
  return Collector(host, options).run_devices();
}

}  // namespace pyflame::tools::system
