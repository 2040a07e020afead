// Blocks of the host between pages that cannot be accessed. An access to such a page traps; it is noted, the page is opened, and the program goes on
// to the end of the step, where the error is raised. All blocks lie in one reserved range of addresses, so that the handler knows them by
// their address alone.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

namespace pyflame::guard_pages {

// What guards hold: 8 bytes, again and again, from addresses on that are multiples of 8. Each block has a band of its own, so that a copy from one
// block's guard to another's shows.
struct Band {
  uint64_t bytes = 0;
  char at(const char* address) const {
    return static_cast<char>(bytes >> (8 * (reinterpret_cast<uintptr_t>(address) % sizeof bytes)));
  }
  void fill(char* p, size_t n) const {
    for (size_t i = 0; i < n; ++i) p[i] = at(p + i);
  }
};

// Pages from a guard page to a guard page. The guards hold the band.
struct Range {
  char* begin = nullptr;
  size_t bytes = 0;  // 0: no addresses or no memory
};
size_t page();
Range open(size_t inside, Band band);  // `inside`: bytes between the guards, a multiple of the page
void close(const Range& r);            // no access is possible, and the memory is the system's
void reuse(const Range& r);            // its addresses may be given again

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
