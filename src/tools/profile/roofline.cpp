// Computes the arithmetic and the bytes of an operator from its input sizes.
#include "tools/profile/roofline.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "tools/profile/text_values.h"

namespace pyflame::tools::profile {

namespace {

using Shape = std::vector<double>;
constexpr size_t kMaxInputs = 64;
constexpr double kMaxElements = 1e15;  // larger sizes cannot be those of a tensor

// [[8,512],[],[512,64]]: a list of shapes. Deeper lists (of tensors) are flattened into their shapes.
std::vector<Shape> parse_shapes(std::string_view text) {
  std::vector<Shape> shapes;
  size_t depth = 0;
  std::string number;
  const auto flush = [&] {
    if (!number.empty() && !shapes.empty()) {
      int64_t v = 0;
      shapes.back().push_back(to_int(number, v) && v >= 0 ? static_cast<double>(v) : NAN);
    }
    number.clear();
  };
  for (char c : text) {
    if (c == '[') {
      if (++depth >= 1 && shapes.size() < kMaxInputs) shapes.emplace_back();
    } else if (c == ']' || c == ',' || c == ' ') {
      flush();
      if (c == ']' && depth > 0) --depth;
    } else {
      number += c;
    }
  }
  return shapes;
}

// The items of a list of texts: ["float","Scalar"].
std::vector<std::string> parse_texts(std::string_view text) {
  std::vector<std::string> out;
  bool inside = false;
  for (char c : text) {
    if (c == '"') {
      if (!inside && out.size() < kMaxInputs) out.emplace_back();
      inside = !inside;
    } else if (inside && !out.empty()) {
      out.back() += c;
    }
  }
  return out;
}

double elements(const Shape& s) {
  double n = 1;
  for (double d : s) n *= d;
  return std::isfinite(n) && n <= kMaxElements ? n : NAN;
}

struct Inputs {
  std::vector<Shape> shapes;  // of the arguments, in order
  std::vector<std::string> types, values;
  bool has(size_t i, size_t dims) const { return i < shapes.size() && shapes[i].size() == dims; }
  const std::string& type(size_t i) const {
    static const std::string none;
    return i < types.size() ? types[i] : none;
  }
  const std::string& value(size_t i) const {
    static const std::string none;
    return i < values.size() ? values[i] : none;
  }
};

Inputs parse(std::string_view dims, std::string_view types, std::string_view values) {
  Inputs in;
  in.shapes = parse_shapes(dims);
  if (!in.shapes.empty()) in.shapes.erase(in.shapes.begin());  // the list itself
  in.types = parse_texts(types);
  in.values = parse_texts(values);
  return in;
}

// Products of 8 bits and fewer write 16 bits. Two numbers of 4 bits are one element.
Work gemm(double batch, double m, double n, double k, const std::string& type) {
  const bool pairs = type.find("Float4") != std::string::npos;
  const auto size = static_cast<double>(std::max<int64_t>(1, type_bytes(type)));
  Work w;
  w.flops = (pairs ? 4 : 2) * batch * m * n * k;
  w.bytes = batch * (size * (m * k + k * n) + std::max(2.0, size) * m * n);
  w.dtype = pairs ? "fp4" : type_family(type);
  return w;
}

bool is_op(std::string_view op, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), op) != names.end();
}

Work gemm_work(std::string_view op, const Inputs& in) {
  if (is_op(op, {"aten::mm", "aten::_scaled_mm", "aten::_int_mm"}) && in.has(0, 2) && in.has(1, 2))
    return gemm(1, in.shapes[0][0], in.shapes[1][1], in.shapes[0][1], in.type(0));
  if (is_op(op, {"aten::addmm", "aten::addmm_", "aten::_addmm_activation"}) && in.has(1, 2) && in.has(2, 2))
    return gemm(1, in.shapes[1][0], in.shapes[2][1], in.shapes[1][1], in.type(1));
  if (is_op(op, {"aten::bmm"}) && in.has(0, 3) && in.has(1, 3))
    return gemm(in.shapes[0][0], in.shapes[0][1], in.shapes[1][2], in.shapes[0][2], in.type(0));
  if (is_op(op, {"aten::baddbmm", "aten::baddbmm_"}) && in.has(1, 3) && in.has(2, 3))
    return gemm(in.shapes[1][0], in.shapes[1][1], in.shapes[2][2], in.shapes[1][2], in.type(1));
  if (is_op(op, {"aten::linear"}) && in.shapes.size() >= 2 && !in.shapes[0].empty() && in.has(1, 2)) {
    const double k = in.shapes[0].back(), rows = k > 0 ? elements(in.shapes[0]) / k : 0;
    return gemm(1, rows, in.shapes[1][0], k, in.type(0));
  }
  // aiter's weights have a row for each output.
  if (op.starts_with("aiter::gemm_a") && in.has(0, 2) && in.has(1, 2) && in.shapes[0][1] == in.shapes[1][1])
    return gemm(1, in.shapes[0][0], in.shapes[1][0], in.shapes[0][1], in.type(0));
  if (is_op(op, {"aten::mv"}) && in.has(0, 2)) return gemm(1, in.shapes[0][0], 1, in.shapes[0][1], in.type(0));
  return {};
}

// "[1, 1]" among the concrete inputs.
std::vector<double> numbers_of(const std::string& text) {
  const std::vector<Shape> s = parse_shapes(text);
  return s.empty() ? std::vector<double>() : s[0];
}

// The positions of an operator's arguments. Forward operators begin with input and weight. Backward operators have the gradient of the output before them.
struct ConvolutionOp {
  std::string_view name;
  size_t input, stride, padding, dilation;
  int transposed;  // the position of the flag; negative: there is none
  int mask;        // the position of the flags for wanted gradients; negative: a forward operator
};
constexpr ConvolutionOp kConvolutions[] = {
    {"aten::convolution", 0, 3, 4, 5, 6, -1},
    {"aten::_convolution", 0, 3, 4, 5, 6, -1},
    {"aten::convolution_overrideable", 0, 3, 4, 5, 6, -1},
    {"aten::conv1d", 0, 3, 4, 5, -1, -1},
    {"aten::conv2d", 0, 3, 4, 5, -1, -1},
    {"aten::conv3d", 0, 3, 4, 5, -1, -1},
    {"aten::cudnn_convolution", 0, 3, 2, 4, -1, -1},
    {"aten::miopen_convolution", 0, 4, 3, 5, -1, -1},
    {"aten::miopen_depthwise_convolution", 0, 4, 3, 5, -1, -1},
    {"aten::convolution_backward", 1, 4, 5, 6, 7, 10},
};

Work convolution_work(std::string_view op, const Inputs& in) {
  const auto* c = std::find_if(std::begin(kConvolutions), std::end(kConvolutions),
                               [&](const ConvolutionOp& k) { return k.name == op; });
  if (c == std::end(kConvolutions) || in.shapes.size() < c->input + 2) return {};
  const Shape &x = in.shapes[c->input], &w = in.shapes[c->input + 1];
  if (x.size() < 3 || x.size() != w.size()) return {};
  if (c->transposed >= 0 && in.value(static_cast<size_t>(c->transposed)) == "True") return {};
  Shape out;
  double passes = 1;
  if (c->mask >= 0) {
    out = in.shapes[0];
    const std::string& mask = in.value(static_cast<size_t>(c->mask));  // "[True, True, False]": input, weight, bias
    passes = (mask.starts_with("[True") ? 1 : 0) + (mask.find(", True,") != std::string::npos ? 1 : 0);
  } else {
    if (in.value(c->stride).empty() || in.value(c->dilation).empty()) return {};
    const std::vector<double> stride = numbers_of(in.value(c->stride)), padding = numbers_of(in.value(c->padding)),
                              dilation = numbers_of(in.value(c->dilation));
    out = {x[0], w[0]};
    for (size_t d = 2; d < x.size(); ++d) {
      const auto at = [&](const std::vector<double>& v, double otherwise) {
        return v.empty() ? otherwise : v[std::min(d - 2, v.size() - 1)];
      };
      out.push_back(
          std::floor((x[d] + 2 * at(padding, 0) - at(dilation, 1) * (w[d] - 1) - 1) / std::max(1.0, at(stride, 1))) +
          1);
    }
  }
  const auto size = static_cast<double>(std::max<int64_t>(1, type_bytes(in.type(c->input))));
  // Each output element is a sum over the elements of a filter. The gradients of input and of weight each cost the same.
  Work work;
  work.flops = passes * 2 * elements(out) * (elements(w) / std::max(1.0, w[0]));
  work.bytes = passes * size * (elements(x) + elements(w) + elements(out));
  work.dtype = type_family(in.type(c->input));
  return work;
}

struct AttentionOp {
  std::string_view name;
  bool backward, heads_second;  // [batch, heads, length, size], not [batch, length, heads, size]
  size_t causal;                // the position of the flag
};
constexpr AttentionOp kAttentions[] = {
    {"aten::scaled_dot_product_attention", false, true, 5},
    {"aten::_scaled_dot_product_flash_attention", false, true, 4},
    {"aten::_scaled_dot_product_efficient_attention", false, true, 6},
    {"aten::_scaled_dot_product_cudnn_attention", false, true, 6},
    {"aten::_cudnn_attention_forward", false, true, 10},
    {"aten::_flash_attention_forward", false, false, 8},
    {"aten::_efficient_attention_forward", false, false, 9},
    {"flash_attn::_flash_attn_forward", false, false, 5},
    {"aiter::mha_fwd", false, false, 5},
    {"aten::_scaled_dot_product_flash_attention_backward", true, true, 11},
    {"aten::_scaled_dot_product_efficient_attention_backward", true, true, 11},
    {"aten::_scaled_dot_product_cudnn_attention_backward", true, true, 14},
    {"aten::_cudnn_attention_backward", true, true, 14},
    {"aten::_flash_attention_backward", true, false, 11},
};

Work attention_work(std::string_view op, const Inputs& in) {
  const auto* a =
      std::find_if(std::begin(kAttentions), std::end(kAttentions), [&](const AttentionOp& k) { return k.name == op; });
  const size_t first = a != std::end(kAttentions) && a->backward ? 1 : 0;  // arguments after the gradient of the output
  if (a == std::end(kAttentions) || !in.has(first, 4) || !in.has(first + 1, 4)) return {};
  const Shape &q = in.shapes[first], &k = in.shapes[first + 1];
  const double heads = a->heads_second ? q[1] : q[2], rows = a->heads_second ? q[2] : q[1],
               keys = a->heads_second ? k[2] : k[1];
  Work w;
  w.flops = (a->backward ? 10 : 4) * q[0] * heads * rows * keys * q[3];
  const std::string& causal = in.value(a->causal);  // a flag, or the kind of the mask
  if (causal == "True" || causal == "1" || causal == "2") w.flops /= 2;
  const auto size = static_cast<double>(std::max<int64_t>(1, type_bytes(in.type(first))));
  w.bytes = size * (elements(q) * 2 + elements(k) * 2) * (a->backward ? 2 : 1);
  w.dtype = type_family(in.type(first));
  return w;
}

// Work that memory bandwidth limits: each input is read once, and an output of the size of the largest input is written (of a reduction: almost nothing).
Work moving_work(std::string_view op, const Inputs& in, Category category) {
  // Of a table of positions only some rows are read.
  if (op.find("rotary") != std::string_view::npos || op.find("rope") != std::string_view::npos) return {};
  double bytes = 0, largest = 0, count = 0;
  std::string_view dtype;
  for (size_t i = 0; i < in.shapes.size(); ++i) {
    const int64_t size = type_bytes(in.type(i));
    if (size == 0 || (in.shapes[i].empty() && i > 0)) continue;
    const double n = elements(in.shapes[i]);
    if (!std::isfinite(n) || n <= 1) continue;
    bytes += n * static_cast<double>(size);
    if (n * static_cast<double>(size) > largest) {
      largest = n * static_cast<double>(size);
      count = n;
      dtype = type_family(in.type(i));
    }
  }
  if (bytes <= 0) return {};
  Work w;
  w.bytes = bytes + (category == Category::reduction ? 0 : largest);
  w.flops = count;  // one operation per element, which is never the limit
  w.dtype = dtype;
  return w;
}

}  // namespace

Work work_of(std::string_view op, std::string_view dims, std::string_view types, std::string_view values,
             Category category) {
  if (dims.empty()) return {};
  const Inputs in = parse(dims, types, values);
  Work w;
  const Category asked = classify_op(op);
  switch (category) {
    case Category::gemm: w = asked == Category::convolution ? Work() : gemm_work(op, in); break;
    case Category::convolution: w = convolution_work(op, in); break;
    case Category::attention: w = attention_work(op, in); break;
    case Category::elementwise:
    case Category::normalisation:
    case Category::reduction:
      // Only if the operator itself is of this kind: a kernel that adds a bias after a GEMM does not read the inputs of the GEMM.
      if (asked == category) w = moving_work(op, in, category);
      break;
    case Category::memory:
      // Source and destination of a copy are both among its inputs.
      if (op == "aten::copy_") w = moving_work(op, in, Category::reduction);
      break;
    default: break;
  }
  const bool sound = std::isfinite(w.flops) && std::isfinite(w.bytes) && w.flops >= 0 && w.bytes >= 0;
  return sound ? w : Work();
}

double peak_tflops(const GpuProduct& p, std::string_view dtype) {
  if (dtype == "fp64") return p.fp64_tflops;
  if (dtype == "fp32") return p.fp32_tflops;
  if (dtype == "fp16") return p.fp16_tflops;
  if (dtype == "bf16") return p.bf16_tflops > 0 ? p.bf16_tflops : p.fp16_tflops;
  if (dtype == "fp8") return p.fp8_tflops;
  if (dtype == "int8") return int8_tflops(p);
  // CDNA 4 and Blackwell multiply numbers of 4 bits twice as fast as those of 8.
  if (dtype == "fp4") return p.gfx == "gfx950" || p.gfx == "sm_100" ? 2 * p.fp8_tflops : 0;
  return 0;
}

Roof roof_of(const Work& total, double us, double mean_us, double peak_gbs, double peak) {
  Roof r;
  if (us <= 0 || !total.known()) return r;
  r.tflops = total.flops / us / 1e6;
  r.gbs = total.bytes / us / 1e3;
  r.intensity = total.bytes > 0 ? total.flops / total.bytes : 0;
  if (peak_gbs <= 0) return r;
  if (total.flops <= 0) {
    r.of_peak = r.gbs / peak_gbs;
    r.bound = "memory";
  } else {
    if (peak <= 0) return r;
    const double memory_roof = r.intensity * peak_gbs / 1e3;  // TFLOP/s
    r.of_peak = r.tflops / std::min(peak, memory_roof);
    r.bound = memory_roof < peak ? "memory" : "compute";
  }
  if (mean_us < 10 && r.of_peak >= 0 && r.of_peak < 0.3) r.bound = "latency";
  return r;
}

Roof roof_of(const Work& total, double us, double mean_us, const GpuProduct* product) {
  if (product == nullptr) return roof_of(total, us, mean_us, 0, 0);
  return roof_of(total, us, mean_us, product->bandwidth_gbs, peak_tflops(*product, total.dtype));
}

Roof roof_of(const Work& total, double us, double mean_us, const Ceilings& ceilings) {
  return roof_of(total, us, mean_us, ceilings.gbs, ceilings.peak(total.dtype));
}

}  // namespace pyflame::tools::profile
