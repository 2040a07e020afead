#include "tools/inspect/code_object.h"

#include <algorithm>
#include <map>
#include <unordered_map>

#include "pyflame/base/error.h"
#include "tools/inspect/elf.h"
#include "tools/inspect/msgpack.h"

namespace pyflame::tools::inspect {

namespace {

constexpr uint32_t kMetadataNote = 32;
constexpr uint64_t kDescriptorSize = 64, kMostKernels = 1'000'000, kMostArguments = 4096;
constexpr size_t kMostObjectProblems = 20;

struct Machine {
  uint8_t code;
  std::string_view gfx;
};

// The values of EF_AMDGPU_MACH in LLVM's ELF.h, as of clang 22.
constexpr Machine kMachines[] = {
    {0x20, "gfx600"},          {0x21, "gfx601"},        {0x22, "gfx700"},          {0x23, "gfx701"},
    {0x24, "gfx702"},          {0x25, "gfx703"},        {0x26, "gfx704"},          {0x28, "gfx801"},
    {0x29, "gfx802"},          {0x2a, "gfx803"},        {0x2b, "gfx810"},          {0x2c, "gfx900"},
    {0x2d, "gfx902"},          {0x2e, "gfx904"},        {0x2f, "gfx906"},          {0x30, "gfx908"},
    {0x31, "gfx909"},          {0x32, "gfx90c"},        {0x33, "gfx1010"},         {0x34, "gfx1011"},
    {0x35, "gfx1012"},         {0x36, "gfx1030"},       {0x37, "gfx1031"},         {0x38, "gfx1032"},
    {0x39, "gfx1033"},         {0x3a, "gfx602"},        {0x3b, "gfx705"},          {0x3c, "gfx805"},
    {0x3d, "gfx1035"},         {0x3e, "gfx1034"},       {0x3f, "gfx90a"},          {0x40, "gfx940"},
    {0x41, "gfx1100"},         {0x42, "gfx1013"},       {0x43, "gfx1150"},         {0x44, "gfx1103"},
    {0x45, "gfx1036"},         {0x46, "gfx1101"},       {0x47, "gfx1102"},         {0x48, "gfx1200"},
    {0x49, "gfx1250"},         {0x4a, "gfx1151"},       {0x4b, "gfx941"},          {0x4c, "gfx942"},
    {0x4e, "gfx1201"},         {0x4f, "gfx950"},        {0x51, "gfx9-generic"},    {0x52, "gfx10-1-generic"},
    {0x53, "gfx10-3-generic"}, {0x54, "gfx11-generic"}, {0x55, "gfx1152"},         {0x58, "gfx1153"},
    {0x59, "gfx12-generic"},   {0x5a, "gfx1251"},       {0x5b, "gfx12-5-generic"}, {0x5f, "gfx9-4-generic"}};

void complain(CodeObject& object, std::string what) {
  if (object.problems.size() < kMostObjectProblems) object.problems.push_back(std::move(what));
}

std::string features(uint32_t flags, int version) {
  std::string out;
  if (version == 3) {  // one bit for each: on or off
    if (flags & 0x200) out += ":sramecc+";
    if (flags & 0x100) out += ":xnack+";
    return out;
  }
  const auto state = [&](uint32_t bits, const char* name) {  // 0 unsupported, 1 either, 2 off, 3 on
    if (bits >= 2) out += fmt::format(":{}{}", name, bits == 3 ? '+' : '-');
  };
  state((flags >> 10) & 3, "sramecc");
  state((flags >> 8) & 3, "xnack");
  return out;
}

// gfx942 -> 9, gfx1100 -> 11, gfx11-generic -> 11.
int generation(std::string_view gfx) {
  if (gfx.size() < 4) return 0;
  std::string_view digits = gfx.substr(3);
  const size_t dash = digits.find('-');
  digits = dash == std::string_view::npos ? digits.substr(0, digits.size() - std::min<size_t>(2, digits.size()))
                                          : digits.substr(0, dash);
  int n = 0;
  for (const char c : digits) n = c >= '0' && c <= '9' ? n * 10 + (c - '0') : n;
  return n;
}

bool unified_registers(std::string_view gfx) {
  return gfx == "gfx90a" || gfx.starts_with("gfx94") || gfx.starts_with("gfx95") || gfx == "gfx9-4-generic";
}

// --- the metadata note

void read_argument(MsgpackReader& in, Kernel& kernel) {
  KernelArgument a;
  for (uint64_t pairs = in.map(); pairs > 0; --pairs) {
    const std::string_view key = in.text();
    if (key == ".offset") a.offset = in.number();
    else if (key == ".size") a.size = in.number();
    else if (key == ".value_kind") a.kind = in.text();
    else if (key == ".name") a.name = in.text();
    else if (key == ".type_name") a.type = in.text();
    else if (key == ".address_space") a.address_space = in.text();
    else in.skip();
  }
  if (kernel.arguments.size() < kMostArguments) kernel.arguments.push_back(std::move(a));
}

Kernel read_kernel(MsgpackReader& in) {
  Kernel k;
  k.agpr = 0;  // present only for GPUs that have them
  const std::pair<std::string_view, Count*> numbers[] = {{".wavefront_size", &k.wave},
                                                         {".vgpr_count", &k.vgpr},
                                                         {".agpr_count", &k.agpr},
                                                         {".sgpr_count", &k.sgpr},
                                                         {".vgpr_spill_count", &k.vgpr_spill},
                                                         {".sgpr_spill_count", &k.sgpr_spill},
                                                         {".group_segment_fixed_size", &k.lds},
                                                         {".private_segment_fixed_size", &k.scratch},
                                                         {".kernarg_segment_size", &k.kernarg},
                                                         {".max_flat_workgroup_size", &k.max_workgroup}};
  for (uint64_t pairs = in.map(); pairs > 0; --pairs) {
    const std::string_view key = in.text();
    const auto* number =
        std::find_if(std::begin(numbers), std::end(numbers), [&](const auto& n) { return n.first == key; });
    if (number != std::end(numbers)) {
      *number->second = in.number();
    } else if (key == ".name") {
      k.symbol = in.text();
    } else if (key == ".uses_dynamic_stack") {
      k.dynamic_stack = in.number() != 0;
    } else if (key == ".workgroup_processor_mode") {
      k.wgp_mode = in.number() != 0;
    } else if (key == ".reqd_workgroup_size") {
      const uint64_t n = in.array();
      PF_CHECK(n == 3, Value, ".reqd_workgroup_size has {} numbers; expected 3", n);
      std::array<uint64_t, 3> size{};
      for (uint64_t& s : size) s = in.number();
      k.required_workgroup = size;
    } else if (key == ".args") {
      for (uint64_t n = in.array(); n > 0; --n) read_argument(in, k);
    } else {
      in.skip();
    }
  }
  return k;
}

void read_metadata(CodeObject& object, Bytes note) {
  MsgpackReader in(note);
  try {
    for (uint64_t pairs = in.map(); pairs > 0; --pairs) {
      const std::string_view key = in.text();
      if (key == "amdhsa.kernels") {
        for (uint64_t n = in.array(); n > 0; --n) {
          Kernel k = read_kernel(in);
          PF_CHECK(!k.symbol.empty(), Value, "a kernel has no .name");
          PF_CHECK(object.kernels.size() < kMostKernels, Value, "more than {} kernels", kMostKernels);
          object.kernels.push_back(std::move(k));
        }
      } else {
        in.skip();
      }
    }
  } catch (const Error& e) {
    complain(object, fmt::format("the metadata cannot be read after {} kernels: {}", object.kernels.size(), e.what()));
  }
}

// --- kernel descriptors

struct Descriptor {
  uint64_t lds, scratch, kernarg, vgpr, agpr;
  Count sgpr;
  int wave;
  std::optional<bool> wgp_mode;
  bool dynamic_stack;
  int64_t entry;
};

std::optional<Descriptor> read_descriptor(Bytes d, std::string_view gfx) {
  if (d.size() < kDescriptorSize) return std::nullopt;
  const uint32_t rsrc3 = *read<uint32_t>(d, 44), rsrc1 = *read<uint32_t>(d, 48);
  const uint16_t properties = *read<uint16_t>(d, 56);
  const int gen = generation(gfx);
  Descriptor out{};
  out.lds = *read<uint32_t>(d, 0);
  out.scratch = *read<uint32_t>(d, 4);
  out.kernarg = *read<uint32_t>(d, 8);
  out.entry = *read<int64_t>(d, 16);
  out.wave = gen >= 10 && (properties & (1 << 10)) ? 32 : 64;
  out.dynamic_stack = (properties & (1 << 11)) != 0;
  const bool large = gfx.starts_with("gfx125") || gfx == "gfx12-5-generic";
  const uint64_t granule = large ? 16 : unified_registers(gfx) || out.wave == 32 ? 8 : 4;
  out.vgpr = ((rsrc1 & 63) + 1) * granule;
  if (unified_registers(gfx)) {
    const uint64_t accumulators_at = ((rsrc3 & 63) + 1) * 4;
    out.agpr = out.vgpr > accumulators_at ? out.vgpr - accumulators_at : 0;
  }
  const uint64_t sgpr_code = (rsrc1 >> 6) & 15;
  if (gen < 9) out.sgpr = (sgpr_code + 1) * 8;
  else if (gen == 9) out.sgpr = (sgpr_code / 2 + 1) * 16;
  if (gen >= 10) out.wgp_mode = ((rsrc1 >> 29) & 1) != 0;
  return out;
}

// The differences between metadata and descriptors: a sentence for each figure, with the first kernel that has it.
class Contradictions {
 public:
  void note(const char* what, const Kernel& k, uint64_t said, uint64_t given) {
    Found& f = found_[what];
    if (f.kernels++ == 0) f = {k.symbol, said, given, 1};
  }
  void tell(CodeObject& object) const {
    for (const auto& [what, f] : found_)
      complain(object,
               fmt::format("kernel {}{}: the metadata says {} {}, its descriptor {}", f.symbol,
                           f.kernels > 1 ? fmt::format(" and {} more", f.kernels - 1) : "", f.said, what, f.given));
  }

 private:
  struct Found {
    std::string symbol;
    uint64_t said = 0, given = 0;
    size_t kernels = 0;
  };
  std::map<std::string, Found> found_;
};

void check_against(const CodeObject& object, Kernel& k, const Descriptor& d, Contradictions& out) {
  if (!object.relocatable) {  // before linking, a descriptor may lack the figures of called functions
    if (k.lds && *k.lds != d.lds) out.note("bytes of LDS", k, *k.lds, d.lds);
    if (k.scratch && *k.scratch != d.scratch) out.note("bytes of scratch", k, *k.scratch, d.scratch);
    // Compilers before LLVM 13 wrote the larger of the two parts instead of their sum.
    if (k.vgpr && unified_registers(object.gfx) && k.agpr.value_or(0) > 0 && (*k.vgpr + 7) / 8 * 8 < d.vgpr)
      k.vgpr = d.vgpr - d.agpr + *k.agpr;
    if (k.vgpr && *k.vgpr > d.vgpr) out.note("VGPRs", k, *k.vgpr, d.vgpr);
  }
  if (!k.wgp_mode) k.wgp_mode = d.wgp_mode;
  if (!k.dynamic_stack) k.dynamic_stack = d.dynamic_stack;
  if (!k.wave) k.wave = d.wave;
}

Kernel from_descriptor(std::string_view symbol, const Descriptor& d) {
  Kernel k;
  k.symbol = symbol;
  k.from_descriptor = true;
  k.wave = d.wave;
  k.vgpr = d.vgpr;
  k.agpr = d.agpr;
  k.sgpr = d.sgpr;
  k.lds = d.lds;
  k.scratch = d.scratch;
  k.kernarg = d.kernarg;
  k.wgp_mode = d.wgp_mode;
  k.dynamic_stack = d.dynamic_stack;
  return k;
}

// --- symbols

// The code without the padding in front of the next kernel: s_code_end, s_nop 0 or zeros.
Bytes without_padding(Bytes code) {
  while (code.size() >= 4) {
    const uint32_t last = *read<uint32_t>(code, code.size() - 4);
    if (last != 0xbf9f0000 && last != 0xbf800000 && last != 0) break;
    code = code.first(code.size() - 4);
  }
  return code;
}

class Symbols {
 public:
  explicit Symbols(const Elf& elf) : elf_(elf) {
    for (const ElfSymbol& s : elf.symbols) {
      by_name_.emplace(s.name, &s);
      // Labels inside a kernel are local and have no type.
      const bool begins = s.type == Elf::kFunction || (s.binding == Elf::kGlobal && s.type != Elf::kObject);
      if (begins && s.section != 0 && s.section < elf.sections.size()) starts_.push_back({s.section, s.value});
    }
    std::sort(starts_.begin(), starts_.end());
  }

  const ElfSymbol* find(std::string_view name) const {
    const auto at = by_name_.find(name);
    return at == by_name_.end() ? nullptr : at->second;
  }

  // A symbol without a size (assembler without .size) extends to the next function or to the end of its section.
  uint64_t size(const ElfSymbol& s) const {
    if (s.size != 0 || s.section >= elf_.sections.size()) return s.size;
    const ElfSection& section = elf_.sections[s.section];
    const auto next = std::upper_bound(starts_.begin(), starts_.end(), std::pair(s.section, s.value));
    const uint64_t end = (elf_.type == 1 ? 0 : section.address) + section.size;
    const uint64_t stop = next != starts_.end() && next->first == s.section ? next->second : end;
    return stop > s.value ? stop - s.value : 0;
  }

  void locate(Kernel& k) const {
    const ElfSymbol* s = find(k.symbol);
    if (!s) return;
    k.address = s->value;
    k.code = elf_.contents(*s, size(*s));
    if (s->size == 0) k.code = without_padding(k.code);
    if (!k.code.empty()) k.file_offset = static_cast<uint64_t>(k.code.data() - elf_.file.data());
  }

 private:
  const Elf& elf_;
  std::unordered_map<std::string_view, const ElfSymbol*> by_name_;
  std::vector<std::pair<uint16_t, uint64_t>> starts_;
};

void read_kernels(CodeObject& object, const Elf& elf) {
  bool any_note = false;
  for (const ElfNote& note : elf.notes) {
    if (note.type != kMetadataNote || note.name != "AMDGPU") continue;
    any_note = true;
    read_metadata(object, note.description);
  }
  const Symbols symbols(elf);
  Contradictions contradictions;
  std::string name;
  for (Kernel& k : object.kernels) {
    name.assign(k.symbol).append(".kd");
    const ElfSymbol* s = symbols.find(name);
    if (!s) continue;
    if (const auto d = read_descriptor(elf.contents(*s, kDescriptorSize), object.gfx))
      check_against(object, k, *d, contradictions);
  }
  contradictions.tell(object);
  if (object.kernels.empty()) {
    for (const ElfSymbol& s : elf.symbols) {
      if (s.type != Elf::kObject || s.size != kDescriptorSize || s.name.size() <= 3 || !s.name.ends_with(".kd"))
        continue;
      const auto d = read_descriptor(elf.contents(s, kDescriptorSize), object.gfx);
      if (!d || object.kernels.size() >= kMostKernels) continue;
      object.kernels.push_back(from_descriptor(s.name.substr(0, s.name.size() - 3), *d));
    }
    if (!object.kernels.empty())
      complain(
          object,
          any_note
              ? "the metadata names no kernel: the figures come from the kernel descriptors"
              : "there is no metadata note: the figures come from the kernel descriptors, with registers as allocated");
  }
  for (Kernel& k : object.kernels) symbols.locate(k);
}

}  // namespace

std::string_view gfx_of_machine(uint32_t elf_flags) {
  for (const Machine& m : kMachines)
    if (m.code == (elf_flags & 0xff)) return m.gfx;
  return {};
}

CodeObject parse_code_object(Bytes data) {
  const Elf elf = parse_elf(data);
  PF_CHECK(elf.machine == Elf::kAmdGpu, Value, "the ELF file is not for AMD GPUs; got machine {}", elf.machine);
  CodeObject object;
  object.file = data;
  object.relocatable = elf.type == 1;
  object.problems = elf.problems;
  object.gfx = gfx_of_machine(elf.flags);
  object.version = elf.os_abi == Elf::kOsAbiHsa ? elf.abi_version + 2 : 0;
  if (elf.os_abi != Elf::kOsAbiHsa)
    complain(object, fmt::format("the code is not for ROCm (HSA) but for operating system ABI {}", elf.os_abi));
  else if (object.version < 3) complain(object, "code object version 2 (ROCm before 3.5): its metadata is not read");
  else if (object.version > 6)
    complain(object, fmt::format("unknown code object version; got {}; expected at most 6", object.version));
  if (object.gfx.empty()) {
    complain(object, fmt::format("unknown AMD GPU; got machine 0x{:02x}", elf.flags & 0xff));
    object.target = fmt::format("unknown-0x{:02x}", elf.flags & 0xff);
  } else {
    object.target = object.gfx + features(elf.flags, object.version);
  }
  read_kernels(object, elf);
  return object;
}

}  // namespace pyflame::tools::inspect
