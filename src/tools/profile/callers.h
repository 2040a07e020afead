// What was around a launch: operators, and Python functions and modules. Chains of names repeat, so each has a number.
#pragma once
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "tools/profile/trace.h"

namespace pyflame::tools::profile {

class Callers {
 public:
  explicit Callers(const Trace& t) : t_(t), of_op_(t.ops.size(), -1) {}

  // The operator and those around it; -1 for none.
  int32_t operators(int32_t op);
  // The functions and modules of Python that ran on the thread of a call when it began; -1 for none.
  int32_t stack(const ApiCall& call);
  // Innermost first. Of a function its name, of a module its class.
  std::vector<std::string_view> names(int32_t chain) const;

 private:
  struct Thread {
    std::vector<int64_t> starts;
    std::vector<int32_t> frames, parents, chains;
  };
  int32_t number(NameId name, int32_t outer);
  void read_frames();

  const Trace& t_;
  std::vector<int32_t> of_op_;
  std::map<std::pair<int32_t, uint64_t>, Thread> threads_;
  bool frames_read_ = false;
  std::vector<std::pair<NameId, int32_t>> links_;  // a name, and the chain outside of it
  std::map<std::pair<NameId, int32_t>, int32_t> numbers_;
};

}  // namespace pyflame::tools::profile
