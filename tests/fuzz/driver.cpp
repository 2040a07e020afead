// What libFuzzer does, in small, for compilers that do not have it: reads the seeds (files and folders), then mutates
// them in an order that depends on -seed alone. Understands -runs=N, -seed=N, -max_len=N and -max_total_time=N; other
// options are ignored.
#include <sanitizer/common_interface_defs.h>
#include <unistd.h>
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <string_view>
#include <vector>

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv);
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

using Bytes = std::vector<uint8_t>;

Bytes current;
std::string artifact_prefix;

// Called by the sanitizers before they end the process, and when an input takes too long.
void save() {
  const std::string path = artifact_prefix + "crash";
  if (FILE* f = std::fopen(path.c_str(), "wb")) {
    std::fwrite(current.data(), 1, current.size(), f);
    std::fclose(f);
    std::fprintf(stderr, "the input was written to %s\n", path.c_str());
  }
}

Bytes mutate(const std::vector<Bytes>& seeds, std::mt19937_64& rng, size_t max_len) {
  const auto below = [&](size_t n) { return n == 0 ? 0 : static_cast<size_t>(rng() % n); };
  Bytes b = seeds[below(seeds.size())];
  for (size_t n = 1 + below(4); n > 0; --n) {
    switch (b.empty() ? 1 : below(7)) {
      case 0: b[below(b.size())] ^= static_cast<uint8_t>(1u << below(8)); break;
      case 1:
        b.insert(b.begin() + static_cast<std::ptrdiff_t>(below(b.size() + 1)), static_cast<uint8_t>(rng()));
        break;
      case 2: b.resize(below(b.size())); break;
      case 3:
        b[below(b.size())] = std::initializer_list<uint8_t>{0, 1, 0x7f, 0x80, 0xff, '"', '{', ','}.begin()[below(8)];
        break;
      case 4: {
        const size_t at = below(b.size()), length = std::min(b.size() - at, below(64));
        b.erase(b.begin() + static_cast<std::ptrdiff_t>(at), b.begin() + static_cast<std::ptrdiff_t>(at + length));
        break;
      }
      case 5: {
        const Bytes& other = seeds[below(seeds.size())];
        const size_t from = below(other.size());
        b.resize(below(b.size()));
        b.insert(b.end(), other.begin() + static_cast<std::ptrdiff_t>(from), other.end());
        break;
      }
      default: {
        const size_t at = below(b.size()), length = std::min(b.size() - at, below(32));
        const Bytes piece(b.begin() + static_cast<std::ptrdiff_t>(at),
                          b.begin() + static_cast<std::ptrdiff_t>(at + length));
        b.insert(b.begin() + static_cast<std::ptrdiff_t>(below(b.size())), piece.begin(), piece.end());
      }
    }
  }
  if (b.size() > max_len) b.resize(max_len);
  return b;
}

}  // namespace

int main(int argc, char** argv) {
  LLVMFuzzerInitialize(&argc, &argv);
  __sanitizer_set_death_callback(save);
  std::signal(SIGALRM, [](int) {
    std::fputs("ERROR: an input takes more than 10 seconds\n", stderr);
    save();
    std::_Exit(1);
  });
  long runs = 1000, seconds = 0, seed = 1, max_len = 65536;
  std::vector<Bytes> seeds;
  const auto add = [&](const std::filesystem::path& path) {
    std::ifstream in(path, std::ios::binary);
    seeds.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
  };
  for (int i = 1; i < argc; ++i) {
    const std::string a = argv[i];
    const auto value = [&](std::string_view name, long& to) {
      if (a.rfind(name, 0) == 0) to = std::strtol(a.c_str() + name.size(), nullptr, 10);
    };
    value("-runs=", runs), value("-seed=", seed), value("-max_total_time=", seconds), value("-max_len=", max_len);
    if (const std::string name = "-artifact_prefix="; a.rfind(name, 0) == 0) artifact_prefix = a.substr(name.size());
    if (a.rfind('-', 0) == 0) continue;
    if (std::filesystem::is_directory(a))
      for (const auto& entry : std::filesystem::directory_iterator(a)) add(entry.path());
    else add(a);
  }
  const auto one = [](const Bytes& b) {
    current = b;
    ::alarm(10);
    LLVMFuzzerTestOneInput(b.data(), b.size());
  };
  std::sort(seeds.begin(), seeds.end());  // folders are listed in no order
  if (seeds.empty()) seeds.emplace_back();
  for (const Bytes& b : seeds) one(b);
  std::mt19937_64 rng(static_cast<uint64_t>(seed));
  const auto start = std::chrono::steady_clock::now();
  long done = 0;
  for (; runs < 0 || done < runs; ++done) {
    if (seconds > 0 && std::chrono::steady_clock::now() - start > std::chrono::seconds(seconds)) break;
    one(mutate(seeds, rng, static_cast<size_t>(std::max(1L, max_len))));
  }
  std::printf("%zu seeds and %ld mutations of them: no fault\n", seeds.size(), done);
  return 0;
}
