// How the calls of collectives are named in a profile. The arguments have the names that PyTorch's traces have, so that one reader takes both.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "pyflame/base/events.h"

namespace pyflame::events {

// A group of processes, as all of its ranks name it.
struct GroupName {
  std::string name;        // "world"
  std::vector<int> ranks;  // in the job
};

struct CollectiveText {
  std::string_view op;     // "all_reduce"
  std::string_view dtype;  // "float32"; empty: bytes
  int64_t bytes = 0;       // of the input
  int64_t item = 1;        // bytes of an element
  std::string_view call;   // ends with the line that made it: "… at FILE:LINE"
  std::string_view by;     // "host", "nccl"
  int32_t device = 0;      // as LabelText::device
};

// The label of a call; none while nothing is recorded.
Label label(const CollectiveText& text, const GroupName& group);

}  // namespace pyflame::events
