// Builds the JSON documents of `pyflame occupancy`.
#include "tools/inspect/occupancy_document.h"

#include <nlohmann/json.hpp>

#include "tools/inspect/launch.h"

namespace pyflame::tools::inspect {

namespace {

using Json = nlohmann::json;

Json arch_json(const GpuArch& a) {
  Json j = {{"gfx", a.gfx},
            {"family", a.family},
            {"generic", a.generic},
            {"waves", Json::array()},
            {"max_waves_per_simd", a.max_waves_per_simd},
            {"vgprs", a.vgprs},
            {"vgpr_granule", a.vgpr_granule},
            {"addressable_vgprs", a.addressable_vgprs},
            {"simds_per_cu", a.simds_per_cu},
            {"wgp", a.has_wgp},
            {"lds_bytes", a.lds_bytes},
            {"max_lds_per_workgroup", a.max_lds_per_workgroup},
            {"lds_granule", a.lds_granule},
            {"instruction_cache_bytes", a.instruction_cache_bytes},
            {"instruction_cache_cus", a.icache_shared_by_cus},
            {"matrix", to_string(a.matrix)},
            {"fp8", to_string(a.fp8)},
            {"products", Json::array()},
            {"peaks", Json::array()}};
  if (a.wave32) j["waves"].push_back(32);
  if (a.wave64) j["waves"].push_back(64);
  for (const GpuProduct& p : gpu_products())
    if (p.gfx == a.gfx) {
      j["products"].push_back(p.name);
      j["peaks"].push_back({{"product", p.name},
                            {"cus", p.cus},
                            {"bandwidth_gbs", p.bandwidth_gbs},
                            {"fp64_tflops", p.fp64_tflops},
                            {"fp32_tflops", p.fp32_tflops},
                            {"fp16_tflops", p.fp16_tflops},
                            {"bf16_tflops", p.bf16_tflops},
                            {"fp8_tflops", p.fp8_tflops}});
    }
  return j;
}

Json guide_json(const Occupancy& o) {
  const auto guide = guide_formula(o);
  if (!guide) return nullptr;
  return {{"formula", "min(floor(occ_vgpr * 4 / nW), floor(65536 / L)) * nW / 4, VGPRs in steps of 16"},
          {"waves_per_simd", guide->waves_per_simd},
          {"agrees", guide->why_wrong.empty()},
          {"why_wrong", guide->why_wrong},
          {"wrong_for_vgprs", guide_wrong_vgprs(*o.arch)}};
}

}  // namespace

Json architectures_document() {
  Json j = {{"schema", "pyflame.architectures/1"}, {"architectures", Json::array()}};
  for (const GpuArch& a : gpu_archs())
    if (a.amd) j["architectures"].push_back(arch_json(a));
  return j;
}

Json occupancy_document(const GpuArch& arch, const KernelResources& kernel,
                        const std::optional<std::array<int64_t, 3>>& grid, int cus) {
  const Occupancy o = occupancy(arch, kernel);
  const KernelResources& k = o.kernel;
  Json j = {{"schema", "pyflame.occupancy/1"},
            {"arch", arch_json(arch)},
            {"kernel",
             {{"vgpr", k.vgpr},
              {"agpr", k.agpr},
              {"sgpr", k.sgpr},
              {"lds", k.lds},
              {"dynamic_lds", k.dynamic_lds},
              {"block", k.block}}},
            {"occupancy", inspect::to_json(o)},
            {"vgpr_steps", Json::array()},
            {"guide", guide_json(o)},
            {"launch", nullptr}};
  for (const VgprStep& step : vgpr_steps(arch, k.wave))
    j["vgpr_steps"].push_back({{"waves", step.waves}, {"max_vgprs", step.max_vgprs}});
  if (grid) j["launch"] = inspect::to_json(analyse_launch(o, machine_of(arch, cus), *grid));
  return j;
}

}  // namespace pyflame::tools::inspect
