#include "pyflame/compile/plugins.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <string_view>

#include "pyflame/base/error.h"
#include "pyflame/compile/program.h"
#include "pyflame/ops/ops.h"

namespace pyflame {

namespace {

std::mutex g_mutex;
// Never freed, because programs keep pointers to entries and their names.
struct Registry {
  std::vector<std::shared_ptr<const Plugin>> all;
  std::map<std::pair<const Backend*, const Impl*>, std::span<const Impl>> lists;  // by the backend's own list
};
Registry& registry() {
  static auto* r = new Registry;
  return *r;
}

constexpr std::string_view kKinds[] = {"cpu", "cuda", "rocm"};  // of devices that plug-ins are for

std::string attributes_of(const Graph& g, const Node& n) {
  const std::string text = describe_node(g, n), arrow = " -> ";
  const size_t end = text.rfind(arrow), begin = text.rfind(')', end) + 1;
  return text.substr(begin, end - begin);
}

PluginCall call_of(const Plugin& plugin, const Problem& p) {
  return PluginCall({plugin.function, plugin.context, plugin.entry, op_name(p.root().op),
                     attributes_of(p.graph, p.root()), plugin.repeats},
                    p);
}

Refusal cannot_be_described(const Problem& p) {
  if (p.size() > 1) return "a plug-in computes one op";
  for (const Operand& o : p.root().ins)
    if (o.is_param) return "a plug-in takes no numbers that differ from call to call";
  return std::nullopt;
}

std::shared_ptr<const Plugin> shared(const Plugin* plugin) {
  std::lock_guard lock(g_mutex);
  for (const auto& each : registry().all)
    if (each.get() == plugin) return each;
  return nullptr;
}

}  // namespace

std::string add_plugin(const std::string& op, const std::string& name, const std::string& device,
                       pyflame_plugin_function function, void* context, bool repeats) {
  auto plugin = std::make_shared<Plugin>();
  size_t number = 0;
  while (number < static_cast<size_t>(kNumOps) && op_name(static_cast<OpId>(number)) != op) ++number;
  PF_CHECK(number < static_cast<size_t>(kNumOps), Value,
           "register: no such op; got '{}'; expected a name that pf.explain prints, such as matmul", op);
  PF_CHECK(std::any_of(std::begin(kKinds), std::end(kKinds), [&](std::string_view k) { return k == device; }), Value,
           "register: no such kind of device; got '{}'; expected cpu, rocm or cuda", device);
  PF_CHECK(!name.empty() && name.find_first_of(":; \t\n") == std::string::npos, Value,
           "register: not a name for an entry; got '{}'; expected characters without colons, semicolons and blanks",
           name);
  PF_CHECK(function, Value,
           "register: no function; got a null pointer; expected the address of a pyflame_plugin_function");
  plugin->entry = device + ".plugin." + name, plugin->op = static_cast<OpId>(number);
  plugin->device = parse_device(device).type;
  plugin->function = function, plugin->context = context, plugin->repeats = repeats;
  {
    std::lock_guard lock(g_mutex);
    for (const auto& each : registry().all)
      PF_CHECK(
          each->entry != plugin->entry || each->op != plugin->op, Value,
          "register: there is an entry of this name; got '{}' for {}; expected another name; hint: unregister it first",
          plugin->entry, op);
    registry().all.push_back(plugin);
    registry().lists.clear();
  }
  clear_program_cache();
  return plugin->entry;
}

void remove_plugin(const std::string& entry) {
  {
    std::lock_guard lock(g_mutex);
    auto& all = registry().all;
    const size_t before = all.size();
    // Its lists and the memory of its name stay.
    static auto* removed = new std::vector<std::shared_ptr<const Plugin>>;
    for (const auto& each : all)
      if (each->entry == entry) removed->push_back(each);
    std::erase_if(all, [&](const auto& each) { return each->entry == entry; });
    PF_CHECK(all.size() < before, Value,
             "unregister: no such entry; got '{}'; expected a name that pf.tuning.register returned", entry);
    registry().lists.clear();
  }
  clear_program_cache();
}

std::vector<Plugin> plugins() {
  std::lock_guard lock(g_mutex);
  std::vector<Plugin> found;
  for (const auto& each : registry().all) found.push_back(*each);
  return found;
}

std::span<const Impl> impls_with_plugins(const Backend& backend, const Problem& p) {
  const std::span<const Impl> own = backend.impls(p);
  std::lock_guard lock(g_mutex);
  Registry& r = registry();
  if (r.all.empty() || p.group.kind == GroupKind::Loop || own.empty()) return own;
  const OpId op = p.root().op;
  const DeviceType device = p.graph.device.type;
  const auto fits = [&](const auto& each) { return each->op == op && each->device == device; };
  if (std::none_of(r.all.begin(), r.all.end(), fits)) return own;
  // Several ops may share a list, so their plug-ins do, too; each accepts its own op.
  const auto [at, is_new] = r.lists.try_emplace({&backend, own.data()});
  if (is_new) {
    auto* all = new std::vector<Impl>(own.begin(), own.end());
    const auto place = all->end() - (backend.last_is_slow() ? 1 : 0);
    std::vector<Impl> added;
    for (const auto& each : r.all)
      if (each->device == device) added.push_back({each->entry.c_str(), nullptr, nullptr, nullptr, each.get()});
    all->insert(place, added.begin(), added.end());
    at->second = *all;
  }
  return at->second;
}

Refusal refusal_of(const Impl& impl, const Problem& p) {
  if (!impl.plugin) return impl.accepts(p);
  if (impl.plugin->op != p.root().op) return "computes another op";
  if (Refusal no = cannot_be_described(p)) return no;
  const auto plugin = shared(impl.plugin);
  return plugin ? call_of(*plugin, p).ask() : Refusal("it was removed");
}

std::unique_ptr<Executable> make_impl(const Impl& impl, const Problem& p) {
  if (!impl.plugin) return impl.make(p);
  const auto plugin = shared(impl.plugin);
  PF_CHECK(plugin, Value, "{}: the plug-in was removed", impl.name);
  auto call = std::make_unique<PluginCall>(call_of(*plugin, p));
  if (const Refusal no = call->ask()) PF_FAIL(NotImplemented, "{}: refuses what it had accepted: {}", impl.name, *no);
  return call;
}

}  // namespace pyflame
