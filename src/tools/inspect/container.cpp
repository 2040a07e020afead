#include "tools/inspect/container.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "pyflame/base/error.h"
#include "tools/inspect/archive.h"
#include "tools/inspect/bundle.h"
#include "tools/inspect/decompress.h"
#include "tools/inspect/elf.h"
#include "tools/inspect/kdb.h"

namespace pyflame::tools::inspect {

namespace {

namespace fs = std::filesystem;

constexpr int kDeepest = 8;  // enough for archive > program > section > compressed bundle > bundle > code object
constexpr size_t kMostContainerProblems = 50, kMostObjects = 200'000;
constexpr uint64_t kMostJson = 1 << 20;
constexpr std::string_view kBitcode = "BC\xc0\xde", kBitcodeWrapper = "\xde\xc0\x17\x0b";

bool is_bitcode(Bytes data) { return starts_with(data, kBitcode) || starts_with(data, kBitcodeWrapper); }

// An entry of ROCm's compilation cache (hipRTC, comgr): the length, the compiled object, and the compiler's messages.
std::optional<Bytes> comgr_entry(Bytes data) {
  const auto size = read<uint64_t>(data, 0);
  if (!size || *size < 4) return std::nullopt;
  const auto head = slice(data, 8, 4);
  if (!head || !(is_elf(*head) || is_bitcode(*head))) return std::nullopt;
  return data.subspan(8, static_cast<size_t>(std::min<uint64_t>(*size, data.size() - 8)));
}

// Tensile writes MessagePack maps whose first key is one of these.
bool is_tensile_library(Bytes data) {
  if (data.size() < 16 || (data[0] & 0xf0) != 0x80) return false;
  const std::string_view head = as_text(data.first(16));
  return head.find("solutions") == 2 || head.find("library") == 2 || head.find("metadata") == 2;
}

struct Place {
  std::string member, container;
  int depth = 0;
  Place inside(const std::string& what, std::string kind) const {
    return {member.empty() ? what : what.empty() ? member : member + ": " + what, std::move(kind), depth + 1};
  }
  Place of(std::string kind) const { return inside({}, std::move(kind)); }
};

class Reader {
 public:
  Reader(std::string path, const Memory& file, FileContents& out)
      : path_(std::move(path)), out_(out), work_left_(16 * file.bytes.size() + kAlwaysAllowed) {}

  void visit(const Memory& m, const Place& place) {
    if (m.bytes.empty() || !may_go_on(m.bytes.size(), place)) return;
    try {
      if (is_elf(m.bytes)) visit_elf(m, place);
      else if (is_archive(m.bytes)) visit_archive(m, place);
      else if (starts_with(m.bytes, kBundleMagic) || starts_with(m.bytes, kCompressedMagic) ||
               starts_with(m.bytes, kOffloadMagic))
        visit_bundles(m, place);
      else if (is_text_bundle(m.bytes)) visit_text_bundle(m, place);
      else if (is_bitcode(m.bytes)) other("LLVM bitcode (no machine code yet)");
      else if (is_tensile_library(m.bytes)) other("Tensile selection library (no machine code)");
      else if (is_sqlite(m.bytes) && place.depth == 0) visit_database();
      else if (const auto entry = comgr_entry(m.bytes); entry && place.depth == 0)
        visit(m.part(*entry), place.of("comgr cache"));
      else if (all_zero(m.bytes))
        problem(place,
                fmt::format(
                    "all of its {} bytes are zero: the code was removed from this copy (a sparse or placeholder file)",
                    m.bytes.size()));
      else if (place.depth > 0) other("data of an unknown kind");
    } catch (const Error& e) {
      problem(place, e.what());
    }
  }

 private:
  bool may_go_on(uint64_t bytes, const Place& place) {
    if (place.depth > kDeepest || out_.objects.size() >= kMostObjects || bytes > work_left_) {
      if (!stopped_) problem(place, "the file is nested too deeply or overlaps itself: the rest of it was not read");
      stopped_ = true;
      return false;
    }
    work_left_ -= bytes;
    return true;
  }

  void visit_elf(const Memory& m, const Place& place) {
    const uint16_t machine = elf_machine(m.bytes);
    if (machine == Elf::kCuda) return other("NVIDIA GPU code");
    if (machine == Elf::kAmdGpu) return add_object(m, place);
    const Elf elf = parse_elf(m.bytes);
    bool any = false;
    for (const ElfSection& s : elf.sections) {
      if (s.name == ".nv_fatbin" || s.name == "__nv_relfatbin") {
        other("NVIDIA GPU code (.nv_fatbin)");
        any = true;
      }
      // .hip_fatbin: programs; __CLANG_OFFLOAD_BUNDLE__<id>: relocatable objects; .llvm.offloading: the newer driver's.
      if (s.name != ".hip_fatbin" && s.name != ".llvm.offloading" && !s.name.starts_with(kBundleMagic)) continue;
      any = true;
      const std::string name(s.name.substr(0, 100));
      if (s.data.empty()) {
        if (s.size != 0)
          problem(place.inside(name, {}), "the section has no bytes in this file (stripped or truncated)");
      } else if (s.name.starts_with(kBundleMagic)) {
        visit(m.part(s.data), place.inside(name, "bundle"));
      } else {
        visit_bundles(m.part(s.data), place.inside(name, "fat binary"));
      }
    }
    for (const std::string& p : elf.problems) problem(place, p);
    if (!any) other("program or library without GPU code");
  }

  void add_object(const Memory& m, const Place& place) {
    CodeObject object = parse_code_object(m.bytes);
    if (place.container == "comgr cache" && object.relocatable)
      return other("intermediate object of the compiler's cache");
    for (const std::string& p : object.problems) problem(place, p);
    FoundObject found;
    found.path = path_;
    found.member = place.member;
    found.container = place.container.empty() ? "elf" : place.container;
    if (place.depth == 0) {
      found.triton = triton_info();
      if (found.triton) found.container = "triton cache";
    }
    found.memory = m;
    found.object = std::move(object);
    out_.objects.push_back(std::move(found));
  }

  // Triton writes <kernel>.json next to <kernel>.hsaco.
  std::optional<TritonInfo> triton_info() const {
    std::error_code ec;
    const fs::path beside = fs::path(path_).replace_extension(".json");
    if (beside == fs::path(path_) || !fs::is_regular_file(beside, ec) || fs::file_size(beside, ec) > kMostJson)
      return std::nullopt;
    try {
      const Memory text = map_file(beside.string());
      const auto j = nlohmann::json::parse(text.bytes.begin(), text.bytes.end(), nullptr, false);
      if (!j.is_object() || !j.contains("num_warps")) return std::nullopt;
      const auto number = [&j](const char* key) {
        const auto at = j.find(key);
        return at != j.end() && at->is_number_integer() ? at->get<int64_t>() : int64_t{0};
      };
      const auto name = j.find("name");
      return TritonInfo{name != j.end() && name->is_string() ? name->get<std::string>() : std::string(),
                        number("num_warps"), number("num_stages"), number("shared")};
    } catch (const Error&) {
      return std::nullopt;  // the code object is complete without it
    }
  }

  void visit_archive(const Memory& m, const Place& place) {
    const Archive archive = parse_archive(m.bytes);
    for (const std::string& p : archive.problems) problem(place, p);
    for (const ArchiveMember& member : archive.members) {
      const Place at = place.inside(member.name.substr(0, 200), "archive");
      if (!archive.thin) {
        visit(m.part(member.data), at);
        continue;
      }
      const fs::path file = fs::path(path_).parent_path() / member.name;
      if (place.depth > 0) continue;  // a thin archive inside another container has no folder
      try {
        visit(map_file(file.string()), at);
      } catch (const Error& e) {
        problem(at, e.what());
      }
    }
  }

  void visit_bundles(const Memory& m, const Place& place) {
    if (all_zero(m.bytes)) {
      problem(place, fmt::format("its {} bytes are all zero: the GPU code was removed from this copy of the file",
                                 m.bytes.size()));
      return;
    }
    uint64_t end = 0;
    for (int number = 1; const auto at = find_bundle(m.bytes, end); ++number) {
      const Memory rest = m.part(m.bytes.subspan(*at));
      Place here = place.inside(fmt::format("#{}", number), place.container);
      uint64_t extent = 0;
      try {
        extent = bundle_extent(rest.bytes);
        if (number == 1 && extent != 0 && !find_bundle(m.bytes, *at + extent))
          here.member = place.member;  // the only code object
        if (starts_with(rest.bytes, kCompressedMagic)) extent = std::max(extent, visit_compressed(rest, here));
        else if (starts_with(rest.bytes, kBundleMagic)) visit_entries(rest, parse_bundle(rest.bytes), here);
        else visit_entries(rest, parse_offload_binary(rest.bytes), here);
      } catch (const Error& e) {
        problem(here, e.what());
      }
      end = *at + std::clamp<uint64_t>(extent, 1, m.bytes.size() - *at);
      if (stopped_) return;
    }
    if (end == 0) problem(place, "no offload bundle was found in it");
  }

  void visit_entries(const Memory& m, const Bundle& bundle, const Place& place) {
    for (const std::string& p : bundle.problems) problem(place, p);
    for (const BundleEntry& e : bundle.entries) {
      if (!e.device || e.data.empty()) continue;
      const Place at = place.of(place.container == "compressed bundle" ? place.container : "bundle");
      if (all_zero(e.data))
        problem(at, fmt::format("the code for {} is all zero: it was removed from this copy of the file",
                                e.target.empty() ? e.id : e.target));
      else visit(m.part(e.data), at);
      if (stopped_) break;
    }
  }

  uint64_t visit_compressed(const Memory& m, const Place& place) {
    const CompressedHeader h = parse_compressed_header(m.bytes);
    Bytes packed = m.bytes.subspan(h.header);
    if (h.file_size >= h.header) {
      if (h.file_size > m.bytes.size())
        problem(place,
                fmt::format("the compressed bundle has {} bytes, but the file contains {} of them: is it truncated?",
                            h.file_size, m.bytes.size()));
      packed = packed.first(std::min<uint64_t>(h.file_size - h.header, packed.size()));
    }
    if (all_zero(packed.first(std::min<size_t>(packed.size(), 4096)))) {
      problem(place, "the compressed code is all zero: it was removed from this copy of the file");
    } else {
      const Decompressed d = decompress(h.method, packed, h.size);
      if (!d.problem.empty()) problem(place, "compressed bundle: " + d.problem);
      out_.decompressed += d.data.bytes.size();
      work_left_ += 4 * d.data.bytes.size();
      if (!d.data.bytes.empty()) {
        PF_CHECK(starts_with(d.data.bytes, kBundleMagic), Value, "the compressed data is not an offload bundle");
        visit_entries(d.data, parse_bundle(d.data.bytes), place.of("compressed bundle"));
      }
      if (h.file_size == 0) return h.header + d.consumed;
    }
    return std::max<uint64_t>(h.file_size, h.header);
  }

  void visit_text_bundle(const Memory& m, const Place& place) {
    std::string targets;
    for (const std::string& t : text_bundle_targets(m.bytes)) targets += (targets.empty() ? "" : ", ") + t;
    problem(
        place,
        fmt::format("a text bundle ({}) of source, IR or assembly, without machine code; hint: compile it to an object",
                    targets));
  }

  void visit_database() {
    const KernelDb db = read_kernel_db(path_, [this](std::string_view name, const Memory& code) {
      out_.decompressed += code.bytes.size();
      work_left_ += 4 * code.bytes.size();
      visit(code, Place{std::string(name.substr(0, 200)), "kdb", 1});
    });
    for (const std::string& p : db.problems) problem({}, p);
    if (!db.is_kernel_db && db.problems.empty()) other("SQLite database without kernels");
  }

  void other(const std::string& kind) { ++out_.others[kind]; }

  void problem(const Place& place, std::string what) {
    if (out_.problems.size() < kMostContainerProblems)
      out_.problems.push_back({place.member.empty() ? path_ : path_ + ": " + place.member, std::move(what)});
  }

  std::string path_;
  FileContents& out_;
  uint64_t work_left_;  // the number of bytes that may still be read: entries of a hostile file may overlap
  bool stopped_ = false;
};

}  // namespace

std::string recognise(Bytes head) {
  if (is_elf(head)) return "ELF file";
  if (is_archive(head)) return "archive";
  if (starts_with(head, kBundleMagic) || is_text_bundle(head)) return "offload bundle";
  if (starts_with(head, kCompressedMagic)) return "compressed offload bundle";
  if (starts_with(head, kOffloadMagic)) return "offload binary";
  if (is_bitcode(head)) return "LLVM bitcode";
  if (is_tensile_library(head)) return "Tensile selection library";
  if (is_sqlite(head)) return "SQLite database";
  if (comgr_entry(head)) return "comgr cache";
  return {};
}

FileContents read_contents(const std::string& path, const Memory& file) {
  FileContents out;
  Reader(path, file, out).visit(file, {});
  return out;
}

FileContents read_file_contents(const std::string& path) { return read_contents(path, map_file(path)); }

}  // namespace pyflame::tools::inspect
