// Errors of work that no program does (runtime/in_flight.h has those of programs).
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "pyflame/base/error.h"

namespace pyflame {

// What other work than a program's should have written to these storages is not there: reading them raises this error, and so does the next
// structural mark.
void taint(const std::vector<uint64_t>& storages, ErrorKind kind, const std::string& message);

}  // namespace pyflame
