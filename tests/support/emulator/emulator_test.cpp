// The emulator finds what it is there to find: each test makes one mistake that a GPU would punish now and then, and sees it reported.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <numeric>
#include <sstream>
#include <string>
#include <vector>

#include "prelude.h"
#include "support/source_dir.h"

extern "C" {
int hipInit(unsigned);
int hipDrvGetErrorString(int, const char**);
int hipMemGetInfo(size_t*, size_t*);
int hipMalloc(void**, size_t);
int hipFree(void*);
int hipHostMalloc(void**, size_t, unsigned);
int hipHostFree(void*);
int hipMemcpyHtoDAsync(void*, const void*, size_t, void*);
int hipMemcpyDtoHAsync(void*, const void*, size_t, void*);
int hipStreamCreateWithFlags(void**, unsigned);
int hipStreamSynchronize(void*);
int hipStreamWaitEvent(void*, void*, unsigned);
int hipStreamBeginCapture(void*, int);
int hipStreamEndCapture(void*, void**);
int hipEventCreateWithFlags(void**, unsigned);
int hipEventRecord(void*, void*);
int hipEventQuery(void*);
int hipModuleLoadData(void**, const void*);
int hipModuleGetFunction(void**, void*, const char*);
int hipModuleLaunchKernel(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**,
                          void**);
int hipGraphCreate(void**, unsigned);
int hipGraphDestroy(void*);
int hipGraphAddKernelNode(void**, void*, const void* const*, size_t, const void*);
int hipGraphInstantiateWithFlags(void**, void*, unsigned long long);
int hipGraphExecKernelNodeSetParams(void*, void*, const void*);
int hipGraphLaunch(void*, void*);
int hipGraphExecDestroy(void*);
int hiprtcCreateProgram(void**, const char*, const char*, int, const char* const*, const char* const*);
int hiprtcCompileProgram(void*, int, const char* const*);
int hiprtcGetProgramLogSize(void*, size_t*);
int hiprtcGetProgramLog(void*, char*);
int hiprtcGetCodeSize(void*, size_t*);
int hiprtcGetCode(void*, char*);
int hiprtcDestroyProgram(void**);
void emulator_restart();
}

#if defined(__SANITIZE_ADDRESS__)
// Modules, events and streams stay: work that has not run may name them.
extern "C" const char* __asan_default_options() { return "detect_leaks=0"; }
#endif

namespace {

std::string device_headers() {
  std::string all;
  for (const char* name : {"launch", "scalar", "wave", "vec"}) {
    std::ifstream in(pyflame::test::file_of_project(std::string("src/pyflame/kernels/device/") + name + ".h"));
    all.append(std::istreambuf_iterator<char>(in), {});
  }
  return all;
}

std::string words(int error) {
  const char* text = "";
  hipDrvGetErrorString(error, &text);
  return text;
}

class Emulator : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override { restart({}); }
  void TearDown() override { restart({}); }
  // With these variables, and the architecture of the test.
  void restart(std::vector<std::pair<const char*, const char*>> variables) {
    for (const char* name : {"PYFLAME_EMULATOR_ORDER", "PYFLAME_EMULATOR_FAIL", "PYFLAME_EMULATOR_MEMORY"})
      unsetenv(name);
    setenv("PYFLAME_EMULATOR_ARCH", GetParam(), 1);
    for (const auto& [name, value] : variables) setenv(name, value, 1);
    emulator_restart();
    ASSERT_EQ(hipInit(0), 0);
    if (!stream_) hipStreamCreateWithFlags(&stream_, 1);
  }
  unsigned wave() const { return std::string(GetParam()) == "gfx942" ? 64 : 32; }

  std::string compile(const std::string& source, std::string* log = nullptr) {
    void* program = nullptr;
    hiprtcCreateProgram(&program, source.c_str(), "kernel", 0, nullptr, nullptr);
    const std::string arch = std::string("--offload-arch=") + GetParam();
    const char* options[] = {arch.c_str()};
    std::string code;
    if (hiprtcCompileProgram(program, 1, options) == 0) {
      size_t size = 0;
      hiprtcGetCodeSize(program, &size);
      code.resize(size);
      hiprtcGetCode(program, code.data());
    }
    size_t size = 0;
    hiprtcGetProgramLogSize(program, &size);
    std::string text(size, '\0');
    hiprtcGetProgramLog(program, text.data());
    if (log) *log = text;
    else EXPECT_FALSE(code.empty()) << text;
    hiprtcDestroyProgram(&program);
    return code;
  }
  void* kernel(const std::string& body, unsigned most_threads = 1024) {
    const std::string code =
        compile(device_headers() + "\nPF_KERNEL(" + std::to_string(most_threads) + ") test_kernel" + body);
    void *module = nullptr, *function = nullptr;
    EXPECT_EQ(hipModuleLoadData(&module, code.data()), 0);
    EXPECT_EQ(hipModuleGetFunction(&function, module, "test_kernel"), 0);
    return function;
  }
  template <class... Args>
  int launch(void* function, unsigned groups, unsigned threads, unsigned shared, const Args&... args) {
    void* parameters[] = {const_cast<void*>(static_cast<const void*>(&args))..., nullptr};
    return hipModuleLaunchKernel(function, groups, 1, 1, threads, 1, 1, shared, stream_, parameters, nullptr);
  }
  int wait() { return hipStreamSynchronize(stream_); }
  void* device_memory(size_t bytes) {
    void* p = nullptr;
    EXPECT_EQ(hipMalloc(&p, bytes), 0);
    return p;
  }
  std::vector<float> read(const void* p, size_t count) {
    std::vector<float> out(count);
    EXPECT_EQ(hipMemcpyDtoHAsync(out.data(), p, count * 4, stream_), 0);
    return out;
  }

  void* stream_ = nullptr;
};

// Each thread writes, then reads what its neighbour wrote.
constexpr const char* kNeighbour =
    "(float* out) { PF_SHARED float s[256]; const int t = pf::thread(); s[t] = t; %s out[t] = s[(t + 1) % 256]; }";
std::string neighbour(const char* between) {
  std::string text = kNeighbour;
  return text.replace(text.find("%s"), 2, between);
}

TEST_P(Emulator, AMissingBarrierShowsInSomeOrder) {
  std::vector<float> want(256);
  for (size_t i = 0; i < 256; ++i) want[i] = static_cast<float>((i + 1) % 256);
  void* out = device_memory(1024);
  for (const bool right : {true, false}) {
    void* f = kernel(neighbour(right ? "pf::barrier();" : ""));
    int good = 0;
    for (const char* order : {"ascending", "descending", "1", "2"}) {
      restart({{"PYFLAME_EMULATOR_ORDER", order}});
      ASSERT_EQ(launch(f, 1, 256, 0, out), 0);
      ASSERT_EQ(wait(), 0);
      good += read(out, 256) == want;
    }
    EXPECT_EQ(good == 4, right);
  }
  hipFree(out);
}

TEST_P(Emulator, ThreadsThatDoNotMeetAreReported) {
  struct Case {
    const char *body, *words;
  };
  for (const Case& c :
       {Case{"() { if (pf::thread() < 10) return; pf::barrier(); }", "has ended"},
        Case{"() { if (pf::thread() < 10) {\n pf::barrier();\n } else {\n pf::barrier(); } }",
             "at the barrier of line"},
        Case{"() { if (pf::thread() % 2) pf::barrier(); else pf::ballot(true); }", "at the wave operation of line"}}) {
    ASSERT_EQ(launch(kernel(c.body), 1, 128, 0), 0) << "it is reported when the stream is waited for";
    const int error = wait();
    EXPECT_NE(error, 0) << c.body;
    EXPECT_NE(words(error).find(c.words), std::string::npos) << words(error);
    EXPECT_EQ(wait(), 0) << "and once";
  }
}

TEST_P(Emulator, LanesThatAreNotThereAreReported) {
  struct Case {
    const char* body;
    unsigned threads;
  };
  for (const Case& c : {Case{"() { pf::from_lane(1, pf::kWave); }", 128}, Case{"() { pf::from_lane(1, 20); }", 16},
                        Case{"() { if (pf::lane() == 3) pf::from_lane(1, 0); else pf::ballot(true); }", 128}}) {
    ASSERT_EQ(launch(kernel(c.body), 1, c.threads, 0), 0);
    EXPECT_NE(wait(), 0) << c.body;
  }
}

TEST_P(Emulator, LanesExchange) {
  void* f = kernel(
      "(float* out) { const int l = pf::lane();\n"
      "  float sum = 0;\n"
      "  for (int i = 0; i < 100; ++i) sum += pf::from_lane((float)(l * 100 + i), (l + i) % pf::kWave) - ((l + i) % "
      "pf::kWave * 100 + i);\n"
      "  const pf::u64 odd = pf::ballot(l % 2);\n"
      "  double x = l;\n"
      "  for (int s = pf::kWave / 2; s > 0; s /= 2) x += pf::xor_lane(x, s);\n"
      "  out[pf::thread()] = sum + (float)x + (odd == (pf::kWave == 64 ? 0xaaaaaaaaaaaaaaaaull : 0xaaaaaaaaull)); }");
  void* out = device_memory(1024);
  for (const char* order : {"ascending", "descending", "3"}) {
    restart({{"PYFLAME_EMULATOR_ORDER", order}});
    ASSERT_EQ(launch(f, 1, 256, 0, out), 0);
    ASSERT_EQ(wait(), 0);
    const float total = static_cast<float>(wave() * (wave() - 1) / 2 + 1);
    EXPECT_EQ(read(out, 256), std::vector<float>(256, total));
  }
  hipFree(out);
}

TEST_P(Emulator, SharedMemoryBeginsPoisonedInEachWorkgroup) {
  void* f = kernel(
      "(float* out) { PF_SHARED float s[4]; float* d = pf::dynamic_shared<float>();\n"
      "  out[pf::group().x * 2] = s[0] != s[0]; out[pf::group().x * 2 + 1] = d[3] != d[3]; s[0] = d[3] = 1; }");
  void* out = device_memory(32);
  ASSERT_EQ(launch(f, 4, 1, 16, out), 0);
  ASSERT_EQ(wait(), 0);
  EXPECT_EQ(read(out, 8), std::vector<float>(8, 1.0f));
  hipFree(out);
}

TEST_P(Emulator, LaunchesThatNoDeviceTakesAreRefused) {
  void* f = kernel("() {}", 64);
  EXPECT_NE(launch(f, 1, 65, 0), 0);
  EXPECT_NE(launch(f, 0, 64, 0), 0);
  EXPECT_NE(launch(f, 1, 64, 200 << 10), 0);
  EXPECT_EQ(launch(f, 1, 64, 0), 0);
  EXPECT_EQ(wait(), 0);
}

TEST_P(Emulator, AKernelGetsNoAddressOfTheHost) {
  void* f = kernel("(float* p) { *p = 1; }");
  auto* mine = new float(0);
  ASSERT_EQ(launch(f, 1, 1, 0, mine), 0);
  EXPECT_NE(wait(), 0);
  EXPECT_EQ(*mine, 0);
  delete mine;
}

TEST_P(Emulator, LifetimesAreWatched) {
  void* p = device_memory(100);
  char host[128] = {};
  EXPECT_NE(hipMemcpyHtoDAsync(p, host, 101, stream_), 0) << "beyond the end";
  EXPECT_NE(hipFree(static_cast<char*>(p) + 4), 0) << "not the beginning";
  EXPECT_NE(hipHostFree(p), 0) << "the wrong kind";
  EXPECT_EQ(hipFree(p), 0);
  EXPECT_NE(hipFree(p), 0) << "twice";
  EXPECT_NE(hipMemcpyHtoDAsync(p, host, 100, stream_), 0) << "after its release";
}

#if defined(__SANITIZE_ADDRESS__)
// The sanitizer ends the process with a report.
TEST_P(Emulator, WhatIsOutOfBoundsIsFound) {
  auto* p = static_cast<float*>(device_memory(100));
  const auto dies = [&](const char* body, const char* words) {
    void* f = kernel(body);
    EXPECT_DEATH(
        {
          emulator_restart();  // a forked child would be refused
          launch(f, 1, 64, 64, p);
          wait();
        },
        words)
        << body;
  };
  dies("(float* p) { p[pf::thread()] = 1; }", "heap-buffer-overflow");
  dies("(float* p) { PF_SHARED float s[60]; s[pf::thread()] = 1; pf::barrier(); *p = s[pf::thread() ^ 1]; }",
       "global-buffer-overflow");
  dies("(float* p) { float* s = pf::dynamic_shared<float>(); s[pf::thread()] = 1; *p = s[0]; }",
       "heap-buffer-overflow");
  dies("(float* p) { float s[8]; for (int i = 0; i < 8; ++i) s[i] = i; pf::barrier(); *p = s[pf::thread() % 9]; }",
       "stack-buffer-overflow");
  hipFree(p);
}
#else
TEST_P(Emulator, WritesBehindAnAllocationAreFound) {
  auto* p = static_cast<float*>(device_memory(100));
  ASSERT_EQ(launch(kernel("(float* p) { p[25] = 1; }"), 1, 1, 0, p), 0);
  EXPECT_NE(wait(), 0);
  hipFree(p);
}
#endif

TEST_P(Emulator, WorkWaitsUntilSomebodyWaits) {
  void *p = device_memory(4), *q = device_memory(4);
  float* pinned = nullptr;
  ASSERT_EQ(hipHostMalloc(reinterpret_cast<void**>(&pinned), 8, 0), 0);
  pinned[0] = 1;
  ASSERT_EQ(hipMemcpyHtoDAsync(p, pinned, 4, stream_), 0);
  pinned[0] = 2;  // too early: the copy has not been made
  ASSERT_EQ(hipMemcpyDtoHAsync(pinned + 1, p, 4, stream_), 0);
  EXPECT_NE(pinned[1], 1);
  EXPECT_NE(pinned[1], 2) << "read too early";
  ASSERT_EQ(wait(), 0);
  EXPECT_EQ(pinned[1], 2);
  // Another stream goes on only behind an event.
  void *other = nullptr, *event = nullptr;
  hipStreamCreateWithFlags(&other, 1);
  hipEventCreateWithFlags(&event, 0);
  pinned[0] = 3;
  hipMemcpyHtoDAsync(p, pinned, 4, stream_);
  hipEventRecord(event, stream_);
  hipMemcpyDtoHAsync(pinned + 1, p, 4, other);
  hipStreamSynchronize(other);
  EXPECT_EQ(pinned[1], 2) << "without the event";
  hipStreamWaitEvent(other, event, 0);
  hipMemcpyDtoHAsync(pinned + 1, p, 4, other);
  hipStreamSynchronize(other);
  EXPECT_EQ(pinned[1], 3);
  EXPECT_EQ(hipEventQuery(event), 0);
  ASSERT_EQ(wait(), 0);
  hipFree(p), hipFree(q), hipHostFree(pinned);
}

TEST_P(Emulator, ACaptureRefusesWhatCannotBeCaptured) {
  void *p = device_memory(4), *graph = nullptr, *q = nullptr, *exec = nullptr;
  void* f = kernel("(float* p) { *p += 1; }");
  char host[4] = {};
  const auto broken = [&](auto&& what) {
    EXPECT_EQ(hipStreamBeginCapture(stream_, 0), 0);
    EXPECT_NE(what(), 0);
    EXPECT_NE(hipStreamEndCapture(stream_, &graph), 0);
  };
  broken([&] { return wait(); });
  broken([&] { return hipMalloc(&q, 4); });
  broken([&] { return hipFree(p); });
  broken([&] { return hipMemcpyHtoDAsync(p, host, 4, stream_); });
  hipMemcpyHtoDAsync(p, host, 4, stream_);
  ASSERT_EQ(hipStreamBeginCapture(stream_, 0), 0);
  ASSERT_EQ(launch(f, 1, 1, 0, p), 0);
  ASSERT_EQ(launch(f, 1, 1, 0, p), 0);
  ASSERT_EQ(hipStreamEndCapture(stream_, &graph), 0);
  ASSERT_EQ(wait(), 0);
  EXPECT_EQ(read(p, 1)[0], 0) << "captured, not run";
  ASSERT_EQ(hipGraphInstantiateWithFlags(&exec, graph, 0), 0);
  for (int i = 0; i < 3; ++i) ASSERT_EQ(hipGraphLaunch(exec, stream_), 0);
  EXPECT_EQ(read(p, 1)[0], 6);
  hipGraphExecDestroy(exec), hipGraphDestroy(graph), hipFree(p);
}

struct KernelNode {
  unsigned block[3];
  void** extra;
  void* function;
  unsigned grid[3];
  void** parameters;
  unsigned shared_bytes;
};

TEST_P(Emulator, GraphsKeepWhatTheyWereLaunchedWith) {
  void *p = device_memory(4), *graph = nullptr, *node = nullptr, *exec = nullptr;
  void* f = kernel("(float* p, float x) { *p = *p * 10 + x; }");
  float x = 1;
  void* parameters[] = {&p, &x};
  const KernelNode n = {{1, 1, 1}, nullptr, f, {1, 1, 1}, parameters, 0};
  char host[4] = {};
  hipMemcpyHtoDAsync(p, host, 4, stream_);
  hipGraphCreate(&graph, 0);
  ASSERT_EQ(hipGraphAddKernelNode(&node, graph, nullptr, 0, &n), 0);
  ASSERT_EQ(hipGraphInstantiateWithFlags(&exec, graph, 0), 0);
  ASSERT_EQ(hipGraphLaunch(exec, stream_), 0);
  x = 2;
  ASSERT_EQ(hipGraphExecKernelNodeSetParams(exec, node, &n), 0);
  ASSERT_EQ(hipGraphLaunch(exec, stream_), 0);
  EXPECT_EQ(read(p, 1)[0], 12);
  hipGraphDestroy(graph);
  EXPECT_NE(hipGraphExecKernelNodeSetParams(exec, node, &n), 0) << "a node of a graph that is gone";
  hipGraphExecDestroy(exec), hipFree(p);
}

// Two nodes without an edge between them, the second of which reads what the first writes.
TEST_P(Emulator, AMissingEdgeShowsInSomeOrder) {
  void *p = device_memory(4), *graph = nullptr, *first = nullptr, *second = nullptr, *exec = nullptr;
  void* f = kernel("(float* p, float x) { *p = *p * 10 + x; }");
  float x = 1, y = 2;
  void *a[] = {&p, &x}, *b[] = {&p, &y};
  const KernelNode m = {{1, 1, 1}, nullptr, f, {1, 1, 1}, a, 0}, n = {{1, 1, 1}, nullptr, f, {1, 1, 1}, b, 0};
  char host[4] = {};
  for (const bool edge : {true, false}) {
    hipGraphCreate(&graph, 0);
    hipGraphAddKernelNode(&first, graph, nullptr, 0, &m);
    hipGraphAddKernelNode(&second, graph, &first, edge ? 1 : 0, &n);
    hipGraphInstantiateWithFlags(&exec, graph, 0);
    restart({{"PYFLAME_EMULATOR_ORDER", "descending"}});
    hipMemcpyHtoDAsync(p, host, 4, stream_);
    ASSERT_EQ(hipGraphLaunch(exec, stream_), 0);
    EXPECT_EQ(read(p, 1)[0], edge ? 12 : 21);
    hipGraphExecDestroy(exec), hipGraphDestroy(graph);
  }
  hipFree(p);
}

TEST_P(Emulator, FaultsComeWhenTheyAreAskedFor) {
  restart({{"PYFLAME_EMULATOR_FAIL", "allocate:2,launch:2,compile:1"}, {"PYFLAME_EMULATOR_MEMORY", "1M"}});
  void *p = nullptr, *q = nullptr;
  EXPECT_EQ(hipMalloc(&p, 1 << 19), 0);
  EXPECT_EQ(hipMalloc(&q, 4), 2) << "the second";
  EXPECT_EQ(hipMalloc(&q, 1 << 20), 2) << "more than there is";
  size_t free_bytes = 0, total = 0;
  hipMemGetInfo(&free_bytes, &total);
  EXPECT_EQ(total, size_t{1} << 20);
  EXPECT_EQ(free_bytes, size_t{1} << 19);
  std::string log;
  EXPECT_TRUE(compile("PF_KERNEL(1) k() {}", &log).empty());
  EXPECT_NE(log.find("error"), std::string::npos);
  void* f = kernel("() {}");
  EXPECT_EQ(launch(f, 1, 1, 0), 0);
  EXPECT_NE(launch(f, 1, 1, 0), 0);
  EXPECT_EQ(launch(f, 1, 1, 0), 0);
  EXPECT_EQ(wait(), 0);
  hipFree(p);
  restart({{"PYFLAME_EMULATOR_FAIL", "lost:1"}});
  EXPECT_NE(launch(f, 1, 1, 0), 0);
  EXPECT_NE(wait(), 0) << "a lost device stays lost";
  EXPECT_NE(hipMalloc(&p, 4), 0);
}

TEST_P(Emulator, DamagedCodeIsRefused) {
  std::string code = compile(device_headers() + "\nPF_KERNEL(1) k() {}");
  void* module = nullptr;
  code[code.size() / 2] = static_cast<char>(code[code.size() / 2] ^ 1);
  EXPECT_NE(hipModuleLoadData(&module, code.data()), 0);
  EXPECT_NE(hipModuleLoadData(&module,
                              "\x7f"
                              "ELF of somebody else's, longer than a header"),
            0);
  std::string log;
  EXPECT_TRUE(compile("this is no kernel;", &log).empty());
  EXPECT_NE(log.find("error"), std::string::npos) << log;
}

// What the emulator's matrix instructions take for the layouts is what AMD publishes.
TEST(EmulatorMatrices, AreWhereAmdSaysTheyAre) {
  std::ifstream in(pyflame::test::file_of_project("tests/support/emulator/matrix_layouts.txt"));
  int elements = 0, depth = 0, row = 0;
  std::string matrix;
  for (std::string line; std::getline(in, line);) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream words(line);
    if (line.rfind("gfx", 0) == 0) {
      std::string arch, instruction;
      words >> arch >> instruction >> matrix;
      depth = arch == "gfx942" ? 4 : arch == "gfx1100" ? 16 : 8;
      row = 0;
      continue;
    }
    std::string element;
    for (int col = 0; words >> element; ++col, ++elements) {
      const EmulatedPlace p = matrix == "A"   ? emulated_place_a(depth, row, col)
                              : matrix == "B" ? emulated_place_a(depth, col, row)
                                              : emulated_place_d(depth, row, col);
      std::string want = std::to_string(p.lane) + ":" + std::to_string(p.item);
      if (depth == 16 && matrix != "D") want += "+" + std::to_string(p.lane + 16) + ":" + std::to_string(p.item);
      EXPECT_EQ(element, want) << matrix << "[" << row << "][" << col << "] of depth " << depth;
    }
    ++row;
  }
  EXPECT_EQ(elements, 9 * 256);
}

INSTANTIATE_TEST_SUITE_P(Waves, Emulator, testing::Values("gfx942", "gfx1100"));

}  // namespace
