// One format is chosen for all numbers that are shown, from those numbers: whole floats as "1.", very uneven ones in scientific
// notation, everything else with a fixed number of digits.
#include "pyflame/tensor/print.h"

#include <cmath>
#include <vector>
#include "pyflame/tensor/float8.h"

namespace pyflame {

namespace {

struct Printer {
  const void* data;
  const Dims& shape;
  const Dims& strides;
  DType dtype;
  const PrintOptions& options;
  bool summarise = false;

  enum class Style { Whole, Fixed, Scientific } style = Style::Whole;
  int width = 0;

  // A complex element has two numbers, at 2 * at and after it.
  double number(int64_t at) const {
    if (dtype == DType::complex64) return static_cast<const float*>(data)[at];
    if (dtype == DType::complex128) return static_cast<const double*>(data)[at];
    if (is_float8(dtype)) return static_cast<double>(float8_value(dtype, static_cast<const uint8_t*>(data)[at]));
    return dispatch(dtype, [&]<class T>() -> double {
      const T v = static_cast<const T*>(data)[at];
      if constexpr (std::is_same_v<T, float16> || std::is_same_v<T, bfloat16>)
        return static_cast<double>(static_cast<float>(v));
      else return static_cast<double>(v);
    });
  }

  std::string text(int64_t at) const {
    if (dtype == DType::bool_) return static_cast<const bool*>(data)[at] ? "True" : "False";
    if (dtype == DType::int64) return fmt::format("{}", static_cast<const int64_t*>(data)[at]);
    if (is_complex(dtype)) {
      const double im = number(2 * at + 1);
      const std::string part = real_text(std::fabs(im));
      return real_text(number(2 * at)) + (std::signbit(im) ? "-" : "+") + part + "j";
    }
    const double v = number(at);
    if (!is_float(dtype)) return fmt::format("{}", static_cast<int64_t>(v));
    return real_text(v);
  }

  std::string real_text(double v) const {
    if (std::isnan(v)) return "nan";
    if (std::isinf(v)) return v > 0 ? "inf" : "-inf";
    switch (style) {
      case Style::Whole: return fmt::format("{:.0f}.", v);
      case Style::Fixed: return fmt::format("{:.{}f}", v, options.precision);
      case Style::Scientific: break;
    }
    return fmt::format("{:.{}e}", v, options.precision);
  }

  bool skips(int64_t size) const { return summarise && size > 2 * options.edge_items; }

  // Calls fn for every element that is shown.
  template <class F>
  void visit(int d, int64_t at, F&& fn) const {
    if (d == shape.size()) {
      fn(at);
      return;
    }
    for (int64_t i = 0; i < shape[d]; ++i) {
      if (skips(shape[d]) && i == options.edge_items) i = shape[d] - options.edge_items;
      visit(d + 1, at + i * strides[d], fn);
    }
  }

  void choose() {
    if (has_gradient(dtype)) {
      bool whole = true;
      double low = INFINITY, high = 0;
      const auto see = [&](double v) {
        if (!std::isfinite(v)) return;
        whole = whole && v == std::floor(v);
        high = std::max(high, v);
        if (v > 0) low = std::min(low, v);
      };
      visit(0, 0, [&](int64_t at) {
        see(std::fabs(number(is_complex(dtype) ? 2 * at : at)));
        if (is_complex(dtype)) see(std::fabs(number(2 * at + 1)));
      });
      const bool uneven = high > 0 && (high >= 1e8 || (!whole && (low < 1e-4 || high / low > 1e3)));
      style = options.scientific.value_or(uneven) ? Style::Scientific : whole ? Style::Whole : Style::Fixed;
    }
    visit(0, 0, [&](int64_t at) { width = std::max(width, static_cast<int>(text(at).size())); });
  }

  void row(std::string& out, int64_t at, int indent) const {
    const int64_t size = shape.back();
    const int per_line = std::max(1, (options.line_width - indent) / (width + 2));
    int on_line = 0;
    out += '[';
    for (int64_t i = 0; i < size; ++i) {
      std::string item;
      if (skips(size) && i == options.edge_items) {
        item = "...";
        i = size - options.edge_items - 1;
      } else {
        item = fmt::format("{:>{}}", text(at + i * strides[shape.size() - 1]), width);
      }
      out += item;
      if (i + 1 == size) break;
      out += ',';
      if (++on_line == per_line) {
        out += '\n' + std::string(static_cast<size_t>(indent + 1), ' ');
        on_line = 0;
      } else {
        out += ' ';
      }
    }
    out += ']';
  }

  void print(std::string& out, int d, int64_t at, int indent) const {
    if (d + 1 == shape.size()) {
      row(out, at, indent);
      return;
    }
    // One empty line more for every dim between the rows, as NumPy.
    const std::string gap = ',' + std::string(static_cast<size_t>(shape.size() - d - 1), '\n') +
                            std::string(static_cast<size_t>(indent + 1), ' ');
    out += '[';
    for (int64_t i = 0; i < shape[d]; ++i) {
      if (i > 0) out += gap;
      if (skips(shape[d]) && i == options.edge_items) {
        out += "...";
        i = shape[d] - options.edge_items - 1;
      } else {
        print(out, d + 1, at + i * strides[d], indent + 1);
      }
    }
    out += ']';
  }
};

}  // namespace

std::string format_tensor(const void* data, const Dims& shape, const Dims& strides, DType dtype, int indent,
                          const PrintOptions& options) {
  if (shape.numel() == 0) return "[]";
  Printer p{data, shape, strides, dtype, options};
  p.summarise = shape.numel() > options.threshold;
  p.choose();
  if (shape.empty()) return p.text(0);
  std::string out;
  p.print(out, 0, 0, indent);
  return out;
}

}  // namespace pyflame
