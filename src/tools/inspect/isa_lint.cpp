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
     .why = "Several loads of neighbouring addresses are issued one by one. Each takes an issue slot, an address "
            "calculation and a place in the memory queue; one load of 16 bytes a lane moves the same with a quarter of "
            "them.",
     .fixes = {"Make the alignment and contiguity known to the compiler: load a float4 or an aligned struct through a "
               "__restrict__ pointer; in Triton, tl.multiple_of and tl.max_contiguous on the offsets, and pointers and "
               "strides that are divisible by 16."}},
    {.id = "narrow-global-store",
     .severity = Severity::med,
     .title = "Narrow stores to global memory",
     .why = "Several stores to neighbouring addresses are issued one by one; one store of 16 bytes a lane writes the "
            "same with a quarter of the instructions and fuller cache lines.",
     .fixes = {"Store a float4 or an aligned struct; in Triton let the result be converted to a blocked layout before "
               "the store, or make the offsets known to be contiguous."}},
    {.id = "small-global-access",
     .severity = Severity::med,
     .title = "Small accesses to global memory",
     .why = "Most of the traffic to memory here moves less than 16 bytes per lane and instruction, so that the number "
            "of instructions, not the bandwidth, sets the pace. The MI300X workload guide asks for global_load_dwordx4 "
            "in loops.",
     .fixes = {"Let each lane work on several neighbouring elements (float4, 8 halves): unroll the innermost index by "
               "the vector width."}},
    {.id = "flat-access",
     .severity = Severity::med,
     .title = "Flat memory accesses",
     .why = "The compiler lost the address space: a flat access checks at run time whether it means memory, LDS or "
            "scratch, counts in both wait counters, and takes part in the LDS queue.",
     .fixes = {"Keep pointers to global memory apart from pointers to __shared__: no select between them, no storing "
               "them in structs or arrays, and inline the functions that take them."}},
    {.id = "scratch-in-loop",
     .severity = Severity::high,
     .title = "Scratch memory is used in a loop",
     .why = "Registers are spilled, or an array is indexed by a variable: each pass through the loop writes and reads "
            "private memory, which lies in device memory.",
     .fixes = {"Use fewer registers: smaller tiles, less unrolling, a larger register budget by __launch_bounds__ or a "
               "lower waves_per_eu; index local arrays only by constants of unrolled loops."}},
    {.id = "sgpr-spill-in-loop",
     .severity = Severity::low,
     .title = "Spilled scalar registers in a loop",
     .why = "Scalar registers are spilled to lanes of a vector register and read back in the loop.",
     .fixes = {"Keep fewer uniform values alive: pass strides as 32-bit numbers, compute pointers from one base."}},
    {.id = "atomic-in-loop",
     .severity = Severity::med,
     .title = "Atomic operations in a loop",
     .why = "Each pass sends atomic operations to the cache; on one address they are done one after the other, from "
            "all workgroups.",
     .fixes = {"Sum up in registers or LDS first and do one atomic operation per wave or workgroup after the loop."}},
    {.id = "lds-atomic-in-loop",
     .severity = Severity::low,
     .title = "Atomic operations on LDS in a loop",
     .why = "Atomic operations on LDS of lanes that hit one address are done one after the other.",
     .fixes = {"Reduce within the wave first (DPP, ds_swizzle), or give each wave its own copy."}},
    {.id = "cas-loop",
     .severity = Severity::high,
     .title = "A loop of compare-and-swap",
     .why = "A loop of compare-and-swap repeats until no other lane came between: under contention it takes as many "
            "rounds as there are writers. The compiler makes one where it may not use the hardware's floating-point "
            "atomic.",
     .fixes = {"For floating-point sums compile with -munsafe-fp-atomics (memory must not be fine-grained), call "
               "unsafeAtomicAdd, or reduce before the atomic operation."}},
    {.id = "waterfall-loop",
     .severity = Severity::med,
     .title = "A waterfall loop",
     .why = "An instruction needs an address or descriptor that is the same in all lanes, but the compiler could not "
            "prove it: the loop repeats it for each different value.",
     .fixes = {"Make the value uniform: compute it from the index of the workgroup and kernel arguments only, or pass "
               "it through __builtin_amdgcn_readfirstlane where it is known to be equal."}},
    // --- LDS and synchronisation
    {.id = "narrow-lds-access",
     .severity = Severity::med,
     .title = "Narrow LDS accesses",
     .why = "Neighbouring LDS addresses are accessed one by one: LDS moves 16 bytes a lane with one b128 instruction.",
     .fixes = {"Align the shared array to 16 bytes and let each lane read and write 16 neighbouring bytes; pad rows by "
               "16 bytes, not 4."}},
    {.id = "small-lds-access",
     .severity = Severity::low,
     .title = "Small LDS accesses",
     .why = "Most of the LDS traffic here moves less than 16 bytes per lane and instruction. The MI300X workload guide "
            "asks for _b128 in most cases.",
     .fixes = {"Choose a layout in which a lane needs neighbouring elements: in Triton a kWidth or kpack of 16 bytes, "
               "in HIP a float4 per lane."}},
    {.id = "double-lds-conversion",
     .severity = Severity::med,
     .title = "Data goes through LDS twice",
     .why = "Data goes through LDS twice: it is written, read in another order, changed, and written and read again. "
            "That is two changes of layout, with twice the LDS traffic and barriers.",
     .fixes = {"Change the layout once: load directly in the layout that the second step needs, or do the elementwise "
               "work before the first write. In Triton, look for two convert_layout operations in the TTGIR of the "
               "loop (MLIR_ENABLE_DUMP=1)."}},
    {.id = "full-vmcnt-wait",
     .severity = Severity::med,
     .title = "The loop waits for all of its loads",
     .why = "The loop waits until all of its loads from memory are back, soon after it issued them: their latency is "
            "paid in every pass unless other waves of the SIMD fill the time.",
     .fixes = {"Load for the next pass before computing on this one (double buffering; num_stages of 2 in Triton), or "
               "unroll so that several loads are under way."}},
    {.id = "full-lgkmcnt-wait",
     .severity = Severity::low,
     .title = "The loop waits for all of its LDS reads",
     .why = "The loop waits for all of its LDS reads right after it issued them; nothing is done meanwhile.",
     .fixes = {"Read the operands of the next step before computing on this one, in registers of their own."}},
    {.id = "scalar-load-in-loop",
     .severity = Severity::low,
     .title = "Scalar loads in a loop",
     .why = "The loop loads scalars from memory and waits for all of them: they return in any order, so that a wait "
            "can only be for all.",
     .fixes = {"Load what does not change before the loop: copy kernel arguments and strides to local variables."}},
    {.id = "store-wait-in-loop",
     .severity = Severity::low,
     .title = "The loop waits for its stores",
     .why = "The loop waits until its stores have been written, as a fence, an atomic operation or a barrier of a wide "
            "scope asks for.",
     .fixes = {"Use a narrower scope (__threadfence_block, workgroup) or move the fence behind the loop."}},
    {.id = "barriers-in-loop",
     .severity = Severity::low,
     .title = "Several barriers in a loop",
     .why = "Each barrier in a loop stops all waves of the workgroup until the last one has come.",
     .fixes = {"Two buffers in LDS need one barrier a pass instead of two."}},
    // --- arithmetic
    {.id = "no-matrix-instructions",
     .severity = Severity::high,
     .title = "A matrix product without matrix instructions",
     .why = "The loop is a matrix product made of vector multiply-adds. The matrix units of this architecture do two "
            "(single and double precision) to sixteen times as many in the same time.",
     .fixes = {"Use MFMA or WMMA: rocWMMA or the compiler's builtins in HIP, tl.dot with types and tile sizes that map "
               "to them (at least 16x16) in Triton, or a library."}},
    {.id = "low-matrix-share",
     .severity = Severity::med,
     .title = "Few of the instructions are matrix instructions",
     .why = "The matrix units wait for the rest of the loop: addresses, loads, conversions and waits take more of the "
            "issue than they do.",
     .fixes = {"Larger tiles per wave (more matrix instructions for each load), wider loads, conversions outside of "
               "the loop, and pointers that are stepped instead of computed."}},
    {.id = "matrix-result-stall",
     .severity = Severity::med,
     .title = "Matrix results are used too early",
     .why = "Results of matrix instructions are used before they are ready, so that the wave stands still for the rest "
            "of their passes.",
     .fixes = {"Compute other tiles in between: interleave independent accumulators, and use the results of a product "
               "only after the next has been issued."}},
    {.id = "nop-padding",
     .severity = Severity::low,
     .title = "Waiting times filled with s_nop",
     .why = "The compiler had to fill waiting times between dependent instructions with s_nop.",
     .fixes = {"Give it independent work: unroll, or keep two accumulators."}},
    {.id = "accvgpr-traffic",
     .severity = Severity::med,
     .title = "Moves between accumulation and ordinary registers",
     .why = "Values are moved between accumulation registers and ordinary ones in the loop; each move takes the issue "
            "slot of an arithmetic instruction. Outside of matrix products these registers serve as room for spills.",
     .fixes = {"Use fewer registers (smaller tiles), or let the compiler have more of the ordinary ones by a lower "
               "occupancy."}},
    {.id = "unpacked-f16",
     .severity = Severity::low,
     .title = "Half precision without packed instructions",
     .why = "Half-precision arithmetic is done one value a lane; packed instructions do two in the same time.",
     .fixes = {"Work on __half2 (v2f16), and let a lane have neighbouring elements."}},
    {.id = "unpacked-f32",
     .severity = Severity::low,
     .title = "Single precision without packed instructions",
     .why = "Single-precision arithmetic is done one value a lane; this architecture's packed instructions "
            "(v_pk_fma_f32) do two in the same time.",
     .fixes = {"Work on float2 with operations that have no dependence between the halves; unroll by two."}},
    {.id = "division-in-loop",
     .severity = Severity::med,
     .title = "A division in a loop",
     .why = "A division that is exact to the last bit takes about ten instructions, two of them on the slow "
            "transcendental unit.",
     .fixes = {"Multiply by a reciprocal computed before the loop; __fdividef or -ffast-math (-freciprocal-math) where "
               "the last bit does not matter."}},
    {.id = "integer-division-in-loop",
     .severity = Severity::med,
     .title = "An integer division in a loop",
     .why = "The hardware has no integer division: a division or remainder by a variable takes fifteen to forty "
            "instructions.",
     .fixes = {"Divide by constants or powers of two, step indices by addition instead, or divide by a precomputed "
               "multiplier."}},
    {.id = "f64-conversion",
     .severity = Severity::med,
     .title = "A detour through double precision",
     .why = "Values are widened to double precision and narrowed again: a literal without an f or a double function in "
            "single-precision code. On Radeon GPUs double precision is 16 to 32 times slower.",
     .fixes = {"Write 1.0f, expf, sqrtf; compile with -Wdouble-promotion to find the place."}},
    {.id = "loop-exceeds-instruction-cache",
     .severity = Severity::med,
     .title = "The loop exceeds the instruction cache",
     .why = "The loop is larger than the instruction cache, so that each pass fetches it from L2 again.",
     .fixes = {"Unroll less (#pragma unroll N, tl.range instead of tl.static_range), or split the loop."}},
    {.id = "dynamic-register-index",
     .severity = Severity::low,
     .title = "Registers chosen by a variable",
     .why = "Registers are chosen by a variable, which takes a change of mode or a move for each access.",
     .fixes = {"Unroll the loop so that indices of local arrays are constants."}},
    {.id = "function-call",
     .severity = Severity::med,
     .title = "A function call",
     .why = "A function was not inlined: the call saves registers, and the kernel must reserve what the largest callee "
            "may need.",
     .fixes = {"Mark it __forceinline__, or avoid function pointers and recursion."}},
};

const RuleText& find_lint(std::string_view id) {
  for (const RuleText& l : kLints) {
    if (id == l.id) return l;
  }
  PF_FAIL(Runtime, "inspect: no lint is called {}", id);
}

constexpr size_t kMostAddresses = 16;

}  // namespace

std::span<const RuleText> isa_lints() { return kLints; }

void IsaLinter::report(const char* id, int loop, std::vector<uint32_t> where, std::string what) {
  if (where.empty()) return;
  if (what[0] >= 'a' && what[0] <= 'z') what[0] = static_cast<char>(what[0] - 'a' + 'A');
  places_.push_back({&find_lint(id), loop, std::move(where), std::move(what)});
}

std::string IsaLinter::place(int loop) const {
  if (loop < 0) return flow.loops.empty() ? "the kernel, which has no loop," : "the kernel outside of its loops";
  const Loop& l = flow.loops[static_cast<size_t>(loop)];
  // Its lowest address, by which the list of loops calls it; the header may lie behind that.
  return fmt::format("the loop at {:#x}", ops[flow.blocks[l.blocks.front()].first].address);
}

std::string IsaLinter::at(uint32_t op) const {
  if (ops[op].kind == OpClass::wait)
    return fmt::format("{} {} at {:#x}", ops[op].mnemonic, ops[op].operands, ops[op].address);
  return fmt::format("{} at {:#x}", ops[op].mnemonic, ops[op].address);
}

std::vector<IsaFinding> IsaLinter::take() {
  // The worst place of a lint is the one in the deepest loop, and of those the one with most instructions.
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
