#include "tools/inspect/document.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "pyflame/base/error.h"
#include "pyflame/base/gpu_arch.h"
#include "tools/inspect/launch.h"
#include "tools/inspect/occupancy.h"
#include "tools/view/finding.h"

namespace pyflame::tools::inspect {

namespace {

using Json = nlohmann::json;

constexpr size_t kKernelsWithArguments = 64;  // up to this number of kernels, the document has their arguments
constexpr int kUsualBlock = 256;

Json to_json(const Count& n) { return n ? Json(*n) : Json(); }
template <class T>
Json to_json(const std::optional<T>& value) {
  return value ? Json(*value) : Json();
}

// Text of a file as UTF-8, for JSON. Other bytes become '?', so that dump() cannot fail.
std::string utf8(const std::string& text) {
  const bool ascii = std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
  if (ascii) return text;
  const std::string quoted = Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
  return Json::parse(quoted).get<std::string>();
}

// A generic target ("gfx11-generic") is treated as the first architecture that it runs on.
const GpuArch* arch_of(const std::string& gfx) {
  if (const GpuArch* a = find_gpu_arch(gfx)) return a;
  for (const GpuArch& a : gpu_archs())
    if (!a.generic.empty() && a.generic == gfx) return &a;
  return nullptr;
}

// Where the number of threads of a workgroup comes from.
struct Resources : KernelResources {
  const char* block_from = "assumed";
};

Resources resources(const ScannedKernel& k, const ScannedObject& object, const DocumentOptions& options) {
  Resources r;
  r.wave = static_cast<int>(k.kernel.wave.value_or(0));
  r.vgpr = static_cast<int>(std::min<uint64_t>(k.kernel.vgpr.value_or(0), 1 << 16));
  r.agpr = static_cast<int>(std::min<uint64_t>(k.kernel.agpr.value_or(0), 1 << 16));
  r.sgpr = static_cast<int>(std::min<uint64_t>(k.kernel.sgpr.value_or(0), 1 << 16));
  r.lds = static_cast<int64_t>(std::min<uint64_t>(k.kernel.lds.value_or(0), 1u << 30));
  r.dynamic_lds = options.dynamic_lds;
  // Triton requests all of its LDS at the launch.
  if (object.triton && r.dynamic_lds == 0) r.dynamic_lds = std::max<int64_t>(0, object.triton->shared - r.lds);
  r.wgp_mode = k.kernel.wgp_mode.value_or(true);
  const auto most = static_cast<int>(std::clamp<uint64_t>(k.kernel.max_workgroup.value_or(1024), 1, 1024));
  if (options.block > 0) {
    r.block = options.block;
    r.block_from = "option";
  } else if (k.kernel.required_workgroup) {
    uint64_t threads = 1;
    for (const uint64_t n : *k.kernel.required_workgroup)
      threads = std::min<uint64_t>(threads * std::min<uint64_t>(n, 4096), 4096);
    r.block = static_cast<int>(std::max<uint64_t>(threads, 1));
    r.block_from = "required";
  } else {
    r.block = object.triton ? most : std::min(kUsualBlock, most);
    if (object.triton) r.block_from = "Triton";
  }
  return r;
}

// A kernel runs with some number of threads: where an assumed one does not fit, fewer are assumed.
Occupancy occupancy_of(const GpuArch& arch, Resources& r) {
  Occupancy o = occupancy(arch, r);
  const bool assumed = std::string_view(r.block_from) == "assumed";
  while (assumed && o.workgroups == 0 && o.waves_per_workgroup > 1) {
    r.block = o.waves_per_workgroup / 2 * o.kernel.wave;
    o = occupancy(arch, r);
  }
  return o;
}

// Waits of a loop cost less where other waves fill the time.
void judge_by_occupancy(Json& isa, const Occupancy& o) {
  if (!isa.contains("findings") || 2 * o.waves_per_simd < o.arch->max_waves_per_simd) return;
  Json& findings = isa["findings"];
  for (Json& f : findings)
    if (f["id"] == "full-vmcnt-wait") {
      f["severity"] = name_of(Severity::low);
      f["what"] = fmt::format("{} {} of {} waves fit on a SIMD, and can fill the time.", f["what"].get<std::string>(),
                              o.waves_per_simd, o.arch->max_waves_per_simd);
    }
  const auto order = [](const Json& f) { return view::severity_in(f); };
  std::stable_sort(findings.begin(), findings.end(), [&](const Json& a, const Json& b) { return order(a) < order(b); });
}

Json argument(const KernelArgument& a) {
  Json j = {{"offset", a.offset}, {"size", a.size}, {"kind", utf8(a.kind)}};
  if (!a.name.empty()) j["name"] = utf8(a.name);
  if (!a.type.empty()) j["type"] = utf8(a.type);
  if (!a.address_space.empty()) j["address_space"] = utf8(a.address_space);
  return j;
}

// Rules over the figures of a kernel ("vgpr_spill" and so on). A rule's function returns what it found, or an empty text. The rules
// over machine code are in isa_lint.cpp.
struct FigureRule {
  RuleText text;
  std::string (*find)(const Json& kernel);
};

uint64_t figure(const Json& kernel, const char* key) {
  return kernel[key].is_number() ? kernel[key].get<uint64_t>() : uint64_t{0};
}

const FigureRule kFigureRules[] = {
    {{.id = "vgpr-spill",
      .severity = Severity::high,
      .title = "Spilled vector registers",
      .why = "Each use of a spilled register is a load from memory or a store to it, for every lane.",
      .fixes = {"Keep fewer values alive at once: smaller tiles, less unrolling. Allow more registers: state the real "
                "block size in __launch_bounds__, or lower waves_per_eu."}},
     [](const Json& k) -> std::string {
       const uint64_t n = figure(k, "vgpr_spill");
       return n > 0 ? fmt::format("{} VGPRs are spilled.", n) : "";
     }},
    {{.id = "scratch",
      .severity = Severity::med,
      .title = "Scratch memory",
      .why = "Arrays that are indexed by a variable, and the frames of functions that were not inlined, are in memory "
             "instead of registers.",
      .fixes = {"Unroll loops over small arrays, so that each index is a constant. Mark device functions "
                "__forceinline__."}},
     [](const Json& k) -> std::string {
       const uint64_t bytes = figure(k, "scratch");
       return bytes > 0 && figure(k, "vgpr_spill") == 0
                  ? fmt::format("Each lane has {} bytes of scratch memory.", bytes)
                  : "";
     }},
    {{.id = "sgpr-spill",
      .severity = Severity::low,
      .title = "Spilled scalar registers",
      .why = "Spilled scalars are kept in lanes of VGPRs. This costs instructions and registers.",
      .fixes = {"Keep fewer uniform values alive at once: pass a struct by pointer, or split the kernel."}},
     [](const Json& k) -> std::string {
       const uint64_t n = figure(k, "sgpr_spill");
       return n > 0 ? fmt::format("{} SGPRs are spilled.", n) : "";
     }},
    {{.id = "unknown-stack",
      .severity = Severity::med,
      .title = "A stack of unknown size",
      .why =
          "The kernel has recursion or calls through pointers, so the runtime guesses a size and reserves it for every "
          "lane.",
      .fixes = {"Avoid recursion and virtual calls in device code."}},
     [](const Json& k) -> std::string {
       return k["dynamic_stack"] == true ? "The size of the kernel's stack is not known." : "";
     }},
};

// Whether the machine code was read, and no loop in it uses scratch memory.
bool spills_outside_of_loops(const Json& kernel) {
  const auto isa = kernel.find("isa");
  if (isa == kernel.end() || !isa->contains("findings") || isa->contains("cut_after_bytes")) return false;
  return std::none_of((*isa)["findings"].begin(), (*isa)["findings"].end(),
                      [](const Json& f) { return f["id"] == "scratch-in-loop" || f["id"] == "function-call"; });
}

Json advice(const Json& kernel) {
  std::vector<Finding> found;
  for (const FigureRule& rule : kFigureRules) {
    std::string what = rule.find(kernel);
    if (what.empty()) continue;
    found.push_back(make_finding(rule.text, std::move(what)));
    if (found.back().severity != Severity::high || !spills_outside_of_loops(kernel)) continue;
    found.back().severity = Severity::med;
    found.back().what += " No innermost loop uses them.";
  }
  return view::to_json(found);
}

Json kernel_json(const Scan& scan, const ScannedKernel& k, const DocumentOptions& options) {
  const ScannedObject& object = scan.objects[k.object];
  Json j = {{"name", utf8(k.name)},
            {"symbol", utf8(k.kernel.symbol)},
            {"object", k.object},
            {"gfx", object.gfx.empty() ? Json() : Json(object.gfx)},
            {"target", object.target},
            {"wave", to_json(k.kernel.wave)},
            {"vgpr", to_json(k.kernel.vgpr)},
            {"agpr", to_json(k.kernel.agpr)},
            {"sgpr", to_json(k.kernel.sgpr)},
            {"vgpr_spill", to_json(k.kernel.vgpr_spill)},
            {"sgpr_spill", to_json(k.kernel.sgpr_spill)},
            {"lds", to_json(k.kernel.lds)},
            {"scratch", to_json(k.kernel.scratch)},
            {"dynamic_stack", to_json(k.kernel.dynamic_stack)},
            {"kernarg", to_json(k.kernel.kernarg)},
            {"max_workgroup", to_json(k.kernel.max_workgroup)},
            {"required_workgroup", to_json(k.kernel.required_workgroup)},
            {"wgp_mode", to_json(k.kernel.wgp_mode)},
            {"code_bytes", k.code_bytes == 0 ? Json() : Json(k.code_bytes)},
            {"source", k.kernel.from_descriptor ? "descriptor" : "metadata"}};
  if (scan.kernels.size() <= kKernelsWithArguments) {
    j["args"] = Json::array();
    for (const KernelArgument& a : k.kernel.arguments) j["args"].push_back(argument(a));
  }
  if (k.isa) j["isa"] = *k.isa;
  j["advice"] = advice(j);
  const GpuArch* arch = arch_of(object.gfx);
  if (!arch || !k.kernel.vgpr) return j;
  try {
    Resources r = resources(k, object, options);
    const uint64_t most = k.kernel.max_workgroup.value_or(1024);
    PF_CHECK(static_cast<uint64_t>(r.block) <= most, Value,
             "occupancy: a workgroup of {} threads cannot be launched: the kernel was compiled for at most {}", r.block,
             most);
    const Occupancy o = occupancy_of(*arch, r);
    j["occupancy"] = inspect::to_json(o);
    j["occupancy"]["block_from"] = r.block_from;
    if (k.isa) judge_by_occupancy(j["isa"], o);
    Json& blocks = j["occupancy"]["blocks"];
    blocks.erase(std::remove_if(blocks.begin(), blocks.end(), [&](const Json& b) { return b["block"] > most; }),
                 blocks.end());
    if (options.grid) j["launch"] = inspect::to_json(analyse_launch(o, machine_of(*arch, options.cus), *options.grid));
  } catch (const Error& e) {
    j["occupancy_problem"] = e.what();
  }
  return j;
}

double number(const Json& k, const char* key) {
  const auto at = k.find(key);
  return at != k.end() && at->is_number() ? at->get<double>() : 0;
}

// For the charts: by architecture and wave size, the number of waves that registers allow, as [most VGPRs, waves].
Json curves(const Json& kernels) {
  Json out = Json::object();
  for (const Json& k : kernels) {
    const std::string gfx = k.value("gfx", "");
    const auto wave = static_cast<int>(number(k, "wave"));
    const GpuArch* arch = find_gpu_arch(gfx);
    if (arch == nullptr || !(wave == 32 ? arch->wave32 : wave == 64 && arch->wave64)) continue;
    Json& steps = out[gfx][std::to_string(wave)];
    if (!steps.is_null()) continue;
    steps = Json::array();
    for (const VgprStep& step : vgpr_steps(*arch, wave)) steps.push_back({step.max_vgprs, step.waves});
  }
  return out;
}

Json summary(const Scan& scan, const Json& kernels) {
  std::map<std::string, int64_t> by_gfx, findings, limiters;
  std::map<std::string, std::map<std::string, int64_t>> by_severity;
  int64_t spilling = 0, unknown_spills = 0, scratch = 0, low = 0, low_with_matrix = 0, without_isa = 0;
  for (const Json& k : kernels) {
    ++by_gfx[k["target"].get<std::string>()];
    spilling += number(k, "vgpr_spill") > 0;
    unknown_spills += k["vgpr_spill"].is_null();
    scratch += number(k, "scratch") > 0;
    if (const auto o = k.find("occupancy"); o != k.end()) ++limiters[(*o)["limiter"].get<std::string>()];
    const auto isa = k.find("isa");
    without_isa += isa == k.end();
    if (fill(k) < 0.5) {
      ++low;
      low_with_matrix += isa != k.end() && number((*isa)["mix"], "matrix") > 0;
    }
    for (const Json& f : k["advice"]) ++by_severity[f.value("severity", "")][f.value("id", "")];
    if (isa == k.end() || !isa->contains("findings")) continue;
    for (const Json& f : (*isa)["findings"]) {
      ++findings[f.value("id", "")];  // a kernel has each rule once
      ++by_severity[f.value("severity", "")][f.value("id", "")];
    }
  }
  return {{"files", scan.files},        {"objects", scan.objects.size()},
          {"kernels", kernels.size()},  {"kernels_found", scan.kernels_found},
          {"targets", by_gfx},          {"spilling", spilling},
          {"scratch", scratch},         {"low_occupancy", low},
          {"limiters", limiters},       {"findings", findings},
          {"without_isa", without_isa}, {"others", scan.others},
          {"curve", curves(kernels)},   {"unknown_spills", unknown_spills},
          {"by_severity", by_severity}, {"low_with_matrix", low_with_matrix}};
}

Json objects(const Scan& scan) {
  Json out = Json::array();
  for (const ScannedObject& o : scan.objects) {
    Json j = {{"path", utf8(o.path)},
              {"member", utf8(o.member)},
              {"container", o.container},
              {"target", o.target},
              {"gfx", o.gfx.empty() ? Json() : Json(o.gfx)},
              {"code_object_version", o.version >= 2 ? Json(o.version) : Json()},
              {"bytes", o.bytes},
              {"kernels", o.kernels}};
    if (o.triton)
      j["triton"] = {{"name", utf8(o.triton->name)},
                     {"num_warps", o.triton->num_warps},
                     {"num_stages", o.triton->num_stages},
                     {"shared", o.triton->shared}};
    out.push_back(std::move(j));
  }
  return out;
}

}  // namespace

Json document(const Scan& scan, const DocumentOptions& options) {
  std::vector<Json> kernels;
  kernels.reserve(scan.kernels.size());
  for (const ScannedKernel& k : scan.kernels) kernels.push_back(kernel_json(scan, k, options));
  Json j = {{"schema", "pyflame.inspect/1"}, {"inputs", Json::array()}, {"objects", objects(scan)}};
  for (const std::string& i : scan.inputs) j["inputs"].push_back(utf8(i));
  j["kernels"] = sorted(std::move(kernels), options.sort);
  j["groups"] = groups(j["kernels"], j["objects"]);
  j["missing"] = scan.missing;
  j["disassembler"] = scan.disassembler.empty() ? Json() : Json(scan.disassembler);
  j["problems"] = Json::array();
  for (const Problem& p : scan.problems) j["problems"].push_back({{"where", utf8(p.where)}, {"what", utf8(p.what)}});
  j["summary"] = summary(scan, j["kernels"]);
  return j;
}

}  // namespace pyflame::tools::inspect
