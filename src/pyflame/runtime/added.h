// For the time of a run, a window with what rewrites have added to its program (Graph::added).
#pragma once
#include <utility>
#include <vector>

#include "pyflame/compile/added.h"
#include "pyflame/record/recorder.h"

namespace pyflame {

class AddedToWindow {
 public:
  AddedToWindow(Window& w, const Added& added);
  ~AddedToWindow();
  AddedToWindow(const AddedToWindow&) = delete;
  AddedToWindow& operator=(const AddedToWindow&) = delete;
  // The slot is this storage until the end.
  void lend(SlotId slot, Ref<Storage> storage);

 private:
  Window& w_;
  size_t slots_, bindings_, params_, ops_;
  std::vector<std::pair<SlotId, Window::Slot>> replaced_;
};

}  // namespace pyflame
