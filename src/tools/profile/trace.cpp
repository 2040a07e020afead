// Stores events, interns names, and enforces limits.
#include "tools/profile/trace.h"

#include <algorithm>
#include <tuple>

namespace pyflame::tools::profile {

namespace {

constexpr size_t kMaxGpuEvents = 4'000'000, kMaxOps = 4'000'000, kMaxCalls = 4'000'000, kMaxFrames = 4'000'000;
constexpr size_t kMaxCollectives = 1'000'000;
constexpr size_t kMaxNames = 2'000'000, kMaxNameBytes = 4096, kMaxDevices = 1024;

template <class T>
bool add_bounded(std::vector<T>& to, const T& item, size_t most, int64_t& dropped) {
  if (to.size() >= most) {
    ++dropped;
    return false;
  }
  to.push_back(item);
  return true;
}

uint64_t key_of(int32_t process, uint64_t id) { return (static_cast<uint64_t>(process) << 48) ^ id; }

// Finds for each call without a known operator the innermost operator that contains its start on its thread.
void find_enclosing_ops(Trace& t) {
  const auto order = [](const auto& items) {
    std::vector<int32_t> index(items.size());
    for (size_t i = 0; i < index.size(); ++i) index[i] = static_cast<int32_t>(i);
    std::stable_sort(index.begin(), index.end(), [&](int32_t a, int32_t b) {
      const auto &x = items[static_cast<size_t>(a)], &y = items[static_cast<size_t>(b)];
      return std::tuple(x.process, x.thread, x.start, -x.end) < std::tuple(y.process, y.thread, y.start, -y.end);
    });
    return index;
  };
  const std::vector<int32_t> ops = order(t.ops), calls = order(t.calls);
  std::vector<int32_t> open;
  size_t next = 0;
  for (int32_t c : calls) {
    ApiCall& call = t.calls[static_cast<size_t>(c)];
    const auto at = std::tuple(call.process, call.thread, call.start);
    while (next < ops.size()) {
      CpuOp& op = t.ops[static_cast<size_t>(ops[next])];
      if (std::tuple(op.process, op.thread, op.start) > at) break;
      // An operator that ended before this call contains no later call.
      while (!open.empty()) {
        const CpuOp& top = t.ops[static_cast<size_t>(open.back())];
        if (top.process == op.process && top.thread == op.thread && top.end > op.start) break;
        open.pop_back();
      }
      if (!open.empty()) op.parent = open.back();
      open.push_back(ops[next++]);
    }
    while (!open.empty()) {
      const CpuOp& top = t.ops[static_cast<size_t>(open.back())];
      if (top.process == call.process && top.thread == call.thread && top.end >= call.start) break;
      open.pop_back();
    }
    if (call.op < 0 && !open.empty()) call.op = open.back();
  }
}

void grid_to_workgroups(const Trace& t, GpuEvent& e) {
  // These two calls take the grid in work-items, and Kineto writes the arguments of the call.
  if (e.call >= 0 && !e.grid_in_threads && !e.grid_as_run) {
    const std::string& name = t.names[t.calls[static_cast<size_t>(e.call)].name];
    e.grid_in_threads = name.starts_with("hipExtModuleLaunch") || name.starts_with("hipHccModuleLaunch");
  }
  if (!e.grid_in_threads) return;
  for (size_t i = 0; i < 3; ++i) {
    const uint32_t block = e.block[i] == 0 ? 1 : e.block[i];
    e.grid[i] = e.grid[i] / block + (e.grid[i] % block != 0);
  }
  e.grid_in_threads = false;
}

}  // namespace

NameId Names::intern(std::string_view text) {
  text = text.substr(0, kMaxNameBytes);
  const auto found = ids_.find(text);
  if (found != ids_.end()) return found->second;
  if (texts_.size() >= kMaxNames) return 0;
  texts_.emplace_back(text);
  const auto id = static_cast<NameId>(texts_.size() - 1);
  ids_.emplace(texts_.back(), id);
  return id;
}

bool Trace::add(const GpuEvent& e) { return add_bounded(gpu, e, kMaxGpuEvents, dropped); }
bool Trace::add(const CpuOp& op) { return add_bounded(ops, op, kMaxOps, dropped); }
bool Trace::add(const Collective& c) { return add_bounded(collectives, c, kMaxCollectives, dropped); }
bool Trace::add(const ApiCall& call) { return add_bounded(calls, call, kMaxCalls, dropped); }
bool Trace::add(const Frame& frame) { return add_bounded(frames, frame, kMaxFrames, dropped); }

void Trace::remove_processes(const std::vector<int32_t>& processes) {
  const auto gone = [&](const auto& item) {
    return std::find(processes.begin(), processes.end(), item.process) != processes.end();
  };
  std::erase_if(gpu, gone);
  std::erase_if(ops, gone);
  std::erase_if(calls, gone);
  std::erase_if(frames, gone);
  std::erase_if(collectives, gone);
}

Device& Trace::device(int32_t id) {
  for (Device& d : devices)
    if (d.id == id) return d;
  if (devices.size() >= kMaxDevices) return devices.back();
  devices.push_back({});
  devices.back().id = id;
  return devices.back();
}

void link(Trace& t) {
  const auto by_start = [](const auto& a, const auto& b) {
    return a.start < b.start || (a.start == b.start && a.end > b.end);
  };
  std::stable_sort(t.gpu.begin(), t.gpu.end(), by_start);
  std::stable_sort(t.ops.begin(), t.ops.end(), by_start);
  std::stable_sort(t.calls.begin(), t.calls.end(), by_start);
  std::stable_sort(t.frames.begin(), t.frames.end(), by_start);
  std::sort(t.devices.begin(), t.devices.end(), [](const Device& a, const Device& b) { return a.id < b.id; });

  std::unordered_map<uint64_t, int32_t> call_of, op_of;
  for (size_t i = 0; i < t.calls.size(); ++i) {
    const ApiCall& c = t.calls[i];
    if (c.correlation != 0) call_of.try_emplace(key_of(c.process, c.correlation), static_cast<int32_t>(i));
  }
  for (size_t i = 0; i < t.ops.size(); ++i) {
    const CpuOp& op = t.ops[i];
    if (op.external != 0 && !op.annotation) op_of.try_emplace(key_of(op.process, op.external), static_cast<int32_t>(i));
  }
  const auto find = [](const auto& map, int32_t process, uint64_t id) {
    const auto found = id == 0 ? map.end() : map.find(key_of(process, id));
    return found == map.end() ? -1 : found->second;
  };
  for (ApiCall& c : t.calls) c.op = find(op_of, c.process, c.external);
  find_enclosing_ops(t);
  for (GpuEvent& e : t.gpu) {
    e.call = find(call_of, e.process, e.correlation);
    e.op = find(op_of, e.process, e.external);
    if (e.op < 0 && e.call >= 0) e.op = t.calls[static_cast<size_t>(e.call)].op;
    grid_to_workgroups(t, e);
  }
}

}  // namespace pyflame::tools::profile
