#include "tools/inspect/isa_classify.h"

#include <algorithm>
#include <charconv>

#include "pyflame/base/gpu_arch.h"

namespace pyflame::tools::inspect {

namespace {

bool has(std::string_view s, std::string_view part) { return s.find(part) != std::string_view::npos; }

bool one_of(std::string_view s, std::initializer_list<std::string_view> prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(), [&](std::string_view p) { return s.starts_with(p); });
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

int64_t number(std::string_view s, int64_t otherwise) {
  int base = 10;
  if (s.starts_with("0x")) {
    base = 16;
    s.remove_prefix(2);
  }
  int64_t value = 0;
  const auto [end, error] = std::from_chars(s.data(), s.data() + s.size(), value, base);
  return error == std::errc() && end != s.data() ? value : otherwise;
}

// Bytes of one element by the end of a memory instruction's name: "dwordx4", "b128", "ushort", "d16_hi_u8", "f64", "tr_b64".
int width_of(std::string_view name) {
  if (has(name, "dwordx16") || has(name, "b512")) return 64;
  if (has(name, "dwordx8") || has(name, "b256")) return 32;
  if (has(name, "dwordx4") || has(name, "b128") || has(name, "format_xyzw")) return 16;
  if (has(name, "dwordx3") || has(name, "b96") || has(name, "format_xyz")) return 12;
  if (has(name, "dwordx2") || has(name, "64") || has(name, "format_xy") || has(name, "_x2")) return 8;
  if (has(name, "byte") || has(name, "u8") || has(name, "i8") || has(name, "b8")) return 1;
  if (has(name, "short") || has(name, "u16") || has(name, "i16") || has(name, "b16") || has(name, "d16")) return 2;
  return 4;
}

// --- matrix instructions

struct Shape {
  int m = 0, n = 0, k = 0;
};

// The cycles for which the instruction occupies the matrix core of a SIMD. CDNA: passes of 4 cycles, from the tables of AMD's CDNA ISA guides and LLVM's scheduling models. RDNA: the number of operations divided by the rate of a SIMD (half of a CU's) that AMD publishes for WMMA.
int matrix_cycles(const Shape& s, std::string_view type, bool sparse, bool f64, const IsaArch& a) {
  if (a.cdna) {
    const bool late = a.gfx.starts_with("gfx94") || a.gfx.starts_with("gfx95") || a.gfx.starts_with("gfx9-4");
    int passes = 0;
    if (f64) passes = s.m == 4 ? 4 : a.gfx.starts_with("gfx95") ? 16 : 8;
    else if (s.m == 4) passes = 2;
    else if (late && sparse) passes = s.m == 16 ? 4 : 8;
    else if (s.m == 16) passes = late && s.k >= 8 ? (type == "f8f6f4" ? 8 : 4) : 8;
    else if (type == "f8f6f4") passes = 16;
    else passes = late && (s.k >= 8 || type == "xf32") ? 8 : 16;
    return passes * 4;
  }
  const int64_t operations = int64_t{2} * s.m * s.n * s.k / (sparse ? 2 : 1);
  const bool narrow = has(type, "8"), nibble = has(type, "iu4");
  int rate = 256;  // gfx11
  if (a.generation == 11) rate = nibble ? 512 : 256;
  else if (a.gfx.starts_with("gfx125")) rate = type == "f32" ? 128 : narrow ? (has(type, "iu8") ? 2048 : 4096) : 2048;
  else if (a.generation >= 12) rate = nibble ? 2048 : narrow ? 1024 : 512;
  return static_cast<int>(std::clamp<int64_t>(operations / rate, 1, 4096));
}

// "v_mfma_f32_16x16x16_bf16", "v_mfma_f32_32x32x8bf16_1k", "v_mfma_f32_16x16x4_4b_f16", "v_wmma_f32_16x16x16_f16_w32"
bool classify_matrix(std::string_view name, const IsaArch& arch, OpInfo& info) {
  if (!one_of(name, {"v_mfma_", "v_smfmac_", "v_wmma_", "v_swmmac_"})) return false;
  if (one_of(name, {"v_wmma_ld", "v_mfma_ld"})) return false;
  info.kind = OpClass::matrix;
  // The first "AxBxC"
  size_t at = 0;
  Shape s;
  for (; at < name.size(); ++at) {
    if (!is_digit(name[at]) || is_digit(name[at - 1])) continue;
    int* const fields[] = {&s.m, &s.n, &s.k};
    size_t p = at;
    int f = 0;
    for (; f < 3; ++f) {
      const size_t start = p;
      while (p < name.size() && is_digit(name[p]) && p - start < 5) ++p;
      if (p == start) break;
      *fields[f] = static_cast<int>(number(name.substr(start, p - start), 0));
      if (f < 2 && (p >= name.size() || name[p++] != 'x')) break;
    }
    if (f == 3) {
      info.shape = std::string(name.substr(at, p - at));
      at = p;
      break;
    }
  }
  std::string_view rest = name.substr(std::min(at, name.size()));
  while (!rest.empty() && rest.front() == '_') rest.remove_prefix(1);
  if (rest.size() > 3 && is_digit(rest[0]) && rest.substr(1).starts_with("b_")) rest.remove_prefix(3);  // blocks
  for (std::string_view tail : {"_e64", "_w32", "_w64", "_1k", "_vi"})
    if (rest.ends_with(tail)) rest.remove_suffix(tail.size());
  info.type = std::string(rest);
  info.f8f6f4 = info.type == "f8f6f4";
  const bool sparse = one_of(name, {"v_smfmac", "v_swmmac"});
  info.cycles = static_cast<uint16_t>(matrix_cycles(s, info.type, sparse, has(info.type, "f64"), arch));
  return true;
}

// --- memory

void classify_flat_or_global(std::string_view name, OpInfo& info) {
  info.flat = name.starts_with("flat_");
  info.buffer = name.starts_with("buffer_") || name.starts_with("tbuffer_");
  info.bytes = static_cast<uint16_t>(width_of(name));
  const bool scratch = name.starts_with("scratch_");
  if (has(name, "_atomic_") || has(name, "_atomic")) {
    info.kind = OpClass::global_atomic;
    info.cas = has(name, "cmpswap");
  } else if (has(name, "_load")) {
    info.kind = scratch ? OpClass::scratch_load : OpClass::global_load;
    info.to_lds = has(name, "_lds_") || name.ends_with("_lds");
    info.transposing = has(name, "_tr_") || has(name, "_tr");
  } else if (has(name, "_store")) {
    info.kind = scratch ? OpClass::scratch_store : OpClass::global_store;
  } else {
    info.bytes = 0;  // cache maintenance, prefetch
  }
}

void classify_ds(std::string_view name, OpInfo& info) {
  const std::string_view n = name.substr(3);
  if (one_of(n, {"bpermute", "permute", "swizzle", "bvh"})) {
    info.kind = OpClass::lane_exchange;
    return;
  }
  if (one_of(n, {"gws", "nop", "consume", "append", "ordered"})) return;
  // "ds_read2st64_b32": the 64 is a stride, not a width.
  const size_t type = n.rfind('_');
  info.bytes = static_cast<uint16_t>(width_of(has(n, "st64") || has(n, "stride64") ? n.substr(type) : n));
  info.pair = one_of(n, {"read2", "write2", "load_2addr", "store_2addr"});
  if (info.pair) info.bytes = static_cast<uint16_t>(info.bytes * 2);
  if (one_of(n, {"read", "load"})) info.kind = OpClass::lds_load;
  else if (one_of(n, {"write", "store"})) info.kind = OpClass::lds_store;
  else info.kind = OpClass::lds_atomic;
  if (one_of(n, {"wrxchg", "storexchg"})) info.kind = OpClass::lds_atomic;
  info.transposing = has(n, "_tr");
  info.cas = one_of(n, {"cmpst", "cmpstore"});
}

// --- vector ALU

FmaType fma_type(std::string_view n) {
  if (n.starts_with("dot")) return has(n, "bf16") ? FmaType::bf16 : has(n, "f16") ? FmaType::f16 : FmaType::i8;
  if (n.starts_with("fma_mix") || n.starts_with("mad_mix")) return FmaType::f16;
  if (!one_of(n, {"fma", "mad_", "mac_"})) return FmaType::none;
  if (has(n, "bf16")) return FmaType::bf16;
  if (has(n, "f16")) return FmaType::f16;
  if (has(n, "f32")) return FmaType::f32;
  if (has(n, "f64")) return FmaType::f64;
  return FmaType::none;  // integer address arithmetic
}

Tag tag_of(std::string_view n) {
  if (n.starts_with("cvt_f64_f32")) return Tag::f64_from_f32;
  if (n.starts_with("cvt_f32_f64")) return Tag::f32_from_f64;
  if (n.starts_with("div_scale_")) return Tag::div_scale;
  if (n.starts_with("rcp_iflag_")) return Tag::rcp_iflag;
  if (n.starts_with("readfirstlane_")) return Tag::readfirstlane;
  if (n.starts_with("readlane_")) return Tag::readlane;
  if (n.starts_with("writelane_")) return Tag::writelane;
  if (n.starts_with("accvgpr_")) return Tag::accvgpr;
  if (one_of(n, {"cmp_eq_", "cmpx_eq_"})) return Tag::compare_equal;
  if (n.starts_with("movrel")) return Tag::dynamic_index;
  if (one_of(n, {"add_f16", "sub_f16", "mul_f16", "fma_f16", "fmac_f16", "max_f16", "min_f16"})) return Tag::f16_math;
  if (one_of(n, {"add_f32", "mul_f32", "fma_f32", "fmac_f32"})) return Tag::f32_math;
  return Tag::none;
}

void classify_valu(std::string_view name, const IsaArch& a, OpInfo& info) {
  info.kind = OpClass::valu;
  std::string_view n = name.substr(2);
  if (n.starts_with("dual_")) {
    info.dual = true;
    n.remove_prefix(5);
  }
  if (n.starts_with("pk_")) {
    info.packed = true;
    n.remove_prefix(3);
  }
  info.fma = fma_type(n);
  if (!info.packed) info.tag = tag_of(n);
  int factor = 1;
  info.trans = one_of(n, {"exp_", "log_", "rcp_", "rsq_", "sqrt_", "sin_", "cos_", "tanh_", "s_exp", "s_log", "s_rcp",
                          "s_rsq", "s_sqrt"});
  const bool f64 = has(n, "f64");
  if (info.trans) factor = f64 && !a.cdna ? 4 * a.f64_factor / 2 : 4;
  else if (f64 && !one_of(n, {"mov", "cndmask", "accvgpr"})) factor = a.f64_factor;
  else if (n.starts_with("cvt_") && has(n, "f32")) factor = a.cvt_factor;
  else if (one_of(n, {"mul_lo_u32", "mul_lo_i32", "mul_hi_u32", "mul_hi_i32", "mad_u64_u32", "mad_i64_i32",
                      "mad_co_u64_u32", "mad_nc_u64_u32", "mad_co_i64_i32"}))
    factor = a.int_mul_factor;
  info.cycles = static_cast<uint16_t>(a.valu_cycles * std::max(1, factor));
}

void classify_scalar(std::string_view name, OpInfo& info) {
  const std::string_view n = name.substr(2);
  info.kind = OpClass::salu;
  if (has(n, "saveexec") || has(n, "wrexec")) info.tag = Tag::set_exec;
  if (n.starts_with("set_gpr_idx_on")) info.tag = Tag::dynamic_index;
  if (one_of(n, {"load_", "buffer_load_", "scratch_load_"})) {
    info.kind = OpClass::smem;
    info.bytes = static_cast<uint16_t>(width_of(n));
  } else if (one_of(n, {"store_", "buffer_store_", "scratch_store_", "atomic_", "buffer_atomic_", "dcache", "gl1_",
                        "memtime", "memrealtime", "atc_", "prefetch"})) {
    info.kind = OpClass::smem;
  } else if (one_of(n, {"wait_", "waitcnt"})) {
    info.kind = OpClass::wait;
  } else if (one_of(n, {"cbranch", "branch", "setpc", "swappc", "call_", "subvector_loop"})) {
    info.kind = OpClass::branch;
    info.conditional = one_of(n, {"cbranch", "subvector_loop"});
    info.call = one_of(n, {"swappc", "call_"});
  } else if (n.starts_with("barrier")) {
    // gfx12 splits a barrier into signal and wait. The wait is counted.
    info.kind =
        has(n, "signal") || has(n, "init") || has(n, "leave") || has(n, "join") ? OpClass::other : OpClass::barrier;
  } else if (n == "nop") {
    info.kind = OpClass::nop;
  } else if (n.starts_with("endpgm")) {
    info.kind = OpClass::end;
  } else if (one_of(n,
                    {"sleep",         "setprio",           "sendmsg",       "clause",          "delay_alu",
                     "inst_prefetch", "set_inst_prefetch", "trap",          "icache",          "sethalt",
                     "incperflevel",  "decperflevel",      "ttrace",        "code_end",        "round_mode",
                     "denorm_mode",   "version",           "sched_barrier", "set_gpr_idx_off", "set_gpr_idx_mode"})) {
    info.kind = OpClass::other;
  }
}

}  // namespace

IsaArch IsaArch::of(std::string_view target, int wave) {
  IsaArch a;
  a.gfx = std::string(target.substr(0, target.find(':')));
  const std::string_view digits = std::string_view(a.gfx).substr(std::min<size_t>(3, a.gfx.size()));
  a.generation = digits.starts_with("10") ? 10 : digits.starts_with("11") ? 11 : digits.starts_with("12") ? 12 : 9;
  a.cdna = one_of(digits, {"908", "90a", "940", "941", "942", "950", "9-4"});
  const bool full_f64 = a.cdna && digits != "908";
  const GpuArch* known = find_gpu_arch(a.gfx);
  if (a.generation == 9) {
    a.wave = 64;
    a.f64_factor = full_f64 ? 1 : digits == "906" || digits == "908" ? 2 : 16;
    a.int_mul_factor = full_f64 ? 1 : 4;
    a.cvt_factor = 4;
  } else {
    a.wave = wave == 64 ? 64 : 32;
    a.valu_cycles = a.wave / 32;
    a.other_cycles = 1;
    a.f64_factor = 16;
    a.int_mul_factor = 4;
  }
  a.matrix = a.cdna || a.generation >= 11;
  a.matrix_f32 = a.cdna || digits.starts_with("125");
  if (known) {
    a.icache_bytes = known->instruction_cache_bytes;
    a.icache_shared = known->icache_shared_by_cus;
  }
  return a;
}

OpInfo classify(std::string_view name, const IsaArch& arch) {
  OpInfo info;
  info.cycles = static_cast<uint16_t>(arch.other_cycles);
  if (name.empty() || name == ".long") {
    info.kind = OpClass::unknown;
  } else if (name.starts_with("v_")) {
    if (!classify_matrix(name, arch, info)) classify_valu(name, arch, info);
  } else if (name.starts_with("s_")) {
    classify_scalar(name, info);
  } else if (name.starts_with("ds_")) {
    classify_ds(name, info);
  } else if (one_of(name, {"global_", "flat_", "buffer_", "tbuffer_", "scratch_"})) {
    classify_flat_or_global(name, info);
  } else if (name.starts_with("image_")) {
    info.kind = has(name, "store")    ? OpClass::global_store
                : has(name, "atomic") ? OpClass::global_atomic
                                      : OpClass::global_load;
    info.bytes = 0;
  }
  return info;
}

Reg parse_reg(std::string_view s) {
  while (!s.empty() && (s.front() == '-' || s.front() == '|' || s.front() == '!')) s.remove_prefix(1);
  Reg r;
  if (s.size() < 2 || (s[0] != 'v' && s[0] != 'a' && s[0] != 's')) return r;
  int64_t first = 0, last = 0;
  if (s[1] == '[') {
    first = number(s.substr(2), -1);
    const size_t colon = s.find(':');
    last = colon == std::string_view::npos ? first : number(s.substr(colon + 1), -1);
  } else if (is_digit(s[1])) {
    first = last = number(s.substr(1), -1);
  } else {
    return r;
  }
  if (first < 0 || last < first || last >= 1024) return r;
  r.file = s[0];
  r.first = static_cast<uint16_t>(first);
  r.count = static_cast<uint16_t>(last - first + 1);
  return r;
}

Operands split_operands(std::string_view text) {
  Operands out;
  while (!text.empty() && out.count < Operands::N) {
    size_t comma = out.count == Operands::N - 1 ? std::string_view::npos : text.find(',');
    std::string_view item = text.substr(0, comma);
    while (!item.empty() && item.front() == ' ') item.remove_prefix(1);
    while (!item.empty() && item.back() == ' ') item.remove_suffix(1);
    out.item[out.count++] = item;
    text = comma == std::string_view::npos ? std::string_view() : text.substr(comma + 1);
  }
  return out;
}

int64_t modifier(std::string_view operands, std::string_view name, int64_t otherwise) {
  for (size_t at = operands.find(name); at != std::string_view::npos; at = operands.find(name, at + 1)) {
    if (at > 0 && operands[at - 1] != ' ') continue;
    const std::string_view rest = operands.substr(at + name.size());
    if (rest.starts_with(":")) return number(rest.substr(1), otherwise);
  }
  return otherwise;
}

Wait parse_wait(std::string_view mnemonic, std::string_view operands) {
  Wait w;
  if (mnemonic == "s_waitcnt") {
    const auto count = [&](std::string_view name) {
      const size_t at = operands.find(name);
      return at == std::string_view::npos ? -1 : static_cast<int>(number(operands.substr(at + name.size()), -1));
    };
    w.load = count("vmcnt(");
    w.lds = w.scalar = count("lgkmcnt(");
    return w;
  }
  const Operands o = split_operands(operands);
  const int n = o.count ? static_cast<int>(number(o.item[o.count - 1], -1)) : -1;
  if (mnemonic == "s_waitcnt_vscnt" || mnemonic == "s_wait_storecnt") w.store = n;
  else if (mnemonic == "s_waitcnt_vmcnt" || mnemonic == "s_wait_loadcnt") w.load = n;
  else if (mnemonic == "s_waitcnt_lgkmcnt") w.lds = w.scalar = n;
  else if (mnemonic == "s_wait_dscnt") w.lds = n;
  else if (mnemonic == "s_wait_kmcnt") w.scalar = n;
  else if (mnemonic == "s_wait_loadcnt_dscnt" && n >= 0) w.load = n >> 8 & 0x3f, w.lds = n & 0x3f;
  else if (mnemonic == "s_wait_storecnt_dscnt" && n >= 0) w.store = n >> 8 & 0x3f, w.lds = n & 0x3f;
  return w;
}

const OpInfo& Classifier::info(std::string_view mnemonic) {
  const auto it = known_.find(mnemonic);
  if (it != known_.end()) return it->second;
  return known_.emplace(std::string(mnemonic), classify(mnemonic, arch_)).first->second;
}

namespace {

// Architectures without the scratch instructions of gfx940 and later access scratch memory through a buffer descriptor of the driver. Such accesses have no address per lane ("off": the hardware adds the offset of the lane), which makes no sense for other memory because all lanes would access one address; or they have an address that is added to the same descriptor.
bool is_scratch_buffer(const Operands& o, std::string_view& descriptor) {
  if (o.count < 4) return false;
  if (o.item[1] == "off") {
    descriptor = o.item[2];
    return true;
  }
  return has(o.item[3], "offen") && o.item[2] == descriptor;
}

}  // namespace

void Classifier::run(const Listing& listing, int64_t scratch_bytes, std::vector<Op>& out) {
  out.clear();
  out.reserve(listing.size());
  std::string_view scratch_descriptor = "s[0:3]";  // its register at the start of a kernel
  for (size_t i = 0; i < listing.size(); ++i) {
    Op op;
    op.address = listing.address(i);
    op.size = listing.bytes(i);
    op.mnemonic = listing.mnemonic(i);
    op.operands = listing.operands(i);
    op.info = &info(op.mnemonic);
    op.kind = op.info->kind;
    op.bytes = op.info->bytes;
    op.cycles = op.info->cycles;
    if (op.info->buffer && scratch_bytes != 0 && is_scratch_buffer(split_operands(op.operands), scratch_descriptor)) {
      if (op.kind == OpClass::global_load) op.kind = OpClass::scratch_load;
      if (op.kind == OpClass::global_store) op.kind = OpClass::scratch_store;
    } else if (op.kind == OpClass::nop) {
      op.cycles *= static_cast<uint32_t>(1 + std::clamp<int64_t>(number(op.operands, 0), 0, 15));
    } else if (op.info->f8f6f4 && modifier(op.operands, "cbsz", 0) >= 2 && modifier(op.operands, "blgp", 0) >= 2) {
      op.cycles /= 2;  // only operands of 6 or 4 bits
    }
    out.push_back(op);
  }
  // The target of a branch is a signed 16-bit number of words from the next instruction.
  for (Op& op : out) {
    if (op.kind != OpClass::branch) continue;
    const Operands o = split_operands(op.operands);
    if (o.count == 0 || op.mnemonic.starts_with("s_setpc") || op.info->call) continue;
    const int64_t words = number(o.item[o.count - 1], INT64_MIN);
    if (words == INT64_MIN) continue;
    const uint64_t to = op.address + 4 + static_cast<uint64_t>(static_cast<int64_t>(static_cast<int16_t>(words)) * 4);
    const auto it = std::lower_bound(out.begin(), out.end(), to, [](const Op& a, uint64_t b) { return a.address < b; });
    if (it != out.end() && it->address == to) op.target = it - out.begin();
  }
}

}  // namespace pyflame::tools::inspect
