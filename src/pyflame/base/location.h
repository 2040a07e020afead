// Where the user called an op. A front end (Python) installs a provider of locations. Without one, locations are
// unknown and cost nothing.
#pragma once
#include <cstdint>
#include <string>

namespace pyflame {

// `code` and `where` mean something to the provider alone.
struct SourceLoc {
  const void* code = nullptr;
  int32_t where = 0;
};

SourceLoc current_location();
std::string describe_location(const SourceLoc& loc);  // "train.py:41 in forward"; "an unknown place" without a provider

// `current` is called for every recorded op and must be cheap; `describe` may be called much later, from any thread.
void set_location_provider(SourceLoc (*current)(), std::string (*describe)(const SourceLoc&));

}  // namespace pyflame
