// Sorting of keys and search for the best of a line, for several instruction sets, on the calling thread. The best one is selected at run time.
#pragma once
#include <cstdint>

namespace pyflame::cpu::vec {

// A key of 128 bits: compared by `high` first.
struct alignas(16) Key128 {
  uint64_t low, high;
};

// Ascending, in place. Equal keys cannot be told apart.
void sort_keys(uint32_t* keys, int64_t n);
void sort_keys(uint64_t* keys, int64_t n);
void sort_keys(Key128* keys, int64_t n);

// Where the largest (smallest) of n > 0 elements is: the first of equals; a NaN wins.
// The other form is for m lines at once: element i of line j is x[i * step + j], and the results go to at[j].
#define PF_VEC_ORDER_FUNCTIONS(T)                        \
  int64_t arg_best(const T* x, int64_t n, bool largest); \
  void arg_best(const T* x, int64_t n, int64_t step, int64_t m, bool largest, int64_t* at);

PF_VEC_ORDER_FUNCTIONS(float)
PF_VEC_ORDER_FUNCTIONS(double)
PF_VEC_ORDER_FUNCTIONS(int8_t)
PF_VEC_ORDER_FUNCTIONS(uint8_t)
PF_VEC_ORDER_FUNCTIONS(int16_t)
PF_VEC_ORDER_FUNCTIONS(int32_t)
PF_VEC_ORDER_FUNCTIONS(int64_t)
#undef PF_VEC_ORDER_FUNCTIONS

// The positions of the elements that may come before the bound: those not known to be <= it (largest) or >= it. NaN are among them. They
// ascend. It ends when less than 64 of the `room` are left. `scanned`: how many elements were looked at.
#define PF_VEC_CANDIDATES(T) \
  int64_t candidates(const T* x, int64_t n, T bound, bool largest, int64_t room, int64_t* at, int64_t* scanned);

PF_VEC_CANDIDATES(float)
PF_VEC_CANDIDATES(double)
PF_VEC_CANDIDATES(int8_t)
PF_VEC_CANDIDATES(uint8_t)
PF_VEC_CANDIDATES(int16_t)
PF_VEC_CANDIDATES(int32_t)
PF_VEC_CANDIDATES(int64_t)
#undef PF_VEC_CANDIDATES

// at[i] = how many of the n elements of a sorted line are less than value[i] (right: or equal). NaN comes after everything. n < 2^31.
void search(const float* line, int64_t n, const float* value, int64_t m, bool right, int64_t* at);
void search(const double* line, int64_t n, const double* value, int64_t m, bool right, int64_t* at);
void search(const int32_t* line, int64_t n, const int32_t* value, int64_t m, bool right, int64_t* at);
void search(const int64_t* line, int64_t n, const int64_t* value, int64_t m, bool right, int64_t* at);

}  // namespace pyflame::cpu::vec
