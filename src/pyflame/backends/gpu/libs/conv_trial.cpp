// The data are one block of random numbers, repeated, so each element is known here without a copy of the tensors.
#include "pyflame/backends/gpu/libs/conv_trial.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "pyflame/base/error.h"
#include "pyflame/base/half.h"
#include "pyflame/base/philox.h"

namespace pyflame::gpu {

namespace {

constexpr int64_t kBlock = 65521;  // a prime number, so that rows do not repeat each other
constexpr int64_t kShift = 7919;   // between the blocks of two tensors
constexpr int64_t kMostSamples = 128, kLeastSamples = 24, kMostWork = int64_t{1} << 22;

// Random numbers in [-1, 1), exact in every float type.
float number(int64_t i) {
  static const auto* block = [] {
    auto* all = new std::vector<float>(static_cast<size_t>(kBlock) + 3);
    for (int64_t b = 0; 4 * b < kBlock; ++b) {
      const PhiloxBlock words = philox(0, 0, static_cast<uint64_t>(b));
      for (size_t k = 0; k < 4; ++k)
        if (const auto at = static_cast<size_t>(4 * b) + k; at < all->size())
          (*all)[at] = static_cast<float>(static_cast<int>(words[k] >> 24) - 128) / 128;
    }
    return all;
  }();
  return (*block)[static_cast<size_t>(i % kBlock)];
}

double rounding(DType d) {
  switch (d) {
    case DType::float64: return 0x1p-52;
    case DType::float32: return 0x1p-23;
    case DType::float16: return 0x1p-10;
    default: return 0x1p-7;  // bfloat16
  }
}

// Calls fn with the C++ type of a float dtype.
template <class Fn>
void with_type(DType d, Fn&& fn) {
  switch (d) {
    case DType::float64: return fn.template operator()<double>();
    case DType::float32: return fn.template operator()<float>();
    case DType::float16: return fn.template operator()<float16>();
    default: return fn.template operator()<bfloat16>();
  }
}

int64_t place(const Operand& o, const Dims& index) {
  int64_t at = 0;
  for (int d = 0; d < 4; ++d) at += index[d] * o.strides[d];
  return at;
}

}  // namespace

ConvTrial::ConvTrial(const ConvCase& c)
    : case_(c),
      tensors_{&case_.image, &case_.weight, &case_.result},
      made_(c.pass == ConvPass::grad_input    ? 0
            : c.pass == ConvPass::grad_weight ? 1
                                              : 2) {
  const Operand& made = *tensors_[made_];
  const int64_t wanted = std::min(made.numel(), std::clamp(kMostWork / terms(), kLeastSamples, kMostSamples));
  for (int64_t s = 0; s < wanted; ++s) {
    Dims index{0, 0, 0, 0};
    const PhiloxBlock words = philox(1, 0, static_cast<uint64_t>(s));
    for (int d = 0; d < 4; ++d) {
      const int64_t last = made.shape[d] - 1;
      index[d] = s < 16 ? (s >> d & 1) * last : static_cast<int64_t>(words[static_cast<size_t>(d)]) % (last + 1);
    }
    const auto [value, magnitude] = sum(index);
    const DType inner = c.dtype == DType::float64 ? DType::float64 : DType::float32;
    constexpr double kFactor = 3;  // of convolutions in the case tables
    const double limit = kFactor * (rounding(c.dtype) * std::fabs(value) +
                                    rounding(inner) * std::sqrt(static_cast<double>(terms())) * magnitude);
    samples_.push_back({index, place(made, index), value, limit + std::numeric_limits<float>::min()});
  }
}

double ConvTrial::read(size_t tensor, const Dims& index) const {
  return static_cast<double>(number(place(*tensors_[tensor], index) + static_cast<int64_t>(tensor) * kShift));
}

int64_t ConvTrial::terms() const {
  const Dims &w = case_.weight.shape, &r = case_.result.shape;
  switch (case_.pass) {
    case ConvPass::forward: return w[1] * w[2] * w[3];
    case ConvPass::grad_input: return w[0] / case_.attrs.groups * w[2] * w[3];
    default: return r[0] * r[2] * r[3];
  }
}

std::array<double, 2> ConvTrial::sum(const Dims& index) const {
  const ConvAttrs& a = case_.attrs;
  const Dims &image = case_.image.shape, &weight = case_.weight.shape, &result = case_.result.shape;
  const int64_t outs = weight[0] / a.groups, ins = weight[1];
  std::array<double, 2> total{};
  // The pixel of the image at a tap of the kernel, if it is inside.
  const auto add = [&](int64_t n, int64_t out, int64_t in, int64_t y, int64_t x, int64_t ky, int64_t kx) {
    const int64_t row = y * a.stride_h - a.pad_h + ky * a.dilation_h,
                  column = x * a.stride_w - a.pad_w + kx * a.dilation_w;
    if (row < 0 || row >= image[2] || column < 0 || column >= image[3]) return;
    const Dims pixel{n, out / outs * ins + in, row, column}, tap{out, in, ky, kx}, made{n, out, y, x};
    const double term =
        (made_ == 0 ? 1 : read(0, pixel)) * (made_ == 1 ? 1 : read(1, tap)) * (made_ == 2 ? 1 : read(2, made));
    total[0] += term;
    total[1] += std::fabs(term);
  };
  const auto each_tap = [&](auto&& use) {
    for (int64_t ky = 0; ky < weight[2]; ++ky)
      for (int64_t kx = 0; kx < weight[3]; ++kx) use(ky, kx);
  };
  if (case_.pass == ConvPass::forward) {
    for (int64_t in = 0; in < ins; ++in)
      each_tap([&](int64_t ky, int64_t kx) { add(index[0], index[1], in, index[2], index[3], ky, kx); });
  } else if (case_.pass == ConvPass::grad_weight) {
    for (int64_t n = 0; n < result[0]; ++n)
      for (int64_t y = 0; y < result[2]; ++y)
        for (int64_t x = 0; x < result[3]; ++x) add(n, index[0], index[1], y, x, index[2], index[3]);
  } else {
    const int64_t group = index[1] / ins, in = index[1] % ins;
    each_tap([&](int64_t ky, int64_t kx) {
      const int64_t row = index[2] + a.pad_h - ky * a.dilation_h, column = index[3] + a.pad_w - kx * a.dilation_w;
      if (row < 0 || column < 0 || row % a.stride_h != 0 || column % a.stride_w != 0) return;
      const int64_t y = row / a.stride_h, x = column / a.stride_w;
      if (y >= result[2] || x >= result[3]) return;
      for (int64_t out = group * outs; out < (group + 1) * outs; ++out) add(index[0], out, in, y, x, ky, kx);
    });
  }
  return total;
}

void ConvTrial::fill(GpuDevice& device, const std::array<void*, 3>& tensors) const {
  for (size_t t = 0; t < 3; ++t) {
    if (t == made_) continue;
    const size_t total = tensors_[t]->nbytes();
    auto* const to = static_cast<char*>(tensors[t]);
    with_type(case_.dtype, [&]<class T>() {
      std::vector<T> block(static_cast<size_t>(std::min(kBlock, tensors_[t]->numel())));
      for (size_t i = 0; i < block.size(); ++i)
        block[i] = static_cast<T>(number(static_cast<int64_t>(i) + static_cast<int64_t>(t) * kShift));
      const size_t first = block.size() * sizeof(T);
      device.from_host(to, block.data(), first);
      for (size_t done = first; done < total; done += std::min(done, total - done))
        device.copy(to + done, to, std::min(done, total - done));
    });
  }
  spoil(device, tensors);
}

void ConvTrial::spoil(GpuDevice& device, const std::array<void*, 3>& tensors) const {
  device.fill(tensors[made_], 0xff, tensors_[made_]->nbytes());
}

std::string ConvTrial::difference(GpuDevice& device, const std::array<void*, 3>& tensors) const {
  for (const Sample& s : samples_) {
    double got = 0;
    with_type(case_.dtype, [&]<class T>() {
      T element{};
      device.to_host(&element, static_cast<const T*>(tensors[made_]) + s.at, sizeof element);
      if constexpr (std::is_same_v<T, double>) got = element;
      else got = static_cast<double>(static_cast<float>(element));
    });
    if (!(std::fabs(got - s.value) <= s.limit))
      return fmt::format("got {} at {}; expected {} to within {:.2g}", got, s.index.str(), s.value, s.limit);
  }
  return "";
}

}  // namespace pyflame::gpu
