// The thread pool. Workers sleep on a condition variable and take chunks from a shared counter. The caller takes chunks
// as well, so it is never slower than alone. One parallel_for runs at a time. A second caller, and a nested call, run
// inline, so nothing can deadlock and there are never too many threads. Which thread gets a chunk is arbitrary, so
// results must not depend on it.
#include "pyflame/base/threads.h"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <thread>
#include <vector>

#include "pyflame/base/env.h"
#include "pyflame/base/error.h"
#include "pyflame/base/fork.h"

namespace pyflame {
namespace {

constexpr int kMaxThreads = 1024;
// Waking a sleeping thread takes tens of microseconds, as long as a matrix product of a small model. Therefore a worker
// spins for this long before it sleeps: the steps of a window follow each other within this time.
constexpr std::chrono::microseconds kSpin{100};
// Linux (6.18 on two CPUs) often wakes a worker on the caller's CPU and leaves both there for many milliseconds while
// another CPU is idle. So workers are kept off the CPU of the caller. In a larger pool, one such worker costs less than
// the system calls.
constexpr size_t kMostKeptAway = 8;
constexpr int64_t kChunksPerThread = 4;  // so that a thread that was descheduled does not delay the end

thread_local bool t_inside = false;
thread_local Division t_division;

struct Job {
  const std::function<void(int64_t, int64_t)>* body;
  int64_t n;
  int64_t chunks;
  int64_t threads;  // at most, the caller included
  std::atomic<int64_t> next{0};
  std::atomic<bool> failed{false};
  std::mutex error_mutex;
  std::exception_ptr error;

  void work() {
    for (;;) {
      const int64_t c = next.fetch_add(1, std::memory_order_relaxed);
      if (c >= chunks) return;
      if (failed.load(std::memory_order_relaxed)) continue;
      try {
        (*body)(bound(c), bound(c + 1));
      } catch (...) {
        const std::lock_guard lock(error_mutex);
        if (!error) error = std::current_exception();
        failed.store(true, std::memory_order_relaxed);
      }
    }
  }
  // Chunk sizes differ by at most one. The formula cannot overflow.
  int64_t bound(int64_t c) const { return n / chunks * c + std::min(c, n % chunks); }
};

class Pool {
 public:
  explicit Pool(int workers) {
    keeps_away_ = static_cast<size_t>(workers) <= kMostKeptAway &&
                  sched_getaffinity(0, sizeof(allowed_), &allowed_) == 0 && CPU_COUNT(&allowed_) > 1;
    threads_.reserve(static_cast<size_t>(workers));
    for (int i = 0; i < workers; ++i) threads_.emplace_back([this] { loop(); });
  }
  ~Pool() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
      posted_.fetch_add(1, std::memory_order_release);
    }
    wake_.notify_all();
    for (std::thread& t : threads_) t.join();
  }

  void run(Job& job) {
    const int helpers =
        static_cast<int>(std::min({static_cast<int64_t>(threads_.size()), job.chunks - 1, job.threads - 1}));
    const int cpu = keeps_away_ ? sched_getcpu() : -1;
    int asleep;
    {
      const std::lock_guard lock(mutex_);
      if (cpu >= 0 && (cpu != away_from_ || placed_ != ids_.size())) keep_away_from(cpu);
      job_ = &job;
      wanted_ = helpers;
      posted_.fetch_add(1, std::memory_order_release);
      asleep = helpers - awake_;
    }
    for (int i = 0; i < asleep; ++i) wake_.notify_one();
    t_inside = true;
    job.work();
    t_inside = false;
    // No chunk is left, so workers that have not begun need not begin. Only those inside the job are waited for.
    {
      const std::lock_guard lock(mutex_);
      job_ = nullptr;
      wanted_ = 0;
    }
    if (spin([this] { return busy_.load(std::memory_order_acquire) == 0; })) return;
    std::unique_lock lock(mutex_);
    done_.wait(lock, [this] { return busy_.load(std::memory_order_relaxed) == 0; });
  }

 private:
  // Spins for a limited time; false if nothing happened.
  template <class Ready>
  static bool spin(Ready ready) {
    const auto end = std::chrono::steady_clock::now() + kSpin;
    do {
      for (int i = 0; i < 32; ++i) {
        if (ready()) return true;
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
      }
    } while (std::chrono::steady_clock::now() < end);
    return false;
  }

  // One system call per worker, but only when the caller has moved to another CPU.
  void keep_away_from(int cpu) {
    cpu_set_t others = allowed_;
    if (cpu < CPU_SETSIZE) CPU_CLR(static_cast<size_t>(cpu), &others);
    for (const pid_t id : ids_) sched_setaffinity(id, sizeof(others), &others);  // a hint: failure is harmless
    away_from_ = cpu;
    placed_ = ids_.size();
  }

  void loop() {
    t_inside = true;
    std::unique_lock lock(mutex_);
    ids_.push_back(static_cast<pid_t>(syscall(SYS_gettid)));
    while (!stop_) {
      if (wanted_ > 0) {
        --wanted_;
        busy_.fetch_add(1, std::memory_order_relaxed);
        Job* job = job_;
        lock.unlock();
        job->work();
        lock.lock();
        if (busy_.fetch_sub(1, std::memory_order_release) == 1 && job_ == nullptr) done_.notify_one();
        continue;
      }
      const uint32_t seen = posted_.load(std::memory_order_relaxed);
      ++awake_;
      lock.unlock();
      const bool posted = spin([&] { return posted_.load(std::memory_order_acquire) != seen; });
      lock.lock();
      --awake_;
      if (!posted && wanted_ == 0 && !stop_) wake_.wait(lock);
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_, done_;
  Job* job_ = nullptr;
  int wanted_ = 0;
  int awake_ = 0;  // workers that will see a new job without a notification
  std::atomic<int> busy_{0};
  std::atomic<uint32_t> posted_{0};  // number of jobs so far
  bool stop_ = false;
  bool keeps_away_ = false;
  cpu_set_t allowed_;       // the CPUs on which workers may run
  std::vector<pid_t> ids_;  // of the workers that have started
  int away_from_ = -1;      // the CPU that the first `placed_` workers are kept off
  size_t placed_ = 0;
  std::vector<std::thread> threads_;
};

int affinity_count() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

int initial_threads() {
  const int64_t wanted = env::num_threads();
  if (wanted > 0) return static_cast<int>(wanted);
  return affinity_count();
}

// All state is reached through one pointer that is never freed, because workers may outlive static destructors. After
// fork(), the child has no workers and locks in unknown states, so it starts with a new State and the same number of
// threads.
struct State {
  std::mutex run_mutex;  // held while a parallel_for runs, and while the pool is changed
  std::atomic<int> count{0};
  std::unique_ptr<Pool> pool;
};

std::atomic<State*> g_state{nullptr};

void after_fork(bool in_child) {
  if (!in_child) return;
  const State* old = g_state.load(std::memory_order_relaxed);
  auto* fresh = new State;
  if (old) fresh->count.store(old->count.load(std::memory_order_relaxed), std::memory_order_relaxed);
  g_state.store(fresh, std::memory_order_release);
  t_inside = false;
}
const AtFork g_pool_at_fork{ForkOrder::Pool, [] {}, after_fork};

State& state() {
  State* s = g_state.load(std::memory_order_acquire);
  if (s) return *s;
  static std::once_flag once;
  std::call_once(once, [] { g_state.store(new State, std::memory_order_release); });
  return *g_state.load(std::memory_order_acquire);
}

int64_t scaled(int64_t length, double by) {
  return by == 1 ? length : std::max<int64_t>(1, static_cast<int64_t>(static_cast<double>(length) * by));
}

}  // namespace

int num_threads() {
  State& s = state();
  int n = s.count.load(std::memory_order_relaxed);
  if (n == 0) {
    const int wanted = initial_threads();
    s.count.compare_exchange_strong(n, wanted, std::memory_order_relaxed);
    n = s.count.load(std::memory_order_relaxed);
  }
  return n;
}

void set_num_threads(int n) {
  PF_CHECK(n >= 1 && n <= kMaxThreads, Value, "set_num_threads: bad number of threads; got {}; expected 1 to {}", n,
           kMaxThreads);
  PF_CHECK(!t_inside, Runtime, "set_num_threads: called from inside a parallel loop; call it between operations");
  State& s = state();
  const std::lock_guard lock(s.run_mutex);
  if (s.count.load(std::memory_order_relaxed) == n) return;
  s.pool.reset();
  s.count.store(n, std::memory_order_relaxed);
}

DividedBy::DividedBy(const Division& division) : before_(t_division) { t_division = division; }
DividedBy::~DividedBy() { t_division = before_; }

void parallel_for(int64_t n, int64_t grain, const std::function<void(int64_t, int64_t)>& body) {
  if (n <= 0) return;
  const Division& division = t_division;
  grain = scaled(std::max<int64_t>(grain, 1), division.chunk);
  if (n < 2 * grain || t_inside) return body(0, n);
  const int threads = division.threads > 0 ? std::min(num_threads(), division.threads) : num_threads();
  if (threads == 1) return body(0, n);
  State& s = state();
  std::unique_lock lock(s.run_mutex, std::try_to_lock);
  if (!lock.owns_lock()) return body(0, n);
  if (!s.pool) s.pool = std::make_unique<Pool>(s.count.load(std::memory_order_relaxed) - 1);
  Job job;
  job.body = &body;
  job.n = n;
  job.chunks = std::min(n / grain, std::max<int64_t>(threads, scaled(kChunksPerThread * threads, 1 / division.chunk)));
  job.threads = threads;
  s.pool->run(job);
  if (job.error) std::rethrow_exception(job.error);
}

}  // namespace pyflame
