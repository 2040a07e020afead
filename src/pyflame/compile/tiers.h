// The tiers of the tuning database. A measurement decides for exactly its problem. For a problem that was not measured, those of similar ones
// do: of the same bucket, and if there are none, of the same kind in any size.
#pragma once
#include <string>

namespace pyflame {

enum class Tier { bucket, any_size };

// What problems of a tier have in common, made of problem_key's text: "matmul(float32(~64/8, ~4096/8), …)". Of each dim of a tensor in a bucket,
// the next power of two and the largest power of two up to 8 that divides it, because kernels differ in how they treat edges. In the other tier each
// dim is "*" or, if it is 1, "1". Strides of 0 and 1 stay as they are; attributes count in full.
std::string tier_key(Tier tier, const std::string& problem);

}  // namespace pyflame
