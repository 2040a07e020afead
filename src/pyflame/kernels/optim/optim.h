// Multi-tensor updates: one launch updates many tensors, and each workgroup updates a chunk of one of them. A step is a
// struct that updates the values of one element, one value for each role (parameter, gradient, moments), so that Adam,
// SGD and scaling share their loops.
#pragma once

namespace pf {

template <class T>
struct AdamStep : AdamNumbers {
  static constexpr int kRoles = 4;
  static constexpr int kWritten = 0b1101;  // a bit per role: parameter and both moments
#ifdef PF_ON_DEVICE
  PF_DEVICE void apply(T* v) const {
    T p = v[0], g = maximize ? -v[1] : v[1];
    if (decoupled) p *= (T)(1 - lr * weight_decay);
    else g += (T)weight_decay * p;
    const T m = (T)beta1 * v[2] + (T)(1 - beta1) * g, s = (T)beta2 * v[3] + (T)(1 - beta2) * g * g;
    v[0] = p - (T)(lr / bias1) * m / (m_sqrt(s) * (T)(1 / ::sqrt(bias2)) + (T)eps);
    v[2] = m;
    v[3] = s;
  }
#endif
};

template <class T, bool kMomentum>
struct SgdStep : SgdNumbers {
  static constexpr int kRoles = kMomentum ? 3 : 2;
  static constexpr int kWritten = kMomentum ? 0b101 : 0b001;
#ifdef PF_ON_DEVICE
  PF_DEVICE void apply(T* v) const {
    T g = (maximize ? -v[1] : v[1]) + (T)weight_decay * v[0];
    if (kMomentum && momentum != 0) {  // otherwise the buffer is not changed
      v[2] = first ? g : (T)momentum * v[2] + (T)(1 - dampening) * g;
      g = nesterov ? g + (T)momentum * v[2] : v[2];
    }
    v[0] -= (T)lr * g;
  }
#endif
};

static_assert(sizeof(AdamStep<float>) == sizeof(AdamNumbers) && sizeof(SgdStep<float, true>) == sizeof(SgdNumbers));

template <class T>
struct ScaleStep {
  static constexpr int kRoles = 1;
  static constexpr int kWritten = 0b1;
  const float* factor;
#ifdef PF_ON_DEVICE
  PF_DEVICE void apply(T* v) const { v[0] *= (T)*factor; }
#endif
};

#ifdef PF_ON_DEVICE
template <int kRoles>
PF_DEVICE int tensor_of_chunk(const TensorList<kRoles>& list, int chunk) {
  int low = 0, high = list.count;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (list.first[middle] <= chunk) low = middle;
    else high = middle;
  }
  return low;
}

template <class S, int kThreads, class Step>
PF_DEVICE void update_list(const TensorList<Step::kRoles>& list, const Step& step) {
  constexpr int kEach = 16 / sizeof(S), kRoles = Step::kRoles;
  const int chunk = (int)group().x, t = tensor_of_chunk(list, chunk);
  const i64 begin = (i64)(chunk - list.first[t]) * list.chunk;
  const i64 end = begin + list.chunk < list.size[t] ? begin + list.chunk : list.size[t];
  S* data[kRoles];
  u64 address = 0;
  for (int r = 0; r < kRoles; ++r) {
    data[r] = (S*)list.data[r][t];
    address |= (u64)data[r];
  }
  i64 done = begin;
  if (address % 16 == 0) {
    done = begin + (end - begin) / kEach * kEach;
    for (i64 i = begin + (i64)thread() * kEach; i < done; i += kThreads * kEach) {
      Vec<S, kEach> in[kRoles];
      for (int r = 0; r < kRoles; ++r) in[r] = load_vec<kEach>(data[r] + i);
      for (int j = 0; j < kEach; ++j) {
        C<S> v[kRoles];
        for (int r = 0; r < kRoles; ++r) v[r] = load(&in[r][j]);
        step.apply(v);
        for (int r = 0; r < kRoles; ++r) store(&in[r][j], v[r]);
      }
      for (int r = 0; r < kRoles; ++r)
        if (Step::kWritten >> r & 1) store_vec(data[r] + i, in[r]);
    }
  }
  for (i64 i = done + thread(); i < end; i += kThreads) {
    C<S> v[kRoles];
    for (int r = 0; r < kRoles; ++r) v[r] = load(data[r] + i);
    step.apply(v);
    for (int r = 0; r < kRoles; ++r)
      if (Step::kWritten >> r & 1) store(data[r] + i, v[r]);
  }
}

template <class S, int kThreads, class Step>
PF_DEVICE void update_strided(const Strided<Step::kRoles>& x, const Step& step) {
  constexpr int kRoles = Step::kRoles;
  for (i64 i = (i64)group().x * kThreads + thread(); i < x.size; i += (i64)groups().x * kThreads) {
    i64 at[kRoles];
    x.offsets(i, at);
    C<S> v[kRoles];
    for (int r = 0; r < kRoles; ++r) v[r] = load((const S*)x.data[r] + at[r]);
    step.apply(v);
    for (int r = 0; r < kRoles; ++r)
      if (Step::kWritten >> r & 1) store((S*)x.data[r] + at[r], v[r]);
  }
}

// Sums squares in float64, because a model has many gradients: a total per chunk, then their sum in order (kernel
// sum_totals).
template <class S, int kThreads>
PF_DEVICE void sum_squares_list(const TensorList<1>& list, double* totals) {
  PF_SHARED double shared[kThreads];
  constexpr int kEach = 16 / sizeof(S);
  const int chunk = (int)group().x, t = tensor_of_chunk(list, chunk);
  const i64 begin = (i64)(chunk - list.first[t]) * list.chunk;
  const i64 end = begin + list.chunk < list.size[t] ? begin + list.chunk : list.size[t];
  const S* data = (const S*)list.data[0][t];
  double sum = 0;
  i64 done = begin;
  if ((u64)data % 16 == 0) {
    done = begin + (end - begin) / kEach * kEach;
    for (i64 i = begin + (i64)thread() * kEach; i < done; i += kThreads * kEach) {
      const Vec<S, kEach> x = load_vec<kEach>(data + i);
      for (int j = 0; j < kEach; ++j) {
        const double v = (double)load(&x[j]);
        sum += v * v;
      }
    }
  }
  for (i64 i = done + thread(); i < end; i += kThreads) {
    const double v = (double)load(data + i);
    sum += v * v;
  }
  sum = over_group<Sum, kThreads>(sum, shared);
  if (thread() == 0) totals[chunk] = sum;
}
template <class S, int kThreads>
PF_DEVICE void sum_squares_strided(const Strided<1>& x, double* totals) {
  PF_SHARED double shared[kThreads];
  double sum = 0;
  for (i64 i = (i64)group().x * kThreads + thread(); i < x.size; i += (i64)groups().x * kThreads) {
    i64 at;
    x.offsets(i, &at);
    const double v = (double)load((const S*)x.data[0] + at);
    sum += v * v;
  }
  sum = over_group<Sum, kThreads>(sum, shared);
  if (thread() == 0) totals[group().x] = sum;
}
template <int kThreads>
PF_DEVICE void sum_totals(const double* totals, i64 count, float* out) {
  PF_SHARED double shared[kThreads];
  double sum = 0;
  for (i64 i = thread(); i < count; i += kThreads) sum += totals[i];
  sum = over_group<Sum, kThreads>(sum, shared);
  if (thread() == 0) *out = (float)sum;
}
#endif

}  // namespace pf
