#include "pyflame/runtime/added.h"

namespace pyflame {

AddedToWindow::AddedToWindow(Window& w, const Added& added)
    : w_(w), slots_(w.slots.size()), bindings_(w.bindings.size()), params_(w.params.size()), ops_(w.ops.size()) {
  for (const size_t bytes : added.slots) w.slots.push_back({make_ref<Storage>(w.device, bytes), false, {}});
  for (const Added::At& at : added.bindings) w.bindings.push_back({at.slot, {}, at.byte_offset});
  for (const Added::Number& n : added.params) {
    Param value = n.value;
    if (n.inverse_of.valid()) value = Param(Scalar(1 / w.params[n.inverse_of].as_f64()));
    w.params.push_back(value);
  }
  for (const NodeId line : added.lines) {
    Window::OpMark mark = w.ops[line];
    w.ops.push_back(mark);
  }
}

void AddedToWindow::lend(SlotId slot, Ref<Storage> storage) {
  replaced_.emplace_back(slot, w_.slots[slot]);
  w_.slots[slot].storage = std::move(storage);
  w_.slots[slot].external = true;
}

AddedToWindow::~AddedToWindow() {
  for (auto& [slot, before] : replaced_) w_.slots[slot] = std::move(before);
  w_.slots.resize(slots_);
  w_.bindings.resize(bindings_);
  w_.params.resize(params_);
  w_.ops.resize(ops_);
}

}  // namespace pyflame
