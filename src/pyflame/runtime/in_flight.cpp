// Keeps the list of work in flight, reads reports of faults, and finds out what a fault has tainted.
#include "pyflame/runtime/in_flight.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <deque>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "pyflame/base/fork.h"
#include "pyflame/base/location.h"
#include "pyflame/runtime/blame.h"
#include "pyflame/runtime/device.h"
#include "pyflame/runtime/executor.h"
#include "pyflame/runtime/state.h"
#include "pyflame/runtime/taint.h"

namespace pyflame {

namespace {

constexpr size_t kMostEntries = 1024;  // runs; if reports are possible, the next run then waits for the device
constexpr uint64_t kMailEvery = 64;    // runs between two copies of the report
constexpr size_t kMostNamed = 8;

struct Entry {
  std::shared_ptr<const Program> program;
  int32_t site = 0;
  uint64_t number = 0;
  Indexed<SlotId, uint64_t> storages;  // ids; empty: the run cannot report
  std::vector<SourceLoc> locs;         // by step
  // What earlier reports said: they may have come while the run was being queued, and later ones add to them.
  Poisons inputs;                                                    // by slot; of external ones
  std::unordered_map<size_t, std::shared_ptr<const Poison>> causes;  // by step that reported
};

struct InFlight {
  Device device;
  DeviceMemory* memory = nullptr;
  std::deque<Entry> entries;
  uint64_t last = 0;     // number of the last run
  bool queuing = false;  // its kernels are being queued
  bool reports = false;  // some run in the list may report
  FaultTable* mail = nullptr;
  int32_t claims = 0;                      // FaultTable::claims when reports were last read
  decltype(FaultTable::reports) judged{};  // the reports at that time
  uint64_t mail_mark = 0;                  // 0: no copy is in flight
  uint64_t mail_last = 0;                  // the last run that had begun before the copy
  uint64_t mail_whole = 0;                 // the last run of which all kernels were queued before it
  std::vector<FaultTable*> spare;          // for requested reports
  std::string lost;                        // what was in flight when the device was lost
  bool of_parent = false;                  // this process was forked from the one that used it; no driver survives that
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

const AtFork g_in_flight_at_fork{ForkOrder::InFlight, [] { all().mutex.lock(); },
                                 [](bool in_child) {
                                   for (const auto& f : all().devices) f->of_parent |= in_child;
                                   all().mutex.unlock();
                                 }};

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
    case 6:
      return fmt::format("{}: the groups' ends decrease; got {} after {}; expected at least as much", op_name(n.op),
                         r.value, r.limit);
    case 7:
      return fmt::format("{}: the last group does not end with the rows; got {}; expected {}", op_name(n.op), r.value,
                         r.limit);
    default: return fmt::format("{}: a value that it cannot use; got {}; limit {}", op_name(n.op), r.value, r.limit);
  }
}

bool caused_by(const Entry& e, const std::shared_ptr<const Poison>& poison) {
  return std::any_of(e.causes.begin(), e.causes.end(), [&](const auto& c) { return c.second == poison; });
}

// Spreads the poison of a run's inputs and of the steps that reported through the run.
void follow(Entry& e) {
  All& a = all();
  const Program& p = *e.program;
  e.inputs.resize(e.storages.size());
  for (const SlotId s : e.storages.ids())
    if (p.graph.slots[s].external && !e.inputs[s])
      if (const auto it = a.taints.find(e.storages[s]); it != a.taints.end() && !caused_by(e, it->second))
        e.inputs[s] = it->second;
  Poisons poison = e.inputs;
  for (size_t k = 0; k < p.steps.size(); ++k) {
    const Step& step = p.steps[k];
    if (const auto cause = e.causes.find(k); cause != e.causes.end()) {
      for (const SlotId s : step.writes) poison[s] = cause->second;
      continue;
    }
    bool bad = false;
    for (const SlotId s : step.reads) bad |= poison[s] != nullptr;
    if (bad) spread_poison(p, step, poison);
    else
      for (size_t i = 0; i < step.writes.size(); ++i)
        if (step.covers[i]) poison[step.writes[i]] = nullptr;
  }
  for (const Step& step : p.steps)
    for (const SlotId s : step.writes) {
      const uint64_t id = e.storages[s];
      if (const auto& now = poison[s]) a.taints[id] = now;
      else a.taints.erase(id);
    }
}

ErrorKind kind_of(const FaultReport& r) { return r.kind == 1 ? ErrorKind::Index : ErrorKind::Value; }

// The reports since the last call, by site. `missed`: a step replaced the report of another one before it was read.
std::unordered_map<int32_t, FaultReport> new_reports(InFlight& f, const FaultTable& table, bool* missed) {
  std::unordered_map<int32_t, FaultReport> found;
  for (size_t i = 0; i < table.reports.size(); ++i)
    if (table.reports[i].site != f.judged[i].site) found.emplace(table.reports[i].site, table.reports[i]);
  *missed = static_cast<uint32_t>(table.claims) - static_cast<uint32_t>(f.claims) != found.size();
  f.claims = table.claims;
  f.judged = table.reports;
  return found;
}

// Taints what the reporting steps wrote, and everything that was computed from it since. `last`: the last run that had begun before the table
// was copied. The caller has the lock.
void judge(InFlight& f, const FaultTable& table, uint64_t last) {
  if (static_cast<int32_t>(static_cast<uint32_t>(table.claims) - static_cast<uint32_t>(f.claims)) <= 0)
    return;  // nothing new
  All& a = all();
  bool missed = false;
  std::unordered_map<int32_t, FaultReport> reports = new_reports(f, table, &missed);
  const auto reported = [&](const Entry& e) {
    const auto end = e.site + static_cast<int32_t>(e.program->steps.size());
    return std::any_of(reports.begin(), reports.end(),
                       [&](const auto& r) { return r.first >= e.site && r.first < end; });
  };
  bool begun = missed;  // earlier runs are not concerned
  for (Entry& e : f.entries) {
    if (e.storages.empty() || !(begun |= reported(e))) continue;
    for (size_t k = 0; k < e.program->steps.size(); ++k) {
      const auto report = reports.extract(e.site + static_cast<int32_t>(k));
      if (e.causes.count(k)) continue;
      const Step& step = e.program->steps[k];
      const Node& n = step.group.root(e.program->graph);
      const auto told = [&](ErrorKind kind, const std::string& words) {
        e.causes[k] = make_poison(kind, with_context(words, *e.program, step, {&e.locs[k], 1}));
      };
      if (!report.empty()) told(kind_of(report.mapped()), words_of(report.mapped(), n));
      else if (missed && e.number <= last && may_report(n))
        told(ErrorKind::Index,
             fmt::format("{}: it may have met a value that it cannot use; got reports of more ops than the device "
                         "keeps apart; hint: fix the other errors first",
                         op_name(n.op)));
    }
    follow(e);
  }
  for (const auto& [site, r] : reports)
    make_poison(
        kind_of(r),
        fmt::format("{}: a kernel met a value that it cannot use; got {}; limit {}; which op is not known any more",
                    f.device.str(), r.value, r.limit));
  a.tainted = !a.taints.empty();
}

// The poison of a run's inputs. Taints of what the run writes are forgotten: either it writes the whole storage, or the storage gets its
// poison when the run is over.
void take_taints(const Program& p, const Window& w, Poisons& poison) {
  All& a = all();
  for (const SlotId s : w.slots.ids()) {
    if (!w.slots[s].external) continue;
    std::shared_ptr<const Poison> of_slot = w.slots[s].storage->poison;
    if (const auto it = a.taints.find(w.slots[s].storage->id); !of_slot && it != a.taints.end()) of_slot = it->second;
    if (!of_slot) continue;
    if (poison.empty()) poison.resize(w.slots.size());
    poison[s] = std::move(of_slot);
  }
  if (a.taints.empty()) return;
  for (const Step& step : p.steps)
    for (size_t i = 0; i < step.writes.size(); ++i)
      if (step.covers[i] || !poison.empty()) a.taints.erase(w.slots[step.writes[i]].storage->id);
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
  f.mail_last = f.last;
  f.mail_whole = f.last - (f.queuing ? 1 : 0);
}

void open_mail(InFlight& f) {
  f.mail_mark = 0;
  judge(f, *f.mail, f.mail_last);
  forget_until(f, f.mail_whole);
}

std::string describe(const InFlight& f) {
  std::vector<std::string> named;
  size_t more = 0;
  for (auto e = f.entries.rbegin(); e != f.entries.rend(); ++e)
    for (size_t k = e->program->steps.size(); k-- > 0;) {
      const Step& step = e->program->steps[k];
      std::string text =
          fmt::format("{} with {}", describe_node(e->program->graph, step.group.root(e->program->graph)), step.impl);
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
  return static_cast<int32_t>(std::max(site, 1u));  // 0 is nobody's
}

QueuedRun::QueuedRun(const std::shared_ptr<const Program>& p, const Window& w, int32_t site, bool reports,
                     Poisons& poison)
    : device_(w.device) {
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
  take_taints(*p, w, poison);
  Entry& e = f.entries.emplace_back();
  e.program = p;
  e.site = site;
  e.number = ++f.last;
  f.queuing = true;
  e.locs.reserve(p->steps.size());
  for (const Step& s : p->steps) e.locs.push_back(w.ops[s.group.nodes[0]].loc);
  if (!f.reports) return;
  e.storages.reserve(w.slots.size());
  for (const Window::Slot& s : w.slots) e.storages.push_back(s.storage->id);
}

QueuedRun::~QueuedRun() {
  std::lock_guard lock(all().mutex);
  of(device_).queuing = false;
}

void QueuedRun::complete() {
  std::lock_guard lock(all().mutex);
  InFlight& f = of(device_);
  f.queuing = false;
  if (!f.reports) return;
  if (f.mail_mark && f.memory->passed(f.mail_mark)) open_mail(f);
  if (!f.mail_mark && f.last - f.mail_last >= kMailEvery) send_mail(f);
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
  // Another thread may have requested a newer copy in place of this thread's. What it says is needed now.
  if (f.mail_mark && !f.memory->passed(f.mail_mark)) f.memory->wait();
  if (f.mail_mark) open_mail(f);
  if (!f.reports) forget_until(f, f.last - (f.queuing ? 1 : 0));
}

RequestedReport request_report(Device d, DeviceMemory& m) {
  All& a = all();
  std::lock_guard lock(a.mutex);
  InFlight& f = of(d);
  RequestedReport r;
  r.last = f.last;
  r.whole = f.last - (f.queuing ? 1 : 0);
  if (!f.reports) return r;
  if (f.spare.empty()) {
    r.table = m.pinned_report();
  } else {
    r.table = f.spare.back();
    f.spare.pop_back();
  }
  m.read_fault(r.table);
  return r;
}

void drop_report(Device d, RequestedReport& r) {
  if (!r.table) return;
  std::lock_guard lock(all().mutex);
  of(d).spare.push_back(std::exchange(r.table, nullptr));  // the next copy into it is behind this one
}

void read_report(Device d, RequestedReport& r) {
  All& a = all();
  std::lock_guard lock(a.mutex);
  InFlight& f = of(d);
  if (r.table) {
    judge(f, *r.table, r.last);
    f.spare.push_back(std::exchange(r.table, nullptr));
  }
  forget_until(f, r.whole);
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
    for (const auto& f : a.devices)
      if (!f->of_parent) used.emplace_back(f->device, f->memory);
  }
  for (const auto& [d, m] : used) wait_for_device(d, *m, [m = m] { m->wait(); });
}

void taint(const std::vector<uint64_t>& storages, ErrorKind kind, const std::string& message) {
  const auto poison = make_poison(kind, message);
  All& a = all();
  std::lock_guard lock(a.mutex);
  for (const uint64_t id : storages) a.taints[id] = poison;
  a.tainted = !a.taints.empty();
}

std::shared_ptr<const Poison> taint_of(const Storage& s) {
  All& a = all();
  if (!a.tainted.load(std::memory_order_acquire)) return nullptr;
  std::lock_guard lock(a.mutex);
  const auto it = a.taints.find(s.id);
  return it == a.taints.end() ? nullptr : it->second;
}

void wait_for_reports(Device d, DeviceMemory& m) {
  {
    All& a = all();
    std::lock_guard lock(a.mutex);
    if (!of(d).reports) return;
  }
  wait_for_device(d, m, [&] { m.wait(); });
}

void raise_if_tainted(const Storage& s) {
  if (const auto p = taint_of(s)) {
    forget_pending_error(p.get());
    throw Error(p->kind, p->message);
  }
}

}  // namespace pyflame
