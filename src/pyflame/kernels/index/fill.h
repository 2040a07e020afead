// Fills with zeros, 16 bytes at a time where possible.
#pragma once

namespace pf {

#ifdef PF_ON_DEVICE

// Clears `bytes` bytes from p, which is aligned to an element.
template <class W, int kThreads>
PF_DEVICE void fill_zero(W* p, i64 count) {
  for (i64 i = (i64)group().x * kThreads + thread(); i < count; i += (i64)groups().x * kThreads) p[i] = W{};
}

// Clears a tensor with any strides.
template <class W, int kThreads>
PF_DEVICE void fill_zero(W* p, const View& view, i64 count) {
  for (i64 i = (i64)group().x * kThreads + thread(); i < count; i += (i64)groups().x * kThreads) p[view.at(i)] = W{};
}

#endif

}  // namespace pf
