#include "pyflame/tensor/weight_planes.h"

#include <algorithm>

namespace pyflame {

namespace {

constexpr std::array<PlaneForm, 12> kForms = {{
    {"Q4_0", {{{2, 16}, {}, {}, {0, 2}}}},
    {"Q4_1", {{{4, 16}, {}, {}, {0, 4}}}},
    {"Q5_0", {{{6, 16}, {2, 4}, {}, {0, 2}}}},
    {"Q5_1", {{{8, 16}, {4, 4}, {}, {0, 4}}}},
    {"Q8_0", {{{2, 32}, {}, {}, {0, 2}}}},
    {"Q2_K", {{{16, 64}, {}, {0, 16}, {80, 4}}}},
    {"Q3_K", {{{32, 64}, {0, 32}, {96, 12}, {108, 2}}}},
    {"Q4_K", {{{16, 128}, {}, {4, 12}, {0, 4}}}},
    {"Q5_K", {{{48, 128}, {16, 32}, {4, 12}, {0, 4}}}},
    {"Q6_K", {{{0, 128}, {128, 64}, {192, 16}, {208, 2}}}},
    {"IQ4_NL", {{{2, 16}, {}, {}, {0, 2}}}},
    {"IQ4_XS", {{{8, 128}, {}, {2, 6}, {0, 2}}}},
}};

}  // namespace

const PlaneForm* plane_form(const gguf::Type& type) {
  const auto* found =
      std::find_if(kForms.begin(), kForms.end(), [&](const PlaneForm& f) { return f.type == type.name; });
  return found == kForms.end() ? nullptr : found;
}

}  // namespace pyflame
