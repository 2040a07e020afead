// Reserves the addresses, and handles the traps.
#include "pyflame/runtime/guard_pages.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstring>
#include <map>
#include <utility>

namespace pyflame::guard_pages {

namespace {

constexpr size_t kMostTraps = 4096;  // pages that are opened between two checks
constexpr size_t kMostAddresses = size_t{1} << 40, kFewestAddresses = size_t{1} << 30;

struct Traps {
  std::atomic<size_t> count{0};
  std::array<Trap, kMostTraps> list;
};
Traps g_traps;
std::atomic<char*> g_begin{nullptr}, g_end{nullptr};
std::atomic<const char*> g_running{nullptr};
struct sigaction g_before;

void say(const char* text) {
  const ssize_t ignored = write(STDERR_FILENO, text, std::strlen(text));
  static_cast<void>(ignored);
}

decltype(Trap::Unknown) access_of([[maybe_unused]] void* context) {
#if defined(__x86_64__) && defined(__linux__)
  constexpr int64_t kWrites = 2;  // of the page fault's error code
  const auto* c = static_cast<const ucontext_t*>(context);
  return (c->uc_mcontext.gregs[REG_ERR] & kWrites) != 0 ? Trap::Write : Trap::Read;
#else
  return Trap::Unknown;
#endif
}

// Only what signal handlers may do.
void on_trap(int signal, siginfo_t* info, void* context) {
  if (info->si_code <= 0) {  // a process has sent the signal; no access is repeated
    sigaction(signal, &g_before, nullptr);
    raise(signal);  // comes when this handler has returned, for the handler before this one
    return;
  }
  char* address = static_cast<char*>(info->si_addr);
  char* begin = g_begin.load();
  if (begin && address >= begin && address < g_end.load()) {
    const size_t n = g_traps.count.fetch_add(1);
    const size_t page_bytes = page();
    char* of = begin + static_cast<size_t>(address - begin) / page_bytes * page_bytes;
    if (n < kMostTraps) {
      g_traps.list[n] = {address, access_of(context)};
      if (mprotect(of, page_bytes, PROT_READ | PROT_WRITE) == 0) return;
    }
    say("pyflame: debug allocator: too many accesses outside of blocks in one step\n");
  }
  if (const char* text = g_running.load()) {
    say("pyflame: debug allocator: an access to memory that is not there\n");
    say(text);
    say("\n");
  }
  sigaction(signal, &g_before, nullptr);  // the access is repeated, for the handler before this one
}

bool reserve() {
  if (g_begin.load()) return true;
  for (size_t bytes = kMostAddresses; bytes >= kFewestAddresses; bytes /= 4) {
    void* p = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) continue;
    g_end = static_cast<char*>(p) + bytes;
    g_begin = static_cast<char*>(p);
    return true;
  }
  return false;
}

// The caller of this file has a lock.
struct Addresses {
  char* next = nullptr;
  std::multimap<size_t, char*> free;  // by size
};
Addresses& addresses() {
  static Addresses* a = new Addresses;
  return *a;
}

char* new_addresses(size_t bytes) {
  Addresses& a = addresses();
  if (const auto it = a.free.find(bytes); it != a.free.end()) {
    char* p = it->second;
    a.free.erase(it);
    return p;
  }
  if (!reserve()) return nullptr;
  if (!a.next) a.next = g_begin.load();
  if (bytes > static_cast<size_t>(g_end.load() - a.next)) return nullptr;
  return std::exchange(a.next, a.next + bytes);
}

}  // namespace

size_t page() {
  static const auto bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

Range open(size_t inside, Band band) {
  install();
  const Range r{new_addresses(inside + 2 * page()), inside + 2 * page()};
  if (!r.begin) return {};
  if (mprotect(r.begin, r.bytes, PROT_READ | PROT_WRITE) != 0) return reuse(r), Range{};
  band.fill(r.begin, page());
  band.fill(r.begin + r.bytes - page(), page());
  shut(r.begin);
  shut(r.begin + r.bytes - page());
  return r;
}

void close(const Range& r) {
  madvise(r.begin, r.bytes, MADV_DONTNEED);
  mprotect(r.begin, r.bytes, PROT_NONE);
}

void reuse(const Range& r) { addresses().free.emplace(r.bytes, r.begin); }

bool trapped() { return g_traps.count.load(std::memory_order_relaxed) != 0; }

std::vector<Trap> traps() {
  const size_t n = std::min(g_traps.count.exchange(0), kMostTraps);
  return {g_traps.list.begin(), g_traps.list.begin() + static_cast<std::ptrdiff_t>(n)};
}

void shut(const char* page_of) {
  char* begin = g_begin.load();
  mprotect(begin + static_cast<size_t>(page_of - begin) / page() * page(), page(), PROT_NONE);
}

void install() {
  struct sigaction now {};
  if (sigaction(SIGSEGV, nullptr, &now) == 0 && (now.sa_flags & SA_SIGINFO) != 0 && now.sa_sigaction == on_trap) return;
  page();  // its static object must exist before the handler needs it
  struct sigaction ours {};
  ours.sa_sigaction = on_trap;
  ours.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigemptyset(&ours.sa_mask);
  sigaction(SIGSEGV, &ours, &g_before);
}

void running(const char* text) { g_running = text; }

}  // namespace pyflame::guard_pages
