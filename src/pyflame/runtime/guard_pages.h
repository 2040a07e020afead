// Blocks of the host between pages that cannot be accessed. An access to such a page traps; it is noted, the page is opened, and the program goes on
// to the end of the step, where the error is raised. All blocks lie in one reserved range of addresses, so that the handler knows them by
// their address alone.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace pyflame::guard_pages {

// Pages from a guard page to a guard page. The bytes between the guards, and the guards themselves, hold `band`.
struct Range {
  char* begin = nullptr;
  size_t bytes = 0;  // 0: no addresses or no memory
};
size_t page();
Range open(size_t inside, uint8_t band);  // `inside`: bytes between the guards, a multiple of the page
void close(const Range& r);               // no access is possible, and the memory is the system's
void reuse(const Range& r);               // its addresses may be given again

struct Trap {
  const char* address = nullptr;
  enum : uint8_t { Unknown, Read, Write } access = Unknown;
};
bool trapped();  // whether any access trapped since the last call of traps()
std::vector<Trap> traps();
void shut(const char* page_of);  // the page that contains the address is closed again

void install();  // the handler, unless it is there
void running(const char* text);

}  // namespace pyflame::guard_pages
