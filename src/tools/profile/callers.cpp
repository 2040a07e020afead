// See callers.h.
#include "tools/profile/callers.h"

#include <algorithm>

namespace pyflame::tools::profile {

int32_t Callers::number(NameId name, int32_t outer) {
  const auto [at, fresh] = numbers_.try_emplace({name, outer}, static_cast<int32_t>(links_.size()));
  if (fresh) links_.emplace_back(name, outer);
  return at->second;
}

int32_t Callers::operators(int32_t op) {
  std::vector<int32_t> open;
  int32_t outer = -1;
  for (; op >= 0; op = t_.ops[static_cast<size_t>(op)].parent) {
    if (of_op_[static_cast<size_t>(op)] >= 0) {
      outer = of_op_[static_cast<size_t>(op)];
      break;
    }
    open.push_back(op);
  }
  for (; !open.empty(); open.pop_back())
    outer = of_op_[static_cast<size_t>(open.back())] = number(t_.ops[static_cast<size_t>(open.back())].name, outer);
  return outer;
}

// link() has sorted the frames by start, the longer one first.
void Callers::read_frames() {
  frames_read_ = true;
  for (size_t i = 0; i < t_.frames.size(); ++i) {
    const Frame& f = t_.frames[i];
    Thread& thread = threads_[{f.process, f.thread}];
    int32_t parent = static_cast<int32_t>(thread.frames.size()) - 1;
    const auto end_of = [&](int32_t at) {
      return t_.frames[static_cast<size_t>(thread.frames[static_cast<size_t>(at)])].end;
    };
    while (parent >= 0 && end_of(parent) <= f.start) parent = thread.parents[static_cast<size_t>(parent)];
    thread.starts.push_back(f.start);
    thread.frames.push_back(static_cast<int32_t>(i));
    thread.parents.push_back(parent);
    thread.chains.push_back(number(f.name, parent < 0 ? -1 : thread.chains[static_cast<size_t>(parent)]));
  }
}

int32_t Callers::stack(const ApiCall& call) {
  if (!frames_read_) read_frames();
  const auto found = threads_.find({call.process, call.thread});
  if (found == threads_.end()) return -1;
  const Thread& thread = found->second;
  const auto after = std::upper_bound(thread.starts.begin(), thread.starts.end(), call.start);
  for (auto i = static_cast<int32_t>(after - thread.starts.begin()) - 1; i >= 0;
       i = thread.parents[static_cast<size_t>(i)])
    if (t_.frames[static_cast<size_t>(thread.frames[static_cast<size_t>(i)])].end > call.start)
      return thread.chains[static_cast<size_t>(i)];
  return -1;
}

std::vector<std::string_view> Callers::names(int32_t chain) const {
  constexpr size_t kMost = 64;
  std::vector<std::string_view> out;
  for (; chain >= 0 && out.size() < kMost; chain = links_[static_cast<size_t>(chain)].second) {
    // "model/attention.py(12): forward": a folder says less than a function.
    std::string_view name = t_.names[links_[static_cast<size_t>(chain)].first];
    if (const size_t line = name.find(".py("); line != std::string_view::npos)
      if (const size_t function = name.find("): ", line); function != std::string_view::npos)
        name.remove_prefix(function + 3);
    out.push_back(name);
  }
  return out;
}

}  // namespace pyflame::tools::profile
