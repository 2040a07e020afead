"""The choice of the next tokens on a GPU, where the logits are: one workgroup for each text.

A text's settings are five numbers: temperature, top_k, top_p, min_p, and a number from 0 to 1 that its request has drawn for this token. Tokens are put in order by their logits, of equal
ones the lower id first. top_k keeps the first k of them. Of these, top_p keeps the fewest whose share of the probability is at least top_p, and min_p those that are at least min_p times as
likely as the first. The drawn number then lies somewhere in the sum of the kept probabilities in the order of the ids, and chooses the token there. So the choice depends on the text's own logits
and settings alone. Temperature 0 takes the likeliest token.
"""
import numpy as np

from .. import _C
from .._kernels import kernel

SETTINGS = ("temperature", "top_k", "top_p", "min_p", "drawn")
_THREADS = 1024


def _by_ops(logits, settings, known):
    """The same with tensor ops."""
    x = logits[:, :known].float()
    temperature, top_k, top_p, min_p, drawn = (s.unsqueeze(1) for s in settings.float().unbind(1))
    order = x.argsort(1, descending=True, stable=True)
    highest = x.amax(1, keepdim=True)
    w = _C.exp((x - highest) / temperature.clamp(min=_LEAST))
    w = w.gather(1, order)
    place = _C.arange(known, device=x.device).unsqueeze(0)
    w = _C.where((top_k > 0) & (place >= top_k), 0.0, w)
    sums = w.cumsum(1)
    w = _C.where((top_p < 1) & (sums - w >= top_p * sums[:, -1:]) | (w < min_p), 0.0, w)
    w = _C.zeros_like(w).scatter_(1, order, w)
    sums = w.cumsum(1)
    ids = (sums <= drawn * sums[:, -1:]).sum(1)
    last = _C.where(w > 0, place, -1).amax(1)  # where rounding leads beyond the sum
    ids = _C.where(temperature[:, 0] < _LEAST, order[:, 0], _C.minimum(ids, last))
    return ids, highest[:, 0]


_LEAST = 1e-30  # a lower temperature takes the likeliest token

_HEADER = f"""
constexpr int kThreads = {_THREADS}, kGroups = 32;

// Larger floats have larger keys.
PF_DEVICE unsigned key_of(float x) {{
  const unsigned bits = pf::bits_of_float(x + 0.0f);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}}

// The tokens that are kept: those with a larger key, and of those with this key the ones with a lower id.
struct Kept {{
  unsigned key;
  int ids;
  PF_DEVICE bool has(unsigned k, int id) const {{ return k > key || (k == key && id < ids); }}
}};

// The first of sums[first] to sums[last - 1] that reaches beyond the target, or the last that is not 0; `before` grows by those in front of it.
PF_DEVICE int place(const float* sums, int first, int last, float target, float& before) {{
  int found = first;
  float in_front = before;
  for (int i = first; i < last; ++i) {{
    if (sums[i] > 0) found = i, in_front = before;
    if (sums[i] > 0 && before + sums[i] > target) break;
    before += sums[i];
  }}
  before = in_front;
  return found;
}}

// Measures of tokens: 1 each, or their probability.
struct One {{
  using T = int;
  PF_DEVICE int of(float) const {{ return 1; }}
}};
struct Weight {{
  using T = float;
  float highest, scale;
  PF_DEVICE float of(float x) const {{ return pf::exp<float>((x - highest) * scale); }}
}};

// The first of the tokens that `in` keeps, in their order, whose measures add up to at least `wanted`; a multiple of two bits of the key is found in each pass.
template <class M>
PF_DEVICE Kept fewest(const float* x, int known, const Kept& in, const M& measure, typename M::T wanted, typename M::T* shared, int* counts) {{
  using T = typename M::T;
  unsigned key = 0;
  for (int bit = 30; bit >= 0; bit -= 2) {{
    T sums[3] = {{0, 0, 0}};
    for (int i = (int)pf::thread(); i < known; i += kThreads) {{
      const unsigned k = key_of(x[i]);
      if (!in.has(k, i) || k < (key | 1u << bit)) continue;
      const T m = measure.of(x[i]);
      sums[0] += m;
      if (k >= (key | 2u << bit)) sums[1] += m;
      if (k >= (key | 3u << bit)) sums[2] += m;
    }}
    for (int s = 0; s < 3; ++s) sums[s] = pf::over_group<pf::Sum, kThreads>(sums[s], shared);
    if (sums[2] >= wanted) key |= 3u << bit;
    else if (sums[1] >= wanted) key |= 2u << bit;
    else if (sums[0] >= wanted) key |= 1u << bit;
  }}
  // Of the tokens with this key, so many that the sum is reached, those with the lowest ids.
  T larger = 0, each = 0;
  int equal = 0;
  for (int i = (int)pf::thread(); i < known; i += kThreads) {{
    const unsigned k = key_of(x[i]);
    if (!in.has(k, i)) continue;
    if (k > key) larger += measure.of(x[i]);
    if (k == key) ++equal, each = measure.of(x[i]);
  }}
  larger = pf::over_group<pf::Sum, kThreads>(larger, shared);
  each = pf::over_group<pf::Largest, kThreads>(each, shared);
  equal = pf::over_group<pf::Sum, kThreads>(equal, counts);
  if (key < in.key) return in;  // rounding leads beyond the sum
  const int take = wanted - larger <= each ? 1 : (int)pf::m_ceil((float)(wanted - larger) / (float)each);
  int ids = in.key == key ? in.ids : known;
  if (take < equal) {{
    int low = 0;  // fewer than `take` of them have a lower id
    for (int step = 1 << 30; step > 0; step >>= 1) {{
      if (low + step > known || low + step < 0) continue;
      int below = 0;
      for (int i = (int)pf::thread(); i < low + step; i += kThreads) {{
        const unsigned k = key_of(x[i]);
        below += k == key && in.has(k, i);
      }}
      below = pf::over_group<pf::Sum, kThreads>(below, counts);
      if (below < take) low += step;
    }}
    ids = low + 1;
  }}
  return Kept{{key, ids}};
}}
"""

draw = kernel(
    """
    PF_SHARED float shared[kThreads];
    PF_SHARED int counts[kThreads];
    PF_SHARED float groups[kGroups];
    const int row = (int)pf::group().x, me = (int)pf::thread(), n = (int)known;
    const pf::i64 width = logits_shape[1];
    const float* const x = logits + row * width;
    const float* const set = settings + row * 5;
    float most = -INFINITY;
    int wrong = 0;
    for (int i = me; i < n; i += kThreads) {
      const float v = x[i];
      wrong |= v != v;
      most = v > most ? v : most;
    }
    wrong = pf::over_group<pf::Sum, kThreads>(wrong, counts);
    most = pf::over_group<pf::Largest, kThreads>(most, shared);
    int id = 0;
    if (wrong || !(most > -INFINITY) || most == INFINITY) {
      most = wrong ? NAN : most;
    } else if (set[0] < 1e-30f) {
      int first = n;
      for (int i = me; i < n; i += kThreads)
        if (x[i] == most && i < first) first = i;
      id = -pf::over_group<pf::Largest, kThreads>(-first, counts);
    } else {
      const Weight weight{most, 1.0f / set[0]};
      Kept kept{0u, n};
      const int top_k = set[1] < (float)n ? (int)set[1] : 0;
      if (top_k > 0) kept = fewest(x, n, kept, One{}, top_k, counts, counts);
      if (set[2] < 1.0f) {
        float sum = 0;
        for (int i = me; i < n; i += kThreads)
          if (kept.has(key_of(x[i]), i)) sum += weight.of(x[i]);
        sum = pf::over_group<pf::Sum, kThreads>(sum, shared);
        kept = fewest(x, n, kept, weight, sum * set[2], shared, counts);
      }
      // Each thread has tokens that lie side by side.
      const int each = (n + kThreads - 1) / kThreads, begin = me * each, end = begin + each < known ? begin + each : n;
      float mine = 0;
      for (int i = begin; i < end; ++i) {
        const float w = weight.of(x[i]);
        if (w >= set[3] && kept.has(key_of(x[i]), i)) mine += w;
      }
      shared[me] = mine;
      pf::barrier();
      if (me < kGroups) {
        float sum = 0;
        for (int t = 0; t < kThreads / kGroups; ++t) sum += shared[me * (kThreads / kGroups) + t];
        groups[me] = sum;
      }
      pf::barrier();
      if (me == 0) {
        float sum = 0;
        for (int g = 0; g < kGroups; ++g) sum += groups[g];
        const float target = sum * set[4];
        float before = 0;
        const int g = place(groups, 0, kGroups, target, before), t = place(shared, g * (kThreads / kGroups), (g + 1) * (kThreads / kGroups), target, before);
        for (int i = t * each; i < (t + 1) * each && i < n; ++i) {
          const float w = weight.of(x[i]);
          if (w == 0 || !(w >= set[3]) || !kept.has(key_of(x[i]), i)) continue;
          id = i;
          before += w;
          if (before > target) break;
        }
      }
    }
    if (me == 0) {
      ids[row] = id;
      highest[row] = most;
    }
    """,
    "draw_tokens", inputs=["logits", "settings"], outputs=["ids", "highest"], scalars={"known": "int64"}, header=_HEADER, threads=_THREADS, reference=_by_ops,
    result=lambda logits, settings, known: [((logits.shape[0],), _C.int64), ((logits.shape[0],), _C.float32)], grid=lambda logits, settings, known: logits.shape[0])


def settings_of(rows, count):
    """The settings of texts, a list of tuples, as a float32 array (count, 5). Rows without a text take the likeliest token."""
    out = np.zeros((count, len(SETTINGS)), dtype=np.float32)
    out[: len(rows)] = rows
    return out
