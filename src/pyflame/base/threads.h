// The only thread pool of the process. Libraries (oneDNN, BLAS) run on one thread each and are called inside
// parallel_for, so there are never more threads than cores. Work is divided by shape, never by which thread is idle.
#pragma once
#include <cstdint>
#include <functional>

namespace pyflame {

int num_threads();
void set_num_threads(int n);  // ValueError when n < 1

// Calls body(begin, end) over disjoint chunks of [0, n), each at least `grain` long; the calling thread takes part.
// Runs inline when one chunk is enough or when called from inside another parallel_for. The first exception is rethrown.
void parallel_for(int64_t n, int64_t grain, const std::function<void(int64_t, int64_t)>& body);

// How loops are divided.
struct Division {
  int threads = 0;   // at most so many take part; 0: all
  double chunk = 1;  // the length of a chunk, relative to what parallel_for takes by itself
};

// Until the end of the block, the loops of the calling thread are divided in this way.
class DividedBy {
 public:
  explicit DividedBy(const Division& division);
  ~DividedBy();
  DividedBy(const DividedBy&) = delete;
  DividedBy& operator=(const DividedBy&) = delete;

 private:
  Division before_;
};

}  // namespace pyflame
