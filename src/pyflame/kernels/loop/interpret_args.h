// The argument of the kernel in kernels/loop/interpret.h, which the host fills in.
#pragma once

#ifndef PF_ON_DEVICE  // a kernel is compiled as one text
#include "pyflame/kernels/device/view.h"
#endif

namespace pf {

constexpr int kRegisters = 16, kMostInstructions = 96, kMostOperands = 24, kMostParams = 24, kMostDims = 6;

struct Instruction {
  enum Kind { kLoad, kStore, kReal, kInteger, kOp };
  u8 kind, op;     // op: its number in the op table
  u8 integers;     // kOp: whether it is computed in integers
  u8 stored;       // the dtype to which the result is rounded, or the dtype in memory
  u8 to, a, b, c;  // register numbers; kLoad and kStore: b is the operand; kReal and kInteger: b is the parameter
};

struct Interpreted {
  i64 n = 0;
  i64 sizes[kMostDims] = {};
  i64 strides[kMostOperands][kMostDims] = {};
  void* pointers[kMostOperands] = {};
  u64 params[kMostParams] = {};
  Instruction code[kMostInstructions] = {};
  int dims = 0, instructions = 0;

  PF_DEVICE i64 offset(int operand, i64 i) const {
    i64 at = 0;
    for (int d = dims - 1; d > 0; --d) {
      const i64 q = i / sizes[d];
      at += (i - q * sizes[d]) * strides[operand][d];
      i = q;
    }
    return at + i * strides[operand][0];
  }
};
static_assert(sizeof(Interpreted) <= 4000, "a kernel's parameters");

}  // namespace pf
