#include "tools/inspect/isa_lint.h"

#include <algorithm>
#include <map>

#include "pyflame/base/error.h"

namespace pyflame::tools::inspect {

namespace {

const RuleText kLints[] = {
    // --- memory
    {.id = "narrow-global-load",
     .severity = Severity::med,
     .title = "Narrow loads of global memory",
     .why = "Several loads of neighbouring addresses are issued one by one. Each load takes an issue slot, an address "
            "calculation and an entry of the memory queue. One load of 16 bytes a lane moves the same data with a "
            "quarter of the instructions.",
     .fixes =
         {"Make alignment and contiguity known to the compiler: load a float4 or an aligned struct through a "
          "__restrict__ pointer. In Triton use tl.multiple_of and tl.max_contiguous on the offsets, and pointers and "
          "strides that are divisible by 16."}},
    {.id = "narrow-global-store",
     .severity = Severity::med,
     .title = "Narrow stores to global memory",
     .why = "Several stores to neighbouring addresses are issued one by one. One store of 16 bytes a lane writes the "
            "same data with a quarter of the instructions and fills cache lines better.",
     .fixes = {"Store a float4 or an aligned struct. In Triton let the result be converted to a blocked layout before "
               "the store, or make the offsets known to be contiguous."}},
    {.id = "small-global-access",
     .severity = Severity::low,
     .title = "Small accesses to global memory",
     .why =
         "Most of the traffic to memory here moves less than 16 bytes per lane and instruction. Where the kernel does "
         "little else, the number of instructions may limit the speed, not the bandwidth. The MI300X workload guide "
         "asks for global_load_dwordx4 in loops.",
     .fixes = {"Let each lane work on several neighbouring elements (float4, 8 halves): unroll the innermost index by "
               "the vector width."}},
    {.id = "flat-access",
     .severity = Severity::med,
     .title = "Flat memory accesses",
     .why = "The compiler does not know the address space. A flat access checks at run time whether its address is in "
            "memory, LDS or scratch, counts in both wait counters, and uses the LDS queue.",
     .fixes = {"Do not mix pointers to global memory with pointers to __shared__: do not select between them, do not "
               "store them in structs or arrays, and inline the functions that take them."}},
    {.id = "scratch-in-loop",
     .severity = Severity::high,
     .title = "Scratch memory is used in a loop",
     .why = "Registers are spilled, or an array is indexed by a variable: each iteration writes and reads private "
            "memory, which is in device memory.",
     .fixes = {"Use fewer registers: smaller tiles, less unrolling, a larger register budget by __launch_bounds__ or a "
               "lower waves_per_eu. Index local arrays only by constants of unrolled loops."}},
    {.id = "sgpr-spill-in-loop",
     .severity = Severity::low,
     .title = "Spilled scalar registers in a loop",
     .why = "Scalar registers are spilled to lanes of a vector register and read back in the loop.",
     .fixes = {"Keep fewer uniform values alive: pass strides as 32-bit numbers, compute pointers from one base."}},
    {.id = "atomic-in-loop",
     .severity = Severity::med,
     .title = "Atomic operations on one address in a loop",
     .why = "Each iteration sends an atomic operation on the same address to the cache. Operations on one address are "
            "done one after the other, for all workgroups.",
     .fixes = {"Sum up in registers or LDS first, and do one atomic operation per wave or workgroup after the loop."}},
    {.id = "lds-atomic-in-loop",
     .severity = Severity::low,
     .title = "Atomic operations on LDS in a loop",
     .why = "If several lanes use one LDS address, their atomic operations are done one after the other.",
     .fixes = {"Reduce within the wave first (DPP, ds_swizzle), or give each wave its own copy."}},
    {.id = "cas-loop",
     .severity = Severity::high,
     .title = "A loop of compare-and-swap",
     .why =
         "A loop of compare-and-swap repeats until no other lane has changed the value. Under contention it takes as "
         "many rounds as there are writers. The compiler generates one if it may not use the hardware's floating-point "
         "atomic.",
     .fixes = {"For floating-point sums, compile with -munsafe-fp-atomics (memory must not be fine-grained), call "
               "unsafeAtomicAdd, or reduce before the atomic operation."}},
    {.id = "waterfall-loop",
     .severity = Severity::med,
     .title = "A waterfall loop",
     .why = "An instruction needs an address or descriptor that is the same in all lanes, but the compiler could not "
            "prove it. The loop repeats the instruction for each different value.",
     .fixes = {"Make the value uniform: compute it from the index of the workgroup and kernel arguments only, or pass "
               "it through __builtin_amdgcn_readfirstlane if it is known to be equal."}},
    // --- LDS and synchronisation
    {.id = "narrow-lds-access",
     .severity = Severity::med,
     .title = "Narrow LDS accesses",
     .why = "Neighbouring LDS addresses are accessed one by one. One b128 instruction moves 16 bytes a lane.",
     .fixes = {"Align the shared array to 16 bytes and let each lane read and write 16 neighbouring bytes. Pad rows by "
               "16 bytes, not by 4."}},
    {.id = "small-lds-access",
     .severity = Severity::low,
     .title = "Small LDS accesses",
     .why = "Most of the LDS traffic here moves less than 16 bytes per lane and instruction. The MI300X workload guide "
            "asks for _b128 in most cases.",
     .fixes = {"Choose a layout in which a lane needs neighbouring elements: in Triton a kWidth or kpack of 16 bytes, "
               "in HIP a float4 per lane."}},
    {.id = "double-lds-conversion",
     .severity = Severity::low,
     .title = "Data goes through LDS twice",
     .why = "Data is written to LDS, read in another order, changed, and written and read again. These are two changes "
            "of layout, with twice the LDS traffic and barriers. Sorting needs them; a copy between layouts does not.",
     .fixes = {"Change the layout once: load directly in the layout that the second step needs, or do the elementwise "
               "work before the first write. In Triton, look for two convert_layout operations in the TTGIR of the "
               "loop (MLIR_ENABLE_DUMP=1)."}},
    {.id = "full-vmcnt-wait",
     .severity = Severity::med,
     .title = "The loop waits for all of its loads",
     .why = "The loop waits for all of its loads from memory soon after it issued them. Every iteration pays their "
            "latency, unless other waves of the SIMD fill the time.",
     .fixes = {"Load the data of the next iteration before you compute this one (double buffering; num_stages of 2 in "
               "Triton), or unroll, so that several loads are in flight."}},
    {.id = "full-lgkmcnt-wait",
     .severity = Severity::low,
     .title = "The loop waits for all of its LDS reads",
     .why = "The loop waits for all of its LDS reads right after it issued them, and does nothing meanwhile.",
     .fixes = {"Read the operands of the next step into other registers before you compute this one."}},
    {.id = "scalar-load-in-loop",
     .severity = Severity::low,
     .title = "Scalar loads in a loop",
     .why = "The loop loads scalars from memory and waits for all of them: they return in any order, so a wait can "
            "only be for all of them.",
     .fixes =
         {"Load values that do not change before the loop: copy kernel arguments and strides to local variables."}},
    {.id = "store-wait-in-loop",
     .severity = Severity::low,
     .title = "The loop waits for its stores",
     .why = "The loop waits until its stores have been written, because of a fence, an atomic operation or a barrier "
            "with a wide scope.",
     .fixes = {"Use a narrower scope (__threadfence_block, workgroup), or move the fence after the loop."}},
    {.id = "barriers-in-loop",
     .severity = Severity::info,
     .title = "Several barriers in a loop",
     .why = "At each barrier, all waves of the workgroup wait until the last one has arrived. Hand-tuned kernels have "
            "several, too: an unrolled loop has one for each of its steps.",
     .fixes = {"If the loop has one step: with two buffers in LDS, one barrier per iteration is enough instead of "
               "two."}},
    // --- arithmetic
    {.id = "no-matrix-instructions",
     .severity = Severity::high,
     .title = "A matrix product without matrix instructions",
     .why = "The loop is a matrix product made of vector multiply-adds. The matrix cores of this architecture compute "
            "two (single and double precision) to sixteen times as many in the same time.",
     .fixes = {"Use MFMA or WMMA: rocWMMA or the compiler's builtins in HIP, tl.dot with types and tile sizes that map "
               "to them (at least 16x16) in Triton, or a library."}},
    {.id = "low-matrix-share",
     .severity = Severity::med,
     .title = "Few of the instructions are matrix instructions",
     .why = "The matrix cores wait for the rest of the loop: addresses, loads, conversions and waits take more than "
            "four times the issue cycles of the matrix instructions.",
     .fixes = {"Use larger tiles per wave (more matrix instructions for each load), wider loads, conversions outside "
               "of the loop, and pointers that are incremented instead of computed."}},
    {.id = "matrix-result-stall",
     .severity = Severity::med,
     .title = "Matrix results are used too early",
     .why = "Results of matrix instructions are used before they are ready, so the wave stalls for the rest of their "
            "passes.",
     .fixes = {"Compute other tiles in between: interleave independent accumulators, and use the results of a product "
               "only after the next product has been issued."}},
    {.id = "nop-padding",
     .severity = Severity::low,
     .title = "Waiting times filled with s_nop",
     .why = "The compiler had to fill waiting times between dependent instructions with s_nop.",
     .fixes = {"Give the compiler independent work: unroll, or use two accumulators."}},
    {.id = "accvgpr-traffic",
     .severity = Severity::med,
     .title = "Moves between accumulation and ordinary registers",
     .why =
         "Values are moved between accumulation registers and ordinary ones in the loop. Each move takes the issue "
         "slot of an arithmetic instruction. Outside of matrix products, the compiler uses these registers for spills.",
     .fixes =
         {"Use fewer registers (smaller tiles), or give the compiler more ordinary registers by a lower occupancy."}},
    {.id = "unpacked-f16",
     .severity = Severity::low,
     .title = "Half precision without packed instructions",
     .why = "Half-precision arithmetic is done for one value a lane. Packed instructions compute two in the same time.",
     .fixes = {"Use __half2 (v2f16), and let each lane have neighbouring elements."}},
    {.id = "unpacked-f32",
     .severity = Severity::low,
     .title = "Single precision without packed instructions",
     .why = "Single-precision arithmetic is done for one value a lane. The packed instructions of this architecture "
            "(v_pk_fma_f32) compute two in the same time.",
     .fixes = {"Use float2 with operations that do not depend on each other, or unroll by two."}},
    {.id = "division-in-loop",
     .severity = Severity::med,
     .title = "A division in a loop",
     .why = "A division that is exact to the last bit takes about ten instructions, two of them on the slow "
            "transcendental unit.",
     .fixes = {"Multiply by a reciprocal that is computed before the loop. Use __fdividef or -ffast-math "
               "(-freciprocal-math) if the last bit does not matter."}},
    {.id = "integer-division-in-loop",
     .severity = Severity::med,
     .title = "An integer division in a loop",
     .why = "The hardware has no integer division. A division or remainder by a variable takes fifteen to forty "
            "instructions.",
     .fixes = {"Divide by constants or powers of two, increment indices instead, or divide by a precomputed multiplier "
               "(magic division)."}},
    {.id = "f64-conversion",
     .severity = Severity::med,
     .title = "A detour through double precision",
     .why = "Values are converted to double precision and back. The cause is a literal without an f, or a double "
            "function, in single-precision code. On Radeon GPUs double precision is 16 to 32 times slower.",
     .fixes = {"Write 1.0f, expf, sqrtf. Compile with -Wdouble-promotion to find the place."}},
    {.id = "loop-exceeds-instruction-cache",
     .severity = Severity::med,
     .title = "The loop exceeds the instruction cache",
     .why = "The loop is larger than the instruction cache, so each iteration fetches it from L2 again.",
     .fixes = {"Unroll less (#pragma unroll N, tl.range instead of tl.static_range), or split the loop."}},
    {.id = "dynamic-register-index",
     .severity = Severity::low,
     .title = "Registers chosen by a variable",
     .why = "Registers are chosen by a variable. Each access needs a change of mode or a move.",
     .fixes = {"Unroll the loop, so that indices of local arrays are constants."}},
    {.id = "function-call",
     .severity = Severity::med,
     .title = "A function call",
     .why = "A function was not inlined. The call saves registers, and the kernel must reserve the resources of the "
            "largest callee.",
     .fixes = {"Mark it __forceinline__, or avoid function pointers and recursion."}},
};

const RuleText& find_lint(std::string_view id) {
  for (const RuleText& l : kLints) {
    if (id == l.id) return l;
  }
  PF_FAIL(Runtime, "inspect: there is no rule {}", id);
}

constexpr size_t kMostAddresses = 16;

// Vector registers, accumulation registers, and scalar ones.
size_t slot(const Reg& r, int n) {
  const int file = r.file == 'v' ? 0 : r.file == 'a' ? 1024 : 2048;
  return static_cast<size_t>(file + std::min(r.first + n, 1023));
}

}  // namespace

std::span<const RuleText> isa_lints() { return kLints; }

IsaLinter::IsaLinter(const IsaArch& a, const std::vector<Op>& o, const ControlFlow& f, const Regions& r)
    : arch(a), ops(o), flow(f), regions(r) {
  // Short: a retry or a wait; or a few instructions in a body that is much larger, such as an exchange of two halves.
  constexpr uint64_t kShortLoop = 24, kSmallPart = 8;
  std::vector<char> around(flow.loops.size(), 0);
  for (size_t i = 0; i < flow.loops.size(); ++i) {
    if (flow.loops[i].parent < 0) continue;
    const auto parent = static_cast<size_t>(flow.loops[i].parent);
    const uint64_t inner = regions.loop_stats[i].instructions;
    if (inner > kShortLoop && inner * kSmallPart > regions.loop_stats[parent].instructions) around[parent] = 1;
  }
  for (int i = 0; i < loops(); ++i)
    if (!around[static_cast<size_t>(i)]) hot_.push_back(i);
  registers_known_ = std::none_of(ops.begin(), ops.end(), [](const Op& op) { return op.mnemonic == "s_set_vgpr_msb"; });
}

bool IsaLinter::address_is_fixed(int loop, const Op& op) const {
  if (loads_to_lds(op) || !registers_known_) return false;  // a copy, or not known
  const Operands o = split_operands(op.operands);
  const bool lds = op.kind == OpClass::lds_atomic;
  const bool returns = op.info->buffer ? false : o.count > (op.info->flat || lds ? 2 : 3);
  const int first = op.info->buffer ? 1 : op.kind == OpClass::global_load || returns ? 1 : 0;
  const bool data_follows = op.kind != OpClass::global_load && !op.info->buffer;
  const LoopWrites& writes = writes_of(loop);
  for (int i = first; i < o.count; ++i) {
    if (data_follows && i == first + 1) continue;
    const Reg r = parse_reg(o.item[i].substr(0, o.item[i].find(' ')));
    for (int n = 0; n < r.count; ++n)
      if (writes.of[slot(r, n)] == Writes::other) return false;
  }
  return true;
}

const IsaLinter::LoopWrites& IsaLinter::writes_of(int loop) const {
  if (last_writes_.loop == loop) return last_writes_;
  last_writes_ = {loop, {}};
  std::vector<Reg> changed;
  std::vector<std::pair<Reg, Reg>> copies;  // from, to
  for (const uint32_t b : flow.loops[static_cast<size_t>(loop)].blocks)
    for (uint32_t i = flow.blocks[b].first; i < flow.blocks[b].last; ++i) {
      const Op& op = ops[i];
      written_registers(op, changed);
      const bool moves = op.mnemonic.starts_with("v_mov_b") || op.mnemonic.starts_with("s_mov_b");
      const Operands o = moves ? split_operands(op.operands) : Operands{};
      for (const Reg& r : changed) {
        const bool copy = moves && o.count == 2;
        if (copy) copies.emplace_back(parse_reg(o.item[1]), r);
        for (int n = 0; n < r.count; ++n) {
          Writes& w = last_writes_.of[slot(r, n)];
          w = copy && w != Writes::other ? Writes::copies : Writes::other;
        }
      }
    }
  // A copy of what the loop changes is no fixed value.
  for (const auto& [from, to] : copies) {
    bool changes = false;
    for (int n = 0; n < from.count; ++n) changes = changes || last_writes_.of[slot(from, n)] != Writes::none;
    for (int n = 0; changes && n < to.count; ++n) last_writes_.of[slot(to, n)] = Writes::other;
  }
  return last_writes_;
}

void written_registers(const Op& op, std::vector<Reg>& out) {
  out.clear();
  switch (op.kind) {
    case OpClass::global_store:
    case OpClass::lds_store:
    case OpClass::scratch_store:
    case OpClass::wait:
    case OpClass::branch:
    case OpClass::barrier: return;
    case OpClass::global_atomic:
    case OpClass::lds_atomic:
      if (!returns_value(op)) return;
      break;
    default: break;
  }
  const Reg r = parse_reg(op.operands.substr(0, op.operands.find(',')));
  if (r.file) out.push_back(r);
  const size_t second = op.operands.find("::");
  if (second == std::string_view::npos) return;
  std::string_view rest = op.operands.substr(second + 2);
  while (rest.starts_with(" ")) rest.remove_prefix(1);
  const size_t blank = rest.find(' ');
  if (blank == std::string_view::npos) return;
  rest = rest.substr(blank + 1);
  const Reg d = parse_reg(rest.substr(0, rest.find(',')));
  if (d.file) out.push_back(d);
}

bool returns_value(const Op& op) {
  if (op.kind == OpClass::lds_atomic) return op.mnemonic.find("_rtn") != std::string_view::npos;
  for (const std::string_view flag : {" sc0", " glc", "TH_ATOMIC_RETURN"})
    if (op.operands.find(flag) != std::string_view::npos) return true;
  return false;
}

bool loads_to_lds(const Op& op) {
  return op.info->to_lds || (op.info->buffer && op.operands.ends_with(" lds")) ||
         (op.info->buffer && op.operands.find(" lds ") != std::string_view::npos);
}

void IsaLinter::report(const char* id, int loop, std::vector<uint32_t> where, std::string what) {
  if (where.empty()) return;
  if (what[0] >= 'a' && what[0] <= 'z') what[0] = static_cast<char>(what[0] - 'a' + 'A');
  places_.push_back({&find_lint(id), loop, std::move(where), std::move(what)});
}

std::string IsaLinter::place(int loop) const {
  if (loop < 0) return flow.loops.empty() ? "the kernel (it has no loop)" : "the kernel outside of its loops";
  const Loop& l = flow.loops[static_cast<size_t>(loop)];
  // The lowest address, which is its name in the list of loops. The header may be at a higher address.
  return fmt::format("the loop at {:#x}", ops[flow.blocks[l.blocks.front()].first].address);
}

std::string IsaLinter::at(uint32_t op) const {
  if (ops[op].kind == OpClass::wait)
    return fmt::format("{} {} at {:#x}", ops[op].mnemonic, ops[op].operands, ops[op].address);
  return fmt::format("{} at {:#x}", ops[op].mnemonic, ops[op].address);
}

std::vector<IsaFinding> IsaLinter::take() {
  // The worst place of a rule is in the deepest loop, and among those the one with the most instructions.
  std::map<const RuleText*, std::vector<const Place*>> by_lint;
  for (const Place& p : places_) by_lint[p.lint].push_back(&p);
  std::vector<IsaFinding> findings;
  for (auto& [lint, places] : by_lint) {
    const auto depth = [&](const Place* p) { return p->loop < 0 ? 0 : flow.loops[static_cast<size_t>(p->loop)].depth; };
    std::stable_sort(places.begin(), places.end(), [&](const Place* a, const Place* b) {
      return depth(a) != depth(b) ? depth(a) > depth(b) : a->where.size() > b->where.size();
    });
    IsaFinding f{make_finding(*lint, places[0]->what)};
    f.address = ops[places[0]->where[0]].address;
    f.loop = places[0]->loop;
    if (places.size() > 1)
      f.what += fmt::format(" The same in {} other place{}.", places.size() - 1, places.size() > 2 ? "s" : "");
    for (const Place* p : places) {
      f.count += p->where.size();
      for (const uint32_t i : p->where)
        if (f.addresses.size() < kMostAddresses) f.addresses.push_back(ops[i].address);
    }
    findings.push_back(std::move(f));
  }
  std::stable_sort(findings.begin(), findings.end(),
                   [](const IsaFinding& a, const IsaFinding& b) { return a.address < b.address; });
  sort_findings(findings);
  return findings;
}

std::vector<IsaFinding> lint_isa(const IsaArch& arch, const std::vector<Op>& ops, const ControlFlow& flow,
                                 const Regions& regions) {
  IsaLinter linter(arch, ops, flow, regions);
  lint_memory(linter);
  lint_waits(linter);
  lint_compute(linter);
  return linter.take();
}

}  // namespace pyflame::tools::inspect
