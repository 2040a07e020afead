// Keeps the list of work in flight, reads reports of faults, and finds out what a fault has tainted.
#include "pyflame/runtime/in_flight.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "pyflame/base/fork.h"
#include "pyflame/record/location.h"
#include "pyflame/runtime/blame.h"
#include "pyflame/runtime/device.h"
#include "pyflame/runtime/executor.h"

namespace pyflame {

namespace {

constexpr size_t kMostEntries = 1024;  // runs; if reports are possible, the next run then waits for the device
constexpr uint64_t kMailEvery = 64;    // runs between two copies of the report
constexpr size_t kMostNamed = 8;

struct Entry {
  std::shared_ptr<Program> program;
  int32_t site = 0;
  uint64_t number = 0;
  std::vector<uint64_t> storages;  // ids by slot; empty: the run cannot report
  std::vector<SourceLoc> locs;     // by step
};

struct InFlight {
  Device device;
  DeviceMemory* memory = nullptr;
  std::deque<Entry> entries;
  uint64_t last = 0;     // number of the last run
  bool reports = false;  // some run in the list may report
  FaultReport* mail = nullptr;
  uint64_t mail_mark = 0, mail_number = 0, mail_sent = 0;  // mark 0: no copy is in flight
  std::string lost;                                        // what was in flight when the device was lost
};

struct All {
  std::mutex mutex;
  std::vector<std::unique_ptr<InFlight>> devices;
  std::unordered_map<uint64_t, std::shared_ptr<const Poison>> taints;  // by storage id
  std::atomic<bool> tainted{false};
};
All& all() {
  static All* a = new All;
  return *a;
}

const AtFork g_at_fork{ForkOrder::InFlight, [] { all().mutex.lock(); }, [](bool) { all().mutex.unlock(); }};

InFlight& of(Device d) {
  All& a = all();
  for (const auto& f : a.devices)
    if (f->device == d) return *f;
  auto f = std::make_unique<InFlight>();
  f->device = d;
  f->memory = device_memory(d);
  return *a.devices.emplace_back(std::move(f));
}

std::string words_of(const FaultReport& r, const Node& n) {
  switch (r.kind) {
    case 1:
      return fmt::format("{}: index out of range; got {}; expected 0 <= index < {}", op_name(n.op), r.value, r.limit);
    case 2:
      return fmt::format("{}: negative probability; got {}; expected at least {}", op_name(n.op), r.value, r.limit);
    case 3:
      return fmt::format("{}: the offsets do not begin with 0 or not end with the number of rows; got {}; expected {}",
                         op_name(n.op), r.value, r.limit);
    case 4:
      return fmt::format("{}: the offsets decrease; got {} after {}; expected at least as much", op_name(n.op), r.value,
                         r.limit);
    case 5:
      return fmt::format("{}: a sequence is longer than the given maximum; got {} rows; expected at most {}",
                         op_name(n.op), r.value, r.limit);
    default: return fmt::format("{}: a value that it cannot use; got {}; limit {}", op_name(n.op), r.value, r.limit);
  }
}

// Spreads the poison through one run.
void follow(const Entry& e, size_t first_step, Poisons& poison) {
  All& a = all();
  const Program& p = *e.program;
  for (size_t s = 0; s < e.storages.size(); ++s)
    if (!poison[s] && p.graph.slots[s].external)
      if (const auto it = a.taints.find(e.storages[s]); it != a.taints.end()) poison[s] = it->second;
  for (size_t k = first_step; k < p.steps.size(); ++k) {
    const Step& step = p.steps[k];
    bool bad = false;
    for (const int32_t s : step.reads) bad |= poison[static_cast<size_t>(s)] != nullptr;
    if (bad) spread_poison(p, step, poison);
    else
      for (size_t i = 0; i < step.writes.size(); ++i)
        if (step.covers[i]) poison[static_cast<size_t>(step.writes[i])] = nullptr;
  }
  for (const Step& step : p.steps)
    for (const int32_t s : step.writes) {
      const uint64_t id = e.storages[static_cast<size_t>(s)];
      if (const auto& now = poison[static_cast<size_t>(s)]) a.taints[id] = now;
      else a.taints.erase(id);
    }
}

// The caller has the lock.
void judge(InFlight& f, const FaultReport& r) {
  if (r.kind == 0) return;
  All& a = all();
  size_t at = 0;
  size_t k = 0;
  for (; at < f.entries.size(); ++at) {
    const Entry& e = f.entries[at];
    if (e.storages.empty() || r.site < e.site) continue;
    k = static_cast<size_t>(r.site - e.site);
    if (k < e.program->steps.size()) break;
  }
  f.memory->fill(f.memory->fault(), 0, sizeof(FaultReport));
  if (at == f.entries.size()) {
    make_poison(
        r.kind == 1 ? ErrorKind::Index : ErrorKind::Value,
        fmt::format("{}: a kernel met a value that it cannot use; got {}; limit {}; which op is not known any more",
                    f.device.str(), r.value, r.limit));
    return;
  }
  const Entry& first = f.entries[at];
  const Step& step = first.program->steps[k];
  const Node& n = first.program->graph.nodes[static_cast<size_t>(step.group.nodes[0])];
  const auto poison = make_poison(r.kind == 1 ? ErrorKind::Index : ErrorKind::Value,
                                  with_context(words_of(r, n), *first.program, step, {&first.locs[k], 1}));
  Poisons poisons(first.storages.size());
  for (const int32_t s : step.writes) poisons[static_cast<size_t>(s)] = poison;
  follow(first, k + 1, poisons);
  for (size_t i = at + 1; i < f.entries.size(); ++i) {
    Poisons later(f.entries[i].storages.size());
    if (!later.empty()) follow(f.entries[i], 0, later);
  }
  a.tainted = !a.taints.empty();
}

void forget_until(InFlight& f, uint64_t number) {
  while (!f.entries.empty() && f.entries.front().number <= number) f.entries.pop_front();
  if (f.entries.empty()) f.reports = false;
}

void send_mail(InFlight& f) {
  if (!f.mail) f.mail = f.memory->pinned_report();
  f.memory->read_fault(f.mail);
  f.mail_mark = f.memory->mark();
  f.mail_number = f.mail_sent = f.last;
}

void open_mail(InFlight& f) {
  f.mail_mark = 0;
  judge(f, *f.mail);
  forget_until(f, f.mail_number);
}

std::string describe(const InFlight& f) {
  std::vector<std::string> named;
  size_t more = 0;
  for (auto e = f.entries.rbegin(); e != f.entries.rend(); ++e)
    for (size_t k = e->program->steps.size(); k-- > 0;) {
      const Step& step = e->program->steps[k];
      std::string text = fmt::format(
          "{} with {}",
          describe_node(e->program->graph, e->program->graph.nodes[static_cast<size_t>(step.group.nodes[0])]),
          step.impl);
      if (e->locs[k].code) text += " recorded at " + describe_location(e->locs[k]);
      if (std::find(named.begin(), named.end(), text) != named.end()) continue;
      if (named.size() < kMostNamed) named.push_back(std::move(text));
      else ++more;
    }
  if (named.empty()) return "";
  std::string text = named.size() + more == 1 ? "\n  in flight was " : "\n  in flight was one of, newest first:";
  for (const std::string& n : named) text += (named.size() + more == 1 ? "" : "\n    ") + n;
  if (more) text += fmt::format("\n    and {} more", more);
  return text;
}

}  // namespace

int32_t new_sites(size_t steps) {
  static std::atomic<uint32_t> next{1};
  const uint32_t site = next.fetch_add(static_cast<uint32_t>(steps), std::memory_order_relaxed) & 0x3fffffff;
  return static_cast<int32_t>(site);
}

void note_run(const std::shared_ptr<Program>& p, const Window& w, int32_t site, bool reports) {
  All& a = all();
  std::lock_guard lock(a.mutex);
  InFlight& f = of(w.device);
  f.reports |= reports;
  if (f.entries.size() >= kMostEntries) {
    if (f.reports) {
      send_mail(f);
      f.memory->wait();
      open_mail(f);
      f.reports |= reports;
    }
    if (f.entries.size() >= kMostEntries) f.entries.pop_front();
  }
  Entry& e = f.entries.emplace_back();
  e.program = p;
  e.site = site;
  e.number = ++f.last;
  e.locs.reserve(p->steps.size());
  for (const Step& s : p->steps) e.locs.push_back(w.ops[static_cast<size_t>(s.group.nodes[0])].loc);
  if (!f.reports) return;
  e.storages.reserve(w.slots.size());
  for (const Window::Slot& s : w.slots) e.storages.push_back(s.storage->id);
  if (f.mail_mark && f.memory->passed(f.mail_mark)) open_mail(f);
  if (!f.mail_mark && f.last - f.mail_sent >= kMailEvery) send_mail(f);
}

void before_wait(Device d, DeviceMemory& m) {
  (void)m;
  All& a = all();
  std::lock_guard lock(a.mutex);
  InFlight& f = of(d);
  if (f.reports) send_mail(f);
}

void after_wait(Device d, DeviceMemory& m) {
  (void)m;
  All& a = all();
  std::lock_guard lock(a.mutex);
  InFlight& f = of(d);
  // The copy was requested by another thread and may not have arrived; that thread's wait reads it.
  if (f.mail_mark && f.memory->passed(f.mail_mark)) open_mail(f);
  if (!f.reports) f.entries.clear();
}

Error blamed(Device d, const Error& e) {
  if (e.kind() != ErrorKind::Device) return e;
  All& a = all();
  std::lock_guard lock(a.mutex);
  InFlight& f = of(d);
  if (f.lost.empty()) f.lost = describe(f);
  const std::string text = e.what();
  return Error(e.kind(), text.find("in flight was") == std::string::npos ? text + f.lost : text);
}

void wait_for_devices() {
  std::vector<std::pair<Device, DeviceMemory*>> used;
  {
    All& a = all();
    std::lock_guard lock(a.mutex);
    for (const auto& f : a.devices) used.emplace_back(f->device, f->memory);
  }
  for (const auto& [d, m] : used) wait_for_device(d, *m, [m = m] { m->wait(); });
}

std::shared_ptr<const Poison> taint_of(const Storage& s) {
  All& a = all();
  if (!a.tainted.load(std::memory_order_acquire)) return nullptr;
  std::lock_guard lock(a.mutex);
  const auto it = a.taints.find(s.id);
  return it == a.taints.end() ? nullptr : it->second;
}

void raise_if_tainted(const Storage& s) {
  if (const auto p = taint_of(s)) {
    forget_pending_error(p.get());
    throw Error(p->kind, p->message);
  }
}

void forget_taint(const Storage& s) {
  All& a = all();
  if (!a.tainted.load(std::memory_order_acquire)) return;
  std::lock_guard lock(a.mutex);
  a.taints.erase(s.id);
  a.tainted = !a.taints.empty();
}

}  // namespace pyflame
