// Convolutions of float32 by oneDNN, several images at a time on one thread, on channels-last images: others are turned call by call, while
// they are in the cache. Weights go into a layout of the library's once a run. The images of a call depend on the shape alone, not on the
// threads that there are, and so do the results.
#pragma once
#include <array>
#include <cstdint>
#include <memory>

namespace pyflame::cpu {

class DnnConv {
 public:
  enum class Face : uint8_t { output, input, weight };  // which of the three is computed from the others
  struct Problem {
    int64_t images, ic, h, w, oc, kh, kw, oh, ow;
    int64_t stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w;
    bool a_last, b_last,
        weight_last;  // channels-last: the first of the images that run() is given, the other one, and the weights
  };
  // Null where oneDNN has no kernel for this processor that beats a product over unfolded images. Remembered by shape.
  static std::shared_ptr<const DnnConv> find(Face face, const Problem& p);

  virtual ~DnnConv() = default;
  virtual size_t weight_bytes() const = 0;  // of weights, or of their gradient, in its layout
  // Parts of the output channels, so that threads can share the work: from (O, I, H, W) or (O, H, W, I), and back.
  virtual int64_t parts() const = 0;
  virtual size_t part_bytes() const = 0;
  virtual void pack(int64_t part, const float* weight, void* to) const = 0;
  virtual void unpack(int64_t part, const void* from, float* weight) const = 0;
  // output: (x, packed weights) -> y; input: (dy, packed weights) -> dx; weight: (dy, x) -> packed dw.
  virtual void run(const void* a, const void* b, void* out) const = 0;
};

}  // namespace pyflame::cpu
