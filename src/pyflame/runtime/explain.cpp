// The log behind pf.explain(), filled by the executor while it is on.
#include "pyflame/runtime/explain.h"

#include <map>
#include <thread>
#include <tuple>

#include "pyflame/compile/joined.h"
#include "pyflame/record/cut_cause.h"
#include "pyflame/runtime/executor.h"
#include "pyflame/runtime/explain_log.h"
#include "pyflame/runtime/state.h"

namespace pyflame {

namespace {

// A log is bounded: a long program makes the same windows again and again.
constexpr size_t kMostExplained = 2000, kMostListed = 100'000;

struct Log {
  Explained found;
  std::map<const Program*, size_t> programs;          // those of the cache
  std::vector<std::shared_ptr<const Program>> known;  // the same: an address must not be reused
  std::map<std::tuple<size_t, std::string, std::string, std::string>, size_t> windows;
  struct Before {
    size_t window = 0;  // index into found.windows
    Placed placed;
  };
  std::map<std::thread::id, Before> before;            // the latest window of each thread
  std::map<std::pair<size_t, size_t>, Across> across;  // of two windows, one after the other
};

thread_local std::unique_ptr<Log> t_log;
std::unique_ptr<Log> g_log;  // of all threads; the engine's lock guards it

Placed placed(const std::shared_ptr<const Program>& p, const Window& w) {
  Placed at{p, {}, {}};
  for (const Window::Slot& s : w.slots) at.storages.push_back(s.storage->id);
  for (const Window::Binding& b : w.bindings) at.offsets.push_back(b.byte_offset);
  return at;
}

// What cannot be compiled as one window is run as it is: an explanation must not make it fail.
Across joined_or_nothing(const Placed& first, const Placed& second) {
  try {
    return saved_by_joining(first, second);
  } catch (const Error&) {
    return {};
  }
}

// What the cut between the latest window of this thread and this one keeps apart.
void find_across(const Window& w, size_t program, size_t window, Log& log) {
  Placed here = placed(log.found.programs[program].program, w);
  const auto [before, first] = log.before.try_emplace(std::this_thread::get_id());
  if (!first && before->second.placed.program->graph.device == w.device) {
    const auto [across, fresh] = log.across.try_emplace({before->second.window, window});
    if (fresh) across->second = joined_or_nothing(before->second.placed, here);
    Explained::Window& cut = log.found.windows[before->second.window];
    cut.saves += across->second.saves;
    if (cut.across.empty()) cut.across = across->second.ops;
  }
  before->second = {window, std::move(here)};
}

std::shared_ptr<const Program> with_lines(const Program& p, const Window& w) {
  const auto copy = std::make_shared<Program>(p);
  for (const NodeId id : copy->graph.nodes.ids()) copy->graph.nodes[id].loc = w.ops[id].loc;
  for (Step& step : copy->steps)
    for (size_t i = 0; i < step.group.aligned.size(); ++i) step.group.aligned[i].loc = w.ops[step.group.nodes[i]].loc;
  return copy;
}

std::string place_of_cut() {
  const SourceLoc loc = current_location();
  return loc.code ? describe_location(loc) : "";
}

std::string last_op_of(const Program& p) {
  if (p.graph.nodes.empty()) return "";
  const Node& n = p.graph.nodes[NodeId(static_cast<int32_t>(p.graph.nodes.size()) - 1)];
  return n.loc.code ? fmt::format("{} {}", op_name(n.op), describe_location(n.loc)) : std::string(op_name(n.op));
}

void append(std::vector<RewriteNote>& to, const std::vector<RewriteNote>& notes) {
  to.insert(to.end(), notes.begin(), notes.end());
}

void add(const Window& w, const CachedProgram& p, const char* reason, bool cached, double plan_us, Log& log) {
  Explained& x = log.found;
  ++x.total;
  const auto [known, fresh] = log.programs.try_emplace(p.program.get(), x.programs.size());
  if (fresh && x.programs.size() >= kMostExplained) {
    log.programs.erase(known);
    ++x.left_out;
    return;
  }
  if (fresh) {
    x.programs.push_back({with_lines(*p.program, w), 0, ""});
    log.known.push_back(p.program);
    if (p.program->added.empty()) x.programs.back().notes = notes_on_rewrites_that_are_off(w, p.program->liveness);
    append(x.programs.back().notes, p.program->notes);
  }
  Explained::Run& run = x.programs[known->second];
  if (++run.count == 1 || run.kept_notes == 0) {
    append(run.notes, p.notes);
    run.kept_notes = p.notes.size();
  }
  if (has_own_memory(p.program->graph.device.type) && p.state->runs > 0) run.replay = p.state->replayer.describe();
  const std::string cause = CutCause::current() ? CutCause::current() : "", place = place_of_cut();
  const auto [at, first] =
      log.windows.try_emplace(std::tuple(known->second, std::string(reason), cause, place), x.windows.size());
  if (first)
    x.windows.push_back({known->second, reason, cause, place, last_op_of(*run.program), cached, plan_us, 0, 0, ""});
  Explained::Window& entry = x.windows[at->second];
  ++entry.count;
  if (x.order.size() < kMostListed) x.order.push_back(static_cast<uint32_t>(at->second));
  find_across(w, known->second, at->second, log);
}

std::string text_of_windows(const Explained& x) {
  std::string text = fmt::format("{} window{}\n", x.total, x.total == 1 ? "" : "s");
  std::vector<bool> told(x.windows.size(), false);
  int number = 0;
  for (const uint32_t k : x.order) {
    const Explained::Window& w = x.windows[k];
    const bool cached = w.cached || told[k];
    told[k] = true;
    text += fmt::format("window {} (cut by {}; {}): {}", ++number, w.reason,
                        cached ? std::string("cached program") : fmt::format("planned in {:.0f} us", w.plan_us),
                        describe_program(*x.programs[w.program].program));
    if (const std::string& replay = x.programs[w.program].replay; !replay.empty()) text += "  " + replay + "\n";
  }
  return text;
}

}  // namespace

void explain_begin(bool all_threads) {
  Recorder::current().cut(CutReason::Sync);
  auto log = std::make_unique<Log>();
  std::unique_ptr<Log>& of = all_threads ? g_log : t_log;
  between_programs([&] {
    PF_CHECK(!of, Runtime,
             "explain: an explanation is under way; expected one at a time; hint: explain one of the two");
    of = std::move(log);
  });
}

Explained explain_end(bool all_threads) {
  {
    const CutCause end("the end of what is explained");
    Recorder::current().cut(CutReason::Sync);
  }
  std::unique_ptr<Log> log;
  between_programs([&] { log = std::move(all_threads ? g_log : t_log); });
  return log ? std::move(log->found) : Explained{};
}

void explain_start() {
  t_log = nullptr;
  explain_begin(false);
}

std::string explain_stop() { return text_of_windows(explain_end(false)); }

void explain_log(const Window& w, const CachedProgram& p, const char* reason, bool cached, double plan_us) {
  for (Log* log : {t_log.get(), g_log.get()})
    if (log) add(w, p, reason, cached, plan_us, *log);
}

}  // namespace pyflame
