// Reads and writes the rows of searches.
#include "pyflame/runtime/searches.h"

#include "pyflame/compile/choices.h"

namespace pyflame {

namespace {

const Environment& environment_at(Device device) {
  return environment_of(*runtime_hooks.find_backend(device.type), device.index);
}

}  // namespace

std::optional<std::string> recall_search(Device device, const std::string& what, const std::string& problem) {
  if (!uses_choices()) return std::nullopt;
  Choices* choices = Choices::if_present();
  return choices ? choices->best(environment_at(device), what, problem) : std::nullopt;
}

void keep_search(Device device, const std::string& what, const std::string& problem,
                 const std::vector<FoundEntry>& found) {
  if (!uses_choices() || found.empty()) return;
  std::vector<Measurement> all;
  for (const FoundEntry& f : found) {
    Measurement& m = all.emplace_back();
    m.entry = f.name, m.us = f.us, m.sound = f.wrong.empty(), m.note = f.wrong;
  }
  Choices::in(choices_file()).store(environment_at(device), what, problem, all);
}

}  // namespace pyflame
