// The ledger of fallbacks: what ran on a slower implementation, or elsewhere, than was asked for; why, how often, and what it cost. A message says so the
// first time. pf.fallbacks() returns the ledger, and PYFLAME_DEBUG=1 prints it at the end of the process.
#pragma once
#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace pyflame {

struct Fallback {
  std::string op, device, ran_on, reason;
  uint64_t times = 0;
  double seconds = 0;  // of the host, in the fallback itself
};

// A line of the ledger. It lives as long as the process.
class FallbackEntry {
 public:
  FallbackEntry(std::string op, std::string device, std::string ran_on, std::string reason)
      : op_(std::move(op)), device_(std::move(device)), ran_on_(std::move(ran_on)), reason_(std::move(reason)) {}
  void count(std::chrono::nanoseconds took) {
    times_.fetch_add(1, std::memory_order_relaxed);
    ns_.fetch_add(took.count(), std::memory_order_relaxed);
  }
  Fallback read() const {
    return {op_, device_, ran_on_, reason_, times_.load(), static_cast<double>(ns_.load()) * 1e-9};
  }

 private:
  std::string op_, device_, ran_on_, reason_;
  std::atomic<uint64_t> times_{0};
  std::atomic<int64_t> ns_{0};
};

// The line with these texts; a new one prints `message`.
FallbackEntry& note_fallback(const std::string& op, const std::string& device, const std::string& ran_on,
                             const std::string& reason, const std::string& message);

// Counts one run from its construction to its destruction.
class FallbackRun {
 public:
  explicit FallbackRun(FallbackEntry* entry) : entry_(entry) {
    if (entry_) start_ = std::chrono::steady_clock::now();
  }
  ~FallbackRun() {
    if (entry_) entry_->count(std::chrono::steady_clock::now() - start_);
  }
  FallbackRun(const FallbackRun&) = delete;
  FallbackRun& operator=(const FallbackRun&) = delete;

 private:
  FallbackEntry* entry_;
  std::chrono::steady_clock::time_point start_;
};

std::vector<Fallback> fallbacks();  // those that ran, the most seconds first
// Those that ran after `earlier`, an earlier result of fallbacks(), was taken, with what they cost since then.
std::vector<Fallback> fallbacks_since(const std::vector<Fallback>& earlier);
std::string describe_fallback(const Fallback& f);  // one sentence, without its end
std::string describe_fallbacks();                  // a table; empty: there were none

}  // namespace pyflame
