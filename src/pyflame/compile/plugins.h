// Implementations from outside of PyFlame (plugin.h): functions in other libraries that compute one op. They are in the lists of implementations
// behind the backend's own ones. The rules never choose one: it computes where it was measured to be faster, or where it is forced.
#pragma once
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "pyflame/backends/plugin_call.h"

namespace pyflame {

struct Plugin {
  std::string entry;  // "rocm.plugin.theirs:2.1", unique
  OpId op{};
  DeviceType device{};
  pyflame_plugin_function function = nullptr;
  void* context = nullptr;
  bool repeats = true;  // whether every run gives the same bits
};

// Programs that are compiled already are forgotten. ErrorKind::Value: an op or a device that does not exist, a name that is taken. Returns the entry's
// name, "<device>.plugin.<name>".
std::string add_plugin(const std::string& op, const std::string& name, const std::string& device,
                       pyflame_plugin_function function, void* context, bool repeats);
// ErrorKind::Value: there is none of this name.
void remove_plugin(const std::string& entry);
std::vector<Plugin> plugins();

// The backend's list, with the plug-ins for the op in front of the slow last one, if there is such, and otherwise at the end.
std::span<const Impl> impls_with_plugins(const Backend& backend, const Problem& p);

// Impl::accepts and Impl::make, of a plug-in too.
Refusal refusal_of(const Impl& impl, const Problem& p);
std::unique_ptr<Executable> make_impl(const Impl& impl, const Problem& p);

}  // namespace pyflame
