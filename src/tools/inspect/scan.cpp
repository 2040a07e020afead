#include "tools/inspect/scan.h"

#include <fcntl.h>
#include <regex.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "pyflame/base/error.h"
#include "tools/inspect/demangle.h"
#include "tools/inspect/isa.h"

namespace pyflame::tools::inspect {

namespace {

namespace fs = std::filesystem;

constexpr uint64_t kBatchMemory = uint64_t{2} << 30;
constexpr size_t kBatchFiles = 256, kMostFiles = 1'000'000, kMostScanProblems = 1000;
constexpr unsigned kMostThreads = 32;

struct File {
  std::string path;
  bool named;  // named by the user, not found in a folder
};

class Expression {
 public:
  explicit Expression(const std::string& text) : used_(!text.empty()) {
    if (!used_) return;
    const int rc = regcomp(&regex_, text.c_str(), REG_EXTENDED | REG_NOSUB);
    if (rc == 0) return;
    char why[200] = "";
    regerror(rc, &regex_, why, sizeof why);
    PF_FAIL(Value, "inspect: --kernel is not a regular expression; got '{}'; {}", text, why);
  }
  ~Expression() {
    if (used_) regfree(&regex_);
  }
  Expression(const Expression&) = delete;
  Expression& operator=(const Expression&) = delete;
  bool matches(const std::string& text) const { return !used_ || regexec(&regex_, text.c_str(), 0, nullptr, 0) == 0; }

 private:
  bool used_;
  regex_t regex_{};
};

// "gfx942" matches every "gfx942:…". A name with features matches only itself.
bool takes(const std::string& wanted, const CodeObject& object) {
  return wanted.empty() || wanted == object.gfx || wanted == object.target;
}

std::string kind_of(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return {};
  uint8_t head[kHeadBytes];
  const ssize_t n = ::read(fd, head, sizeof head);
  ::close(fd);
  return n > 0 ? recognise(Bytes(head, static_cast<size_t>(n))) : std::string();
}

class Scanner {
 public:
  explicit Scanner(const ScanOptions& options) : options_(options), expression_(options.kernel) {
    const unsigned all = std::max(1u, std::thread::hardware_concurrency());
    threads_ = std::clamp(options.threads > 0 ? static_cast<unsigned>(options.threads) : all, 1u, kMostThreads);
  }

  Scan run(const std::vector<std::string>& paths) {
    out_.inputs = paths;
    for (const std::string& path : paths) list(path);
    progress_.files = out_.files = files_.size();
    while (next_ < files_.size()) {
      std::vector<FileContents> batch = read_batch();
      take(batch);
    }
    return std::move(out_);
  }

 private:
  void list(const std::string& path) {
    std::error_code ec;
    PF_CHECK(fs::exists(path, ec), OS, "inspect: the path does not exist; got '{}'; expected a file or a folder", path);
    if (!fs::is_directory(path, ec)) {
      files_.push_back({path, true});
      return;
    }
    std::vector<std::string> found;
    fs::recursive_directory_iterator at(path, fs::directory_options::skip_permission_denied, ec), end;
    for (; !ec && at != end && found.size() < kMostFiles; at.increment(ec)) {
      std::error_code ignored;
      if (at->symlink_status(ignored).type() == fs::file_type::regular) found.push_back(at->path().string());
    }
    if (ec) problem({path, fmt::format("the folder could not be read completely: {}", ec.message())});
    std::sort(found.begin(), found.end());
    for (std::string& f : found) files_.push_back({std::move(f), false});
  }

  std::vector<FileContents> read_batch() {
    const size_t begin = next_, end = std::min(files_.size(), begin + kBatchFiles);
    std::vector<FileContents> batch(end - begin);
    std::atomic<size_t> next{begin};
    std::atomic<uint64_t> memory{0};
    const auto work = [&] {
      while (memory.load() < kBatchMemory) {
        const size_t i = next.fetch_add(1);
        if (i >= end) return;
        batch[i - begin] = read_file(files_[i]);
        memory += batch[i - begin].decompressed;
        report([&] {
          ++progress_.files_done;
          for (const FoundObject& o : batch[i - begin].objects) progress_.kernels += o.object.kernels.size();
        });
      }
    };
    std::vector<std::thread> workers;
    for (unsigned i = 1; i < std::min<size_t>(threads_, end - begin); ++i) workers.emplace_back(work);
    work();
    for (std::thread& t : workers) t.join();
    next_ = std::min(next.load(), end);
    batch.resize(next_ - begin);
    return batch;
  }

  static FileContents read_file(const File& file) {
    FileContents contents;
    try {
      const std::string kind = kind_of(file.path);
      if (kind.empty() && !file.named) return contents;
      contents = read_file_contents(file.path);
      if (!file.named || !contents.objects.empty() || !contents.problems.empty()) return contents;
      std::string what = "has no machine code for AMD GPUs";
      if (contents.others.empty())
        what = kind.empty() ? "has an unknown format; expected a code object, a program or library, a "
                              "bundle, an archive, or a cache"
                            : what;
      for (const auto& [name, n] : contents.others) what += fmt::format("; {} {}", n, name);
      contents.problems.push_back({file.path, what});
    } catch (const Error& e) {
      contents.problems.push_back({file.path, e.what()});
    } catch (const std::bad_alloc&) {
      contents.problems.push_back({file.path, "there is not enough memory to read it"});
    } catch (const std::exception& e) {  // an exception of the standard library must not leave a thread
      contents.problems.push_back({file.path, e.what()});
    }
    return contents;
  }

  void problem(Problem p) {
    if (out_.problems.size() < kMostScanProblems) out_.problems.push_back(std::move(p));
  }

  // Adds the results in the order of the files, and reads the instructions of the chosen kernels while the bytes are in memory.
  void take(std::vector<FileContents>& batch) {
    std::vector<IsaObject> code;
    std::vector<std::vector<size_t>> numbers;  // the index of each kernel in out_.kernels
    for (FileContents& file : batch) {
      for (Problem& p : file.problems) problem(std::move(p));
      for (const auto& [kind, n] : file.others) out_.others[kind] += n;
      for (const FoundObject& found : file.objects) out_.kernels_found += found.object.kernels.size();
    }
    take_kernels(batch, code, numbers);
    if (!code.empty()) read_code(code, numbers);
  }

  void take_kernels(std::vector<FileContents>& batch, std::vector<IsaObject>& code,
                    std::vector<std::vector<size_t>>& numbers) {
    Demangler demangle;
    for (FileContents& file : batch)
      for (FoundObject& found : file.objects)
        if (takes(options_.arch, found.object)) take_object(found, demangle, code, numbers);
  }

  void take_object(FoundObject& found, Demangler& demangle, std::vector<IsaObject>& code,
                   std::vector<std::vector<size_t>>& numbers) {
    const CodeObject& object = found.object;
    IsaObject isa{object.target, found.memory.bytes, {}};
    std::vector<size_t> of_isa;
    size_t chosen = 0;
    for (const Kernel& k : object.kernels) {
      ScannedKernel kernel;
      kernel.name = demangle(k.symbol);
      if (!expression_.matches(kernel.name) && !expression_.matches(k.symbol)) continue;
      ++chosen;
      kernel.object = out_.objects.size();
      kernel.code_bytes = k.code.size();
      kernel.kernel = k;
      kernel.kernel.code = {};
      const bool readable = options_.isa && !k.code.empty() && !object.relocatable;
      if (readable && isa_chosen_ >= options_.most_isa) {
        const std::string what = fmt::format(
            "only the machine code of the first {} kernels was read; hint: select kernels with --kernel or --arch",
            options_.most_isa);
        if (isa_chosen_++ == options_.most_isa) out_.missing.push_back(what);
      } else if (readable) {
        ++isa_chosen_;
        isa.kernels.push_back({k.address, k.code, static_cast<int>(k.wave.value_or(0)),
                               k.scratch ? static_cast<int64_t>(*k.scratch) : -1});
        of_isa.push_back(out_.kernels.size());
      }
      out_.kernels.push_back(std::move(kernel));
    }
    if (chosen == 0 && !object.kernels.empty()) return;
    out_.objects.push_back({found.path, found.member, found.container, object.target, object.gfx, object.version,
                            object.file.size(), chosen, found.triton});
    if (isa.kernels.empty()) return;
    code.push_back(std::move(isa));
    numbers.push_back(std::move(of_isa));
  }

  void read_code(const std::vector<IsaObject>& code, const std::vector<std::vector<size_t>>& numbers) {
    const size_t before = progress_.kernels_read;
    for (const IsaObject& o : code) progress_.to_read += o.kernels.size();
    IsaResult result = analyse_isa(code, {options_.llvm, static_cast<int>(threads_)},
                                   [&](size_t done) { report([&] { progress_.kernels_read = before + done; }); });
    for (size_t i = 0; i < numbers.size() && i < result.kernels.size(); ++i)
      for (size_t j = 0; j < numbers[i].size() && j < result.kernels[i].size(); ++j)
        if (!result.kernels[i][j].is_null())
          out_.kernels[numbers[i][j]].isa = std::make_shared<const nlohmann::json>(std::move(result.kernels[i][j]));
    for (std::string& m : result.missing)
      if (std::find(out_.missing.begin(), out_.missing.end(), m) == out_.missing.end())
        out_.missing.push_back(std::move(m));
    if (!result.disassembler.empty()) out_.disassembler = result.disassembler;
  }

  template <class Change>
  void report(Change&& change) {
    const std::lock_guard lock(mutex_);
    change();
    if (options_.progress) options_.progress(progress_);
  }

  const ScanOptions& options_;
  Expression expression_;
  unsigned threads_;
  std::vector<File> files_;
  size_t next_ = 0, isa_chosen_ = 0;
  Scan out_;
  std::mutex mutex_;
  ScanProgress progress_;
};

}  // namespace

Scan scan(const std::vector<std::string>& paths, const ScanOptions& options) { return Scanner(options).run(paths); }

}  // namespace pyflame::tools::inspect
