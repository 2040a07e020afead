// Parsers of the small vocabularies that all traces share: numbers, types, directions of copies.
#pragma once
#include <cstdint>
#include <string_view>

#include "tools/profile/trace.h"

namespace pyflame::tools::profile {

// "4381075906390.113" (microseconds) to nanoseconds, exactly; false if it is not a number or out of range.
bool microseconds_to_ns(std::string_view text, int64_t& ns);
// A whole decimal number; false if it is not one, or too large.
bool to_int(std::string_view text, int64_t& value);

// Bytes of an element, by the names that PyTorch, RCCL and the libraries use: "float", "c10::BFloat16", "bf16_r"; 0:
// unknown.
int64_t type_bytes(std::string_view type);
// "fp32", "fp16", "bf16", "fp8", "fp64", "int8"; empty: unknown. Selects a peak of the device.
std::string_view type_family(std::string_view type);

Direction direction_of(std::string_view text);  // "Memcpy DtoH (Device -> Pageable)", "MEMORY_COPY_HOST_TO_DEVICE"
HostMemory host_memory_of(std::string_view text);
const char* name_of(Direction d);

}  // namespace pyflame::tools::profile
