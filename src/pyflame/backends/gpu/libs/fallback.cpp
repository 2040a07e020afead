// Runs a kernel of our own after a library has failed.
#include "pyflame/backends/gpu/libs/fallback.h"

#include <algorithm>
#include <cstdio>
#include <mutex>
#include <set>

#include "pyflame/base/fallbacks.h"

namespace pyflame::gpu {

void say_once(const std::string& text) {
  static std::mutex mutex;
  static auto* said = new std::set<std::string>;
  std::lock_guard lock(mutex);
  if (said->insert(text).second) fmt::print(stderr, "pyflame: {}; printed once\n", text);
}

void fall_back(const Error& e) {
  if (e.kind() == ErrorKind::Device) throw e;
  const std::string what = e.what();
  note_fallback(what.substr(0, what.find(':')), "a GPU", "a kernel of PyFlame's own", what,
                what + "; a kernel of PyFlame's own computes it instead")
      .count({});
}

// The workspace is large enough for either.
size_t WithOwn::workspace() const { return std::max(library_->workspace(), own_->workspace()); }

void WithOwn::end_stand_in() {
  must_pass_ = named_ && !failed_;
  library_->end_stand_in();
  own_->end_stand_in();
}

void WithOwn::run(const RunContext& ctx) {
  if (must_pass_) {
    must_pass_ = false;
    return library_->run(ctx);
  }
  if (!failed_) {
    try {
      return library_->run(ctx);
    } catch (const Error& e) {
      fall_back(e);
      failed_ = true;
    }
  }
  own_->run(ctx);
}

}  // namespace pyflame::gpu
