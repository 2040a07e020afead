// `pyflame env`: prints exports for the shell, each with its reason. It needs no GPU if the architecture is named.
#include <memory>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "output.h"
#include "pyflame/base/error.h"
#include "tools/doctor/env_advice.h"
#include "tools/system/facts.h"

namespace pyflame::apps::cli {

namespace {

using Json = nlohmann::json;

struct EnvSettings {
  std::string arch, workload, rocm, root;
  bool json = false;
};

int run_env(const EnvSettings& s) {
  tools::doctor::AdviceFor wanted{s.arch, s.workload, s.rocm};
  Json facts;
  if (wanted.gfx.empty() || !s.root.empty()) {
    const auto host = s.root.empty() ? tools::system::this_machine() : tools::system::recorded(s.root);
    facts = tools::system::collect(*host);
    if (wanted.rocm.empty() && facts["rocm"].is_object() && facts["rocm"]["version"].is_string())
      wanted.rocm = facts["rocm"]["version"].get<std::string>();
    if (wanted.gfx.empty())
      for (const Json& gpu : facts["gpus"])  // a card before an integrated GPU
        if (wanted.gfx.empty() || !gpu["integrated"].get<bool>()) {
          wanted.gfx = gpu["gfx"].get<std::string>();
          if (!gpu["integrated"].get<bool>()) break;
        }
    PF_CHECK(!wanted.gfx.empty(), Value,
             "env: this machine has no AMD GPU; hint: name the architecture with --arch, such as gfx942");
  }
  const Json advice = tools::doctor::env_advice(wanted, facts);
  if (s.json) print_json(advice);
  else print(tools::doctor::env_text(advice));
  return kOk;
}

}  // namespace

void add_env(CLI::App& app, Run& run) {
  CLI::App* cmd = app.add_subcommand("env", "Recommend environment variables for a GPU, each with its reason");
  auto s = std::make_shared<EnvSettings>();
  cmd->add_option("--arch", s->arch, "Architecture of the GPU, such as gfx942; default: that of this machine's GPU");
  cmd->add_option("--workload", s->workload, "What the GPU will do")
      ->check(CLI::IsMember({"training", "inference", "multi-gpu"}));
  cmd->add_option("--rocm", s->rocm, "The release of ROCm, such as 6.3");
  cmd->add_option("--root", s->root,
                  "Advise a machine that was recorded with pyflame doctor --record, instead of this one");
  cmd->add_flag("--json", s->json, "Print one JSON document");
  cmd->final_callback([&run, s] { run = [s] { return run_env(*s); }; });
}

}  // namespace pyflame::apps::cli
