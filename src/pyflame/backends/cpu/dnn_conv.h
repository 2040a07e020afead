// Convolutions of float32 by oneDNN, several images or a part of a volume per call on one thread, on channels-last images. Other images are
// transposed in each call, while they are in the cache. Weights are converted to the library's layout once per run. The
// number of images per call depends on the shape alone, not on the number of threads, and so do the results.
#pragma once
#include <array>
#include <compare>
#include <cstdint>
#include <memory>

namespace pyflame::cpu {

class DnnConv {
 public:
  // Which of the three convolutions: forward, gradient of the input, gradient of the weight.
  enum class Pass : uint8_t { forward, grad_input, grad_weight };
  struct Problem {
    int64_t
        volume;  // whether there are planes, rows and columns; an image has one plane, which the library does not see
    int64_t images, ic, oc;
    std::array<int64_t, 3> in, kernel, out, stride, dilation, before, after;  // before, after: the padding
    // Whether these are channels-last: run()'s first image operand, the other one, and the weights
    int64_t a_last, b_last, weight_last;
    int64_t bias;            // forward: whether a number is added to each channel
    int64_t a_step, b_step;  // from a channel to the next one in a part of a volume; 0: the operand is contiguous
    auto operator<=>(const Problem&) const = default;
  };
  // Null if oneDNN has no kernel for this processor that is faster than a product over unfolded images. Cached by
  // shape.
  static std::shared_ptr<const DnnConv> find(Pass pass, const Problem& p);

  virtual ~DnnConv() = default;
  virtual size_t weight_bytes() const = 0;  // of the weights, or of their gradient, in the library's layout
  // Parts of the output channels, so that threads can share the work: conversions from (O, I, H, W) or (O, H, W, I),
  // and back.
  virtual int64_t parts() const = 0;
  virtual size_t part_bytes() const = 0;
  virtual bool same_weights(const DnnConv& other) const = 0;  // whether their layouts are the same
  virtual void pack(int64_t part, const float* weight, void* to) const = 0;
  virtual void unpack(int64_t part, const void* from, float* weight) const = 0;
  // output: (x, packed weights, bias) -> y; input: (dy, packed weights) -> dx; weight: (dy, x) -> packed dw.
  virtual void run(const void* a, const void* b, void* out, const float* bias = nullptr) const = 0;
};

}  // namespace pyflame::cpu
