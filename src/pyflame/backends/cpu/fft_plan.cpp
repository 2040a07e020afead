// The plan of a length: its radices, and tables of factors. All angles are computed in double.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "pyflame/backends/cpu/fft.h"

namespace pyflame::cpu::fft {

namespace {

__extension__ using Wide = __int128;

// A large radix first, because its groups are the next pass's vectors; then powers of 2 in few passes.
std::vector<int> radices(int64_t n) {
  std::vector<int> r;
  for (const int first : {16, 8, 13, 11, 9, 7, 5, 4, 3, 2}) {
    if (n % first != 0) continue;
    r.push_back(first), n /= first;
    break;
  }
  int twos = 0;
  while (n % 2 == 0) ++twos, n /= 2;
  while (twos > 0) {
    const int bits = twos % 4 == 0 ? 4 : std::min(twos, 3);
    r.push_back(1 << bits), twos -= bits;
  }
  for (const int f : {9, 3, 5, 7, 11, 13})
    while (n % f == 0) r.push_back(f), n /= f;
  return n == 1 ? r : std::vector<int>();
}

// The least length above n - 1 whose only factors are 2 and at most one 3, 5 or 9.
int64_t smooth_length(int64_t n) {
  int64_t best = 1;
  while (best < n) best *= 2;
  for (int64_t f : {3, 5, 9}) {
    int64_t m = f;
    while (m < n) m *= 2;
    best = std::min(best, m);
  }
  return best;
}

bool is_prime(int64_t n) {
  for (int64_t f = 2; f * f <= n; ++f)
    if (n % f == 0) return false;
  return n > 1;
}

int64_t power(int64_t base, int64_t exponent, int64_t modulus) {
  Wide result = 1, x = base;
  for (; exponent > 0; exponent /= 2, x = x * x % modulus)
    if (exponent % 2 == 1) result = result * x % modulus;
  return static_cast<int64_t>(result);
}
// A number whose powers are all but 0 modulo a prime, p - 1 having small factors only.
int64_t generator(int64_t p) {
  for (int64_t g = 2;; ++g) {
    const auto short_cycle = [&](int64_t f) { return (p - 1) % f == 0 && power(g, (p - 1) / f, p) == 1; };
    const auto factors = {2, 3, 5, 7, 11, 13};
    if (std::none_of(factors.begin(), factors.end(), short_cycle)) return g;
  }
}

double angle(int64_t k, int64_t of) { return -2 * std::numbers::pi * static_cast<double>(k) / static_cast<double>(of); }

}  // namespace

template <class T>
void Plan<T>::convolve(const std::vector<T>& b_re, const std::vector<T>& b_im) {
  const int64_t m = inner[0].n;
  std::vector<T> room(static_cast<size_t>(inner[0].work()));
  kernel_re.resize(b_re.size()), kernel_im.resize(b_re.size());
  transform<T>(inner[0], {const_cast<T*>(b_re.data()), const_cast<T*>(b_im.data()), false},
               {kernel_re.data(), kernel_im.data(), false}, static_cast<T>(1.0 / static_cast<double>(m)), room.data());
}

template <class T>
void Plan<T>::plan_rader() {
  inner.emplace_back(n - 1);
  const int64_t g = generator(n);
  std::vector<T> b_re(static_cast<size_t>(n - 1)), b_im(static_cast<size_t>(n - 1));
  order.resize(static_cast<size_t>(n - 1));
  for (int64_t k = 0, at = 1; k < n - 1; ++k, at = at * g % n) {
    order[static_cast<size_t>(k)] = static_cast<int32_t>(at);
    const auto back = static_cast<size_t>(k == 0 ? 0 : n - 1 - k);  // the power -k is at
    b_re[back] = static_cast<T>(std::cos(angle(at, n))), b_im[back] = static_cast<T>(std::sin(angle(at, n)));
  }
  convolve(b_re, b_im);
}

template <class T>
void Plan<T>::plan_bluestein() {
  inner.emplace_back(smooth_length(2 * n - 1));
  const int64_t m = inner[0].n;
  std::vector<T> b_re(static_cast<size_t>(m)), b_im(static_cast<size_t>(m));
  for (int64_t k = 0; k < n; ++k) {
    const double a = angle(static_cast<int64_t>(Wide{k} * k % (2 * n)), 2 * n);
    chirp_re.push_back(static_cast<T>(std::cos(a))), chirp_im.push_back(static_cast<T>(std::sin(a)));
    for (const int64_t at : {k, k ? m - k : 0}) {
      b_re[static_cast<size_t>(at)] = static_cast<T>(std::cos(a));
      b_im[static_cast<size_t>(at)] = static_cast<T>(-std::sin(a));
    }
  }
  convolve(b_re, b_im);
}

template <class T>
Plan<T>::Plan(int64_t length) : n(length) {
  const std::vector<int> factors = radices(n);
  if (n > 1 && factors.empty()) {
    constexpr int64_t kLongestRader = int64_t{1} << 20;
    if (n < kLongestRader && !radices(n - 1).empty() && is_prime(n)) plan_rader();
    else plan_bluestein();
    return;
  }
  const int64_t vector = lanes<T>();
  int64_t rest = n, s = 1;
  for (int r : factors) {
    const int64_t m = rest / r;
    const auto kind = s == 1 ? Pass::kFirst : 2 * s == vector && m > 1 ? Pass::kHalves : Pass::kNeighbours;
    passes.push_back({r, kind, m, s, re.size()});
    const auto add = [&](int64_t k, int64_t g) {
      const double a = angle(g * k, rest);
      re.push_back(static_cast<T>(std::cos(a))), im.push_back(static_cast<T>(std::sin(a)));
    };
    if (kind == Pass::kNeighbours) {
      for (int64_t g = 0; g < m; ++g)
        for (int k = 1; k < r; ++k) add(k, g);
    } else {
      for (int k = 1; k < r; ++k)
        for (int64_t g = 0; g < m; ++g)
          for (int64_t q = 0; q < s; ++q) add(k, g);
    }
    rest = m, s *= r;
  }
  re.resize(re.size() + kMostLanes), im.resize(im.size() + kMostLanes);  // vectors reach beyond a short table
}

template struct Plan<float>;
template struct Plan<double>;

}  // namespace pyflame::cpu::fft
