// The small vocabularies that traces share, whoever writes them: numbers, types, directions of copies.
#pragma once
#include <cstdint>
#include <string_view>

#include "tools/profile/trace.h"

namespace pyflame::tools::profile {

// "4381075906390.113" (microseconds) to nanoseconds, exactly; false where it is no number or of no clock.
bool microseconds_to_ns(std::string_view text, int64_t& ns);
// A whole decimal number; false otherwise or when it does not fit.
bool to_int(std::string_view text, int64_t& value);

// Bytes of an element by the names that PyTorch, RCCL and the libraries use: "float", "c10::BFloat16", "bf16_r"; 0: not known.
int64_t type_bytes(std::string_view type);
// "fp32", "fp16", "bf16", "fp8", "fp64", "int8"; empty: not known. Which peak of a device counts.
std::string_view type_family(std::string_view type);

Direction direction_of(std::string_view text);  // "Memcpy DtoH (Device -> Pageable)", "MEMORY_COPY_HOST_TO_DEVICE"
HostMemory host_memory_of(std::string_view text);
const char* name_of(Direction d);

}  // namespace pyflame::tools::profile
