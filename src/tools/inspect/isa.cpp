#include "tools/inspect/isa.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "pyflame/base/error.h"
#include "tools/inspect/disasm.h"
#include "tools/inspect/isa_lint.h"
#include "tools/inspect/source_lines.h"
#include "tools/view/finding.h"

namespace pyflame::tools::inspect {

using nlohmann::json;

namespace {

// Disassemblers run in forked children. AddressSanitizer's allocator does not survive a fork while other threads run.
#if defined(__SANITIZE_ADDRESS__)
constexpr bool kOneThread = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
constexpr bool kOneThread = true;
#else
constexpr bool kOneThread = false;
#endif
#else
constexpr bool kOneThread = false;
#endif

// Kernels of libraries have some KiB of code, the largest known ones some hundred KiB. Longer code is cut, and the document says so.
constexpr size_t kMostCode = size_t{2} << 20;

std::string hex(uint64_t address) { return fmt::format("{:#x}", address); }

json mix_of(const Stats& s) {
  const uint64_t lds =
      s.of(OpClass::lds_load) + s.of(OpClass::lds_store) + s.of(OpClass::lds_atomic) + s.of(OpClass::lane_exchange);
  return {{"valu", s.of(OpClass::valu)},
          {"salu", s.of(OpClass::salu)},
          {"smem", s.of(OpClass::smem)},
          {"vmem_load", s.of(OpClass::global_load)},
          {"vmem_store", s.of(OpClass::global_store)},
          {"atomic", s.of(OpClass::global_atomic)},
          {"lds", lds},
          {"scratch", s.of(OpClass::scratch_load) + s.of(OpClass::scratch_store)},
          {"matrix", s.of(OpClass::matrix)},
          {"wait", s.of(OpClass::wait)},
          {"barrier", s.of(OpClass::barrier)},
          {"branch", s.of(OpClass::branch)},
          {"other", s.of(OpClass::other) + s.of(OpClass::nop) + s.of(OpClass::end) + s.of(OpClass::unknown)}};
}

json matrix_of(const Stats& s) {
  json list = json::array();
  for (const MatrixUse& m : s.matrix)
    list.push_back({{"name", std::string(m.name)},
                    {"shape", m.info->shape},
                    {"type", m.info->type},
                    {"count", m.count},
                    {"cycles", m.cycles}});
  return list;
}

double share(uint64_t part, uint64_t whole) {
  return whole ? static_cast<double>(part) / static_cast<double>(whole) : 0.0;
}

json loop_of(const Loop& loop, const Stats& s, const std::vector<Op>& ops, const ControlFlow& flow,
             const IsaArch& arch) {
  const BasicBlock& first = flow.blocks[loop.blocks.front()];
  const Op& last = ops[flow.blocks[loop.blocks.back()].last - 1];
  const uint64_t lanes = static_cast<uint64_t>(arch.wave);
  return {{"begin", hex(ops[first.first].address)},
          {"end", hex(last.address + last.size)},
          {"depth", loop.depth},
          {"innermost", loop.innermost},
          {"instructions", s.instructions},
          {"bytes", s.code_bytes},
          {"fits_instruction_cache",
           arch.icache_bytes ? json(s.code_bytes <= static_cast<uint64_t>(arch.icache_bytes)) : json()},
          {"mix", mix_of(s)},
          {"matrix", matrix_of(s)},
          {"matrix_share", share(s.matrix_cycles, s.cycles)},
          {"issue_cycles", s.cycles},
          {"load_bytes", s.load_bytes * lanes},
          {"store_bytes", s.store_bytes * lanes},
          {"lds_bytes", s.lds_bytes * lanes},
          {"scratch_bytes", s.scratch_bytes * lanes},
          {"waits",
           {{"vmcnt0", s.wait_load0},
            {"lgkmcnt0", s.wait_lds0},
            {"storecnt0", s.wait_store0},
            {"all", s.of(OpClass::wait)}}}};
}

json assumptions_of(const IsaArch& a) {
  json list = json::array();
  list.push_back(fmt::format("bytes are those of one wave with all {} lanes active: width of the instruction x {}",
                             a.wave, a.wave));
  list.push_back(
      "a loop counts each of its instructions once per iteration, also those of branches that are not always taken and "
      "of "
      "loops inside");
  if (a.generation == 9) {
    list.push_back(
        fmt::format("issue cycles of one wave alone: 4 for an instruction of 64 lanes on a SIMD of 16, transcendental "
                    "x4, conversion x{}, double "
                    "precision x{}, 32-bit integer multiplication x{} (rates of LLVM's AMDGPU scheduling models)",
                    a.cvt_factor, a.f64_factor, a.int_mul_factor));
  } else {
    list.push_back(
        fmt::format("issue cycles of one wave alone: {} for a vector instruction of {} lanes, transcendental and "
                    "32-bit integer multiplication x4, "
                    "double precision x{} (rates of LLVM's AMDGPU scheduling models), 1 for others; a v_dual "
                    "instruction counts once",
                    a.valu_cycles, a.wave, a.f64_factor));
  }
  if (a.cdna) {
    list.push_back(
        "a matrix instruction occupies the matrix core for its passes of 4 cycles (AMD's CDNA ISA guides, LLVM's "
        "scheduling models)");
  } else if (a.matrix) {
    list.push_back("a matrix instruction takes its operations at the rate of half a CU (AMD's published WMMA rates)");
  }
  list.push_back("the cycles do not include waiting for memory, LDS bank conflicts and other waves");
  list.push_back(fmt::format(
      "a full wait is reported if there are less than {} issue cycles (LDS: {}) between the load and the wait",
      kNearLoadCycles, kNearLdsCycles));
  return list;
}

json finding_of(const IsaFinding& f, const SourceLines* lines) {
  json addresses = json::array();
  for (const uint64_t a : f.addresses) addresses.push_back(hex(a));
  const std::string source = lines ? lines->find(f.address) : std::string();
  json out = view::to_json(f);
  out["where"] =
      hex(f.address) + (source.empty() ? "" : ", " + source) + (f.count > 1 ? fmt::format(", {} times", f.count) : "");
  out["address"] = hex(f.address);
  out["addresses"] = std::move(addresses);
  out["source"] = source.empty() ? json() : json(source);
  out["count"] = f.count;
  out["loop"] = f.loop < 0 ? json() : json(f.loop);
  return out;
}

// Analyses the code of kernels, one after the other. There is one analyser for each thread, architecture and wave size.
class Analyser {
 public:
  Analyser(std::string_view gfx, int wave) : classifier_(IsaArch::of(gfx, wave)) {
    assumptions_ = assumptions_of(classifier_.arch());
  }

  template <class Lines>
  json run(const Listing& listing, const IsaKernel& kernel, bool cut, const Lines& lines) {
    classifier_.run(listing, kernel.scratch_bytes, ops_);
    const IsaArch& arch = classifier_.arch();
    const ControlFlow flow = control_flow(ops_);
    const Regions regions = make_regions(ops_, flow);
    const std::vector<IsaFinding> findings = lint_isa(arch, ops_, flow, regions);

    json doc = {{"instructions", regions.total.instructions},
                {"wave", arch.wave},
                {"mix", mix_of(regions.total)},
                {"matrix", matrix_of(regions.total)},
                {"widest_load", regions.total.widest_load},
                {"widest_store", regions.total.widest_store},
                {"blocks", flow.blocks.size()},
                {"loops", json::array()},
                {"findings", json::array()},
                {"assumptions", assumptions_}};
    for (size_t i = 0; i < flow.loops.size(); ++i)
      doc["loops"].push_back(loop_of(flow.loops[i], regions.loop_stats[i], ops_, flow, arch));
    const SourceLines* source = findings.empty() ? nullptr : lines();
    for (const IsaFinding& f : findings) doc["findings"].push_back(finding_of(f, source));
    if (const uint64_t n = regions.total.of(OpClass::unknown)) doc["undecoded"] = n;
    if (cut) doc["cut_after_bytes"] = kMostCode;
    if (!flow.complete) doc["loops_incomplete"] = true;
    return doc;
  }

 private:
  Classifier classifier_;
  std::vector<Op> ops_;
  json assumptions_;
};

using Setting = std::pair<std::string, int>;  // architecture and wave size

std::string gfx_of(const IsaObject& object) { return std::string(object.gfx.substr(0, object.gfx.find(':'))); }

Bytes code_of(const IsaKernel& kernel) { return kernel.code.first(std::min(kernel.code.size(), kMostCode)); }

// To find, load and query a library takes longer than to read a small object, and loaded libraries stay loaded. So there is one set for each given path, which lives as long as the program.
Disassemblers& disassemblers_of(const std::string& path) {
  static std::mutex mutex;
  static std::map<std::string, std::unique_ptr<Disassemblers>> all;
  const std::lock_guard lock(mutex);
  auto& found = all[path];
  if (!found) found = std::make_unique<Disassemblers>(path);
  return *found;
}

class Run {
 public:
  Run(const std::vector<IsaObject>& objects, const IsaOptions& options, const std::function<void(size_t)>& progress)
      : objects_(objects), disassemblers_(disassemblers_of(options.llvm)), progress_(progress), lines_(objects.size()) {
    const unsigned machine = std::max(1u, std::thread::hardware_concurrency());
    threads_ = options.threads > 0 ? static_cast<unsigned>(options.threads) : machine;
    if (kOneThread) threads_ = 1;
    result_.kernels.resize(objects.size());
    for (size_t i = 0; i < objects.size(); ++i) result_.kernels[i].resize(objects[i].kernels.size());
  }

  IsaResult run() {
    // An architecture that no library supports is read by the tool llvm-objdump, which reads whole objects.
    std::map<std::string, bool> readable;
    std::vector<std::pair<size_t, size_t>> kernels;
    std::vector<size_t> for_tool;
    for (size_t i = 0; i < objects_.size(); ++i) {
      if (objects_[i].kernels.empty()) continue;
      const std::string gfx = gfx_of(objects_[i]);
      const auto [it, fresh] = readable.try_emplace(gfx, false);
      if (fresh) it->second = disassemblers_.knows(gfx);
      if (!it->second) for_tool.push_back(i);
      for (size_t k = 0; it->second && k < objects_[i].kernels.size(); ++k) kernels.emplace_back(i, k);
    }
    parallel(kernels.size(), 8, [&](size_t n, Workers& w) { by_library(kernels[n].first, kernels[n].second, w); });
    parallel(for_tool.size(), 1, [&](size_t n, Workers& w) { by_tool(for_tool[n], w); });

    std::set<std::string> absent;
    for (const size_t i : for_tool) {
      const auto& done = result_.kernels[i];
      if (std::any_of(done.begin(), done.end(), [](const json& j) { return j.is_null(); }))
        absent.insert(gfx_of(objects_[i]));
    }
    for (const std::string& gfx : absent) result_.missing.push_back(disassemblers_.missing(gfx));
    for (const std::string& name : disassemblers_.used())
      result_.disassembler += (result_.disassembler.empty() ? "" : "; ") + name;
    return std::move(result_);
  }

 private:
  struct Worker {
    std::unique_ptr<Disassembler> disassembler;
    std::unique_ptr<Analyser> analyser;
  };
  struct Workers {
    std::map<Setting, Worker> by_setting;
    Listing listing;
  };

  template <class F>
  void parallel(size_t count, size_t for_a_thread, const F& work) {
    std::atomic<size_t> next{0};
    const auto body = [&] {
      Workers workers;
      for (size_t n; (n = next.fetch_add(1)) < count;) {
        try {
          work(n, workers);
        } catch (const std::exception& e) {  // there was no temporary file or no memory: the others are still read
          const std::lock_guard lock(progress_mutex_);
          if (std::find(result_.missing.begin(), result_.missing.end(), e.what()) == result_.missing.end())
            result_.missing.emplace_back(e.what());
        }
      }
    };
    std::vector<std::jthread> threads;
    // Each thread starts a process, which does not pay for a few kernels.
    for (size_t t = 1; t < std::min<size_t>(threads_, (count + for_a_thread - 1) / for_a_thread); ++t)
      threads.emplace_back(body);
    body();
  }

  Analyser& analyser(Worker& w, const Setting& setting) {
    if (!w.analyser) w.analyser = std::make_unique<Analyser>(setting.first, setting.second);
    return *w.analyser;
  }

  const SourceLines* lines_of(size_t object) {
    const std::lock_guard lock(lines_mutex_);
    if (!lines_[object]) lines_[object] = std::make_unique<SourceLines>(SourceLines::of_elf(objects_[object].elf));
    return lines_[object].get();
  }

  void put(size_t object, size_t kernel, json document) {
    const std::lock_guard lock(progress_mutex_);
    result_.kernels[object][kernel] = std::move(document);
    ++done_;
    if (progress_) progress_(done_);
  }

  void by_library(size_t object, size_t k, Workers& workers) {
    const IsaKernel& kernel = objects_[object].kernels[k];
    const Setting setting{gfx_of(objects_[object]), kernel.wave};
    Worker& w = workers.by_setting[setting];
    if (!w.disassembler) w.disassembler = disassemblers_.open(setting.first, setting.second);
    if (!w.disassembler) return put(object, k, nullptr);
    workers.listing.clear();
    w.disassembler->read(kernel.address, code_of(kernel), workers.listing);
    put(object, k, analyser(w, setting).run(workers.listing, kernel, kernel.code.size() > kMostCode, [&] {
      return lines_of(object);
    }));
  }

  // The tool prints the whole object by address. Each kernel is analysed after its last instruction.
  void by_tool(size_t object, Workers& workers) {
    const IsaObject& o = objects_[object];
    std::set<int> waves;
    for (const IsaKernel& k : o.kernels) waves.insert(k.wave);
    for (const int wave : waves) {
      std::vector<size_t> order;
      for (size_t k = 0; k < o.kernels.size(); ++k)
        if (o.kernels[k].wave == wave) order.push_back(k);
      std::sort(order.begin(), order.end(),
                [&](size_t a, size_t b) { return o.kernels[a].address < o.kernels[b].address; });
      const Setting setting{gfx_of(o), wave};
      Worker& w = workers.by_setting[setting];
      workers.listing.clear();
      size_t at = 0;
      const auto end_of = [&](size_t k) { return o.kernels[k].address + code_of(o.kernels[k]).size(); };
      const auto finish = [&] {
        const IsaKernel& kernel = o.kernels[order[at]];
        json document;
        if (workers.listing.size() || kernel.code.empty())
          document = analyser(w, setting).run(workers.listing, kernel, kernel.code.size() > kMostCode, [&] {
            return lines_of(object);
          });
        workers.listing.clear();
        // Two symbols for the same code.
        for (; at < order.size() && o.kernels[order[at]].address == kernel.address &&
               o.kernels[order[at]].code.size() == kernel.code.size();
             ++at)
          put(object, order[at], document);
      };
      const bool ran = disassemblers_.run_tool(
          setting.first, wave, o.elf, [&](uint64_t address, uint32_t size, std::string_view text) {
            while (at < order.size() && address >= end_of(order[at])) finish();
            if (at >= order.size() || address < o.kernels[order[at]].address) return;
            workers.listing.add(address, size, text.starts_with(".long") ? std::string_view() : text);
          });
      while (ran && at < order.size()) finish();
    }
  }

  const std::vector<IsaObject>& objects_;
  Disassemblers& disassemblers_;
  const std::function<void(size_t)>& progress_;
  unsigned threads_ = 1;
  IsaResult result_;
  std::mutex progress_mutex_, lines_mutex_;
  size_t done_ = 0;
  std::vector<std::unique_ptr<SourceLines>> lines_;
};

}  // namespace

IsaResult analyse_isa(const std::vector<IsaObject>& objects, const IsaOptions& options,
                      const std::function<void(size_t done)>& progress) {
  return Run(objects, options, progress).run();
}

}  // namespace pyflame::tools::inspect
