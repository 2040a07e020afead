// Images read at the places of a grid, and the gradients of that, without atomics. A thread has a place and some channels. The gradient of
// the images has a thread for an element and some channels: it adds what all places take from there, whose corners are sorted by element.
#pragma once

namespace pf {

#ifdef PF_ON_DEVICE

// The number of a thread. It has one task: a loop over the launch would keep too many values in registers.
template <int kThreads>
PF_DEVICE i64 grid_thread() {
  return (group().x + (i64)group().y * groups().x) * kThreads + thread();
}

// The image, the part of the channels and the place or element of a thread.
struct GridTask {
  i64 image, rest, channel;
};
PF_DEVICE GridTask grid_task(i64 e, i64 of_image, const GridShape& p, bool narrow) {
  const Division a = divided(e, of_image, narrow), b = divided(a.quotient, p.parts, narrow);
  return {b.quotient, a.rest, b.rest * p.each};
}

template <int kMode, int kDims, class S>
PF_DEVICE GridCorners<kMode, kDims, C<S>> corners_at(const S* grid, const GridShape& p) {
  GridCorners<kMode, kDims, C<S>> r;
#pragma unroll
  for (int d = 0; d < kDims; ++d)
    r.along[d] = taps_along<kMode, C<S>>(load(grid + (kDims - 1 - d) * p.grid_step), p.size[d], p.padding, p.align);
  return r;
}

template <int kMode, int kDims, class S, int kThreads>
PF_DEVICE void grid_sample(const S* x, const S* grid, S* y, const GridShape& p) {
  constexpr int kCount = grid_corners(kMode, kDims);
  const i64 count = p.images * p.parts * p.places;
  const bool narrow = count < (i64)1 << 31;
  const i64 e = grid_thread<kThreads>();
  if (e >= count) return;
  const GridTask task = grid_task(e, p.places, p, narrow);
  const i64 place = task.image * p.places + task.rest;
  const auto corners = corners_at<kMode, kDims>(grid + p.grid.at(place, narrow), p);
  i64 where[kCount];
  C<S> weight[kCount];
  for_numbers<kCount>([&](auto k) {
    where[k.value] = corners.template offset<k.value>(p.step);
    weight[k.value] = corners.template weight<k.value>();
  });
  const S* from = x + task.image * p.image + task.channel * p.channel;
  S* to = y + p.to.at(place, narrow) + task.channel * p.to_channel;
  const i64 left = p.channels - task.channel;
  const int n = (int)(left < p.each ? left : p.each);
#pragma unroll 2
  for (int c = 0; c < n; ++c, from += p.channel, to += p.to_channel) {
    C<S> sum = 0;
#pragma unroll
    for (int k = 0; k < kCount; ++k) sum += weight[k] * (where[k] < 0 ? (C<S>)0 : load(from + where[k]));
    store(to, sum);
  }
}

template <int kMode, int kDims, class S, int kThreads>
PF_DEVICE void grid_sample_grad_grid(const S* g, const S* x, const S* grid, S* to, const GridShape& p) {
  constexpr int kCount = grid_corners(kMode, kDims);
  const i64 count = p.images * p.places;
  const bool narrow = count < (i64)1 << 31;
  const i64 place = grid_thread<kThreads>();
  if (place >= count) return;
  const auto corners = corners_at<kMode, kDims>(grid + p.grid.at(place, narrow), p);
  i64 where[kCount];
  C<S> dot[kCount];
  for_numbers<kCount>([&](auto k) { where[k.value] = corners.template offset<k.value>(p.step), dot[k.value] = 0; });
  const S* image = x + divided(place, p.places, narrow).quotient * p.image;
  const S* from = g + p.from.at(place, narrow);
#pragma unroll 2
  for (i64 c = 0; c < p.channels; ++c, image += p.channel, from += p.from_channel) {
    const C<S> factor = load(from);
#pragma unroll
    for (int k = 0; k < kCount; ++k)
      if (where[k] >= 0) dot[k] += factor * load(image + where[k]);
  }
  S* result = to + p.to.at(place, narrow);
  for_numbers<kDims>([&](auto d) {
    constexpr int kBy = decltype(d)::value;
    C<S> sum = 0;
    for_numbers<kCount>([&](auto k) {
      if (where[k.value] >= 0) sum += dot[k.value] * corners.template weight<k.value, kBy>();
    });
    store(result + (kDims - 1 - kBy) * p.to_step, sum);
  });
}

// The corners of all places as items to sort: the element's number in its image is the key.
template <int kMode, int kDims, class S, int kThreads>
PF_DEVICE void grid_corners_of(const S* grid, u32* keys, u32* ids, C<S>* weights, const GridShape& p) {
  constexpr int kCount = grid_corners(kMode, kDims);
  const i64 count = p.images * p.places;
  const bool narrow = count < (i64)1 << 31;
  const i64 place = grid_thread<kThreads>();
  if (place >= count) return;
  const auto corners = corners_at<kMode, kDims>(grid + p.grid.at(place, narrow), p);
  const u32 first = (u32)divided(place, p.places, narrow).rest * kCount;
  for_numbers<kCount>([&](auto k) {
    const i64 where = corners.template offset<k.value>(p.step), i = place * kCount + k.value;
    keys[i] = where < 0 ? 0xffffffffu : (u32)where;  // sorted last
    ids[i] = first + k.value;
    weights[i] = corners.template weight<k.value>();
  });
}

// keys and ids are sorted, each image for itself.
template <int kCount, class S, int kThreads, int kEach>
PF_DEVICE void grid_sample_grad_input(const u32* keys, const u32* ids, const C<S>* weights, const S* g, S* to,
                                      const GridShape& p) {
  const i64 count = p.images * p.parts * p.elements, items = p.places * kCount;
  const bool narrow = count < (i64)1 << 31 && p.images * p.places < (i64)1 << 31;
  const i64 e = grid_thread<kThreads>();
  if (e >= count) return;
  const GridTask task = grid_task(e, p.elements, p, narrow);
  const u32* key = keys + task.image * items;
  const u32* id = ids + task.image * items;
  const C<S>* weight = weights + task.image * items;
  const u32 mine = (u32)task.rest;
  i64 i = 0;
  for (i64 end = items; i < end;) {
    const i64 middle = i + (end - i) / 2;
    if (key[middle] < mine) i = middle + 1;
    else end = middle;
  }
  const i64 left = p.channels - task.channel;
  C<S> sum[kEach];
#pragma unroll
  for (int c = 0; c < kEach; ++c) sum[c] = 0;
  // Several corners are loaded before they are added, so that their loads do not wait for each other.
  constexpr int kTogether = 4;
  for (bool more = true; more; i += kTogether) {
    bool here[kTogether];
    C<S> factor[kTogether], value[kTogether][kEach];
#pragma unroll
    for (int k = 0; k < kTogether; ++k) {
      here[k] = i + k < items && key[i + k] == mine;
      const u32 corner = here[k] ? id[i + k] : 0;
      factor[k] = here[k] ? weight[corner] : (C<S>)0;
      const i64 place = task.image * p.places + corner / kCount;
      const S* from = g + p.from.at(place, narrow) + task.channel * p.from_channel;
#pragma unroll
      for (int c = 0; c < kEach; ++c) value[k][c] = here[k] && c < left ? load(from + c * p.from_channel) : (C<S>)0;
    }
#pragma unroll
    for (int k = 0; k < kTogether; ++k)
#pragma unroll
      for (int c = 0; c < kEach; ++c)
        if (here[k]) sum[c] += factor[k] * value[k][c];
    more = here[kTogether - 1];
  }
  S* at = to + p.to.at(task.image * p.elements + task.rest, narrow) + task.channel * p.to_channel;
#pragma unroll
  for (int c = 0; c < kEach; ++c)
    if (c < left) store(at + c * p.to_channel, sum[c]);
}

#endif

}  // namespace pf
