// The event of a call in the profile that is being recorded.
#pragma once
#include "pyflame/distributed/group.h"

namespace pyflame::distributed {

class Group::Logged {
 public:
  // bytes: of the input. Calls of the group are numbered; messages between two ranks are not.
  Logged(const Group& group, const Call& call, size_t bytes, bool numbered = true)
      : group_(group), numbered_(numbered) {
    if (!events::on()) return;
    start_ = events::now();
    label_ = events::label({.op = call.op,
                            .dtype = call.dtype,
                            .bytes = static_cast<int64_t>(bytes),
                            .item = static_cast<int64_t>(call.item),
                            .call = call.text,
                            .by = "host"},
                           group.label_);
  }
  ~Logged() {
    if (!label_.recording) return;
    const auto number = static_cast<uint32_t>(numbered_ ? group_.calls_ : 0);
    events::add(events::Kind::Step, label_, start_, events::now(), 0, number);
  }
  Logged(const Logged&) = delete;
  Logged& operator=(const Logged&) = delete;

 private:
  const Group& group_;
  bool numbered_;
  events::Label label_;
  int64_t start_ = 0;
};

}  // namespace pyflame::distributed
