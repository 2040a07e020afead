// Vector kernels over a contiguous array on the calling thread, for float and double. All code of this folder that
// processes many numbers uses them. They are compiled for several instruction sets, and the best one is selected at run
// time. The order of every sum depends on its length and the vector width only.
#pragma once
#include <cstdint>

#include "pyflame/base/half.h"

namespace pyflame::cpu::vec {

void from_bf16(const bfloat16* x, float* y, int64_t n);
void to_bf16(const float* x, bfloat16* y, int64_t n);
void from_f16(const float16* x, float* y, int64_t n);
void to_f16(const float* x, float16* y, int64_t n);

// Copies past the caches, for data that does not fit them: the destination is not read first. Before another thread may
// read it, the writer must call stream_fence.
void stream(void* dst, const void* src, int64_t nbytes);
void stream_fence();

double sum_squares(const float* x, int64_t n);  // accumulated in double
double sum_squares(const double* x, int64_t n);

struct AdamNumbers {
  double lr, beta1, beta2, eps, weight_decay, bias1, bias2;
  bool decoupled, maximize;
};
struct SgdNumbers {
  double lr, momentum, dampening, weight_decay;
  bool first, nesterov, maximize;
};

#define PF_VEC_FUNCTIONS(T)                                                                                                                  \
  T max(const T* x, int64_t n); /* -inf when empty */                                                                                        \
  T sum(const T* x, int64_t n);                                                                                                              \
  T dot(const T* x, const T* y, int64_t n);                                                                                                  \
  T square_deviation(const T* x, T mean, int64_t n);                                                                                         \
  T exp_shifted(const T* x, T shift, T* y, int64_t n); /* y = exp(x - shift), returns the sum of y */                                        \
  void exp_all(T* x, int64_t n);                       /* in place */                                                                        \
  void log_all(T* x, int64_t n);                                                                                                             \
  T sum_exp_shifted(const T* x, T shift, int64_t n);                                                                                         \
  void scale(T* x, T factor, int64_t n);             /* x *= factor */                                                                       \
  void shift(const T* x, T a, T b, T* y, int64_t n); /* y = (x - a) - b */                                                                   \
  void add(T* y, const T* x, int64_t n);             /* y += x */                                                                            \
  void axpy(T* y, T a, const T* x, int64_t n);       /* y += a x */                                                                          \
  /* value[i] = x[i * stride] and at[i] = tap where that is greater, the first NaN, or the first of all (at[i] < 0) */                       \
  void take_max(const T* x, int64_t stride, T tap, T* value, T* at, int64_t n);                                                              \
  /* value[j] = the greatest of x[offset[i] + j] for i < taps and j < n, the first NaN, or the first of equals; at[j] = i; at may be null */ \
  void max_of_taps(const T* x, const int64_t* offset, int64_t taps, T* value, T* at, int64_t n);                                             \
  /* y[j] = sum_k x[k] w[k * ld + j] for j < n */                                                                                            \
  void gemv_rows(const T* x, const T* w, int64_t ld, int64_t k, int64_t n, T* y);                                                            \
  /* y[j] = sum_r x[index[r] * ld + j] for r < rows and j < n, in this order; known >= rows indices can be read ahead */                     \
  void sum_rows(const T* x, int64_t ld, const int64_t* index, int64_t rows, int64_t known, T* y, int64_t n);                                 \
  /* y[j] = sum_t w[t] x[t * ld + j] for j < n, in the order of the taps */                                                                  \
  void weighted_rows(const T* x, int64_t ld, const T* w, int64_t taps, T* y, int64_t n);                                                     \
  /* y[i] = sum_t w[t * n + i] x[begin[i] + t] for i < n, in the order of the taps */                                                        \
  void weighted_taps(const T* x, const int32_t* begin, const T* w, int64_t taps, T* y, int64_t n);                                           \
  void distances(const T* x, const T* rows, int64_t n, int64_t count,                                                                        \
                 T* y); /* y[j] = |x - rows[j]|; of n numbers each */                                                                        \
  /* y = (x - mean) * rstd * w + b; w and b may be null */                                                                                   \
  void normalize(const T* x, T mean, T rstd, const T* w, const T* b, T* y, int64_t n);                                                       \
  /* one row of the gradient of y = xhat * w + b with xhat = (x - mean) * rstd; dw and db are added to; w may be null;   \
     centered: the mean was a function of x (layer_norm; not rms_norm) */                   \
  void normalize_grad(const T* g, const T* x, T mean, T rstd, const T* w, bool centered, T* dx, T* dw, T* db,                                \
                      int64_t n);                                                                                                            \
  /* One block of scores [rows, n] becomes exp(score - running maximum), of which seen[r] count in row r; top and sum are     \
     the running numbers of each row, shrink what was summed before is to be multiplied with */              \
  void softmax_block(T* s, int64_t rows, int64_t n, const int64_t* seen, T* top, T* sum, T* shrink);                                         \
  /* p: scores -> probabilities exp(p - lse); ds: gradient of the probabilities -> p * (ds - delta) * scale */                               \
  void softmax_grad_block(T* p, T* ds, int64_t rows, int64_t n, const int64_t* seen, const T* lse, const T* delta,                           \
                          T scale);                                                                                                          \
  void adam(const AdamNumbers& c, const T* p, const T* g, const T* m, const T* v, T* po, T* mo, T* vo, int64_t n);                           \
  void sgd(const SgdNumbers& c, const T* p, const T* g, const T* m, T* po, T* mo, int64_t n) /* m may be null */;

PF_VEC_FUNCTIONS(float)
PF_VEC_FUNCTIONS(double)
#undef PF_VEC_FUNCTIONS

}  // namespace pyflame::cpu::vec
