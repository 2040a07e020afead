// Small synthetic documents of each tool with every key that their pages show.
#pragma once
#include <nlohmann/json.hpp>
#include <string>

namespace pyflame::tools::view::samples {

using nlohmann::json;

inline json gpu(int index, int numa) {
  return {{"index", index},
          {"name", "AMD Instinct MI300X"},
          {"gfx", "gfx942"},
          {"family", "CDNA 3"},
          {"pci", "0000:05:00.0"},
          {"cus", 304},
          {"vram_bytes", 206141652992},
          {"vram_used_bytes", 1 << 30},
          {"busy_percent", 12},
          {"support", "official"},
          {"numa", numa},
          {"hive", "0x1"},
          {"pcie", {{"gts", index == 1 ? 16.0 : 32.0}, {"width", 16}, {"max_gts", 32.0}, {"max_width", 16}}},
          {"power", {{"cap_w", 500}, {"max_w", 750}}},
          {"temperatures", json::array({{{"label", "junction"}, {"c", 45}, {"limit_c", 110}}})},
          {"users", json::array({{{"pid", 1}, {"vram_bytes", 1000}}})}};
}

inline json finding(const char* id, const char* severity, const json& group = nullptr) {
  return {{"id", id},
          {"severity", severity},
          {"title", std::string("title of ") + id},
          {"what", "what"},
          {"why", "why"},
          {"fix", "fix"},
          {"command", "unset A && echo \"b\""},
          {"names", {"HIP_VISIBLE_DEVICES"}},
          {"where", "env.sh:1"},
          {"no_op", false},
          {"recommended_by", {"a guide"}},
          {"source", "a source"},
          {"reference", "a source"},
          {"group", group}};
}

inline json doctor(int gpus = 8) {
  json facts = {
      {"host",
       {{"kernel", "6.8.0"}, {"os", {{"name", "Linux"}}}, {"cpus", 8}, {"numa_nodes", 2}, {"memory_bytes", 1 << 30}}},
      {"driver", {{"loaded", true}, {"version", "6.10.5"}, {"kind", "dkms"}}},
      {"kfd", {{"exists", true}, {"writable", false}, {"group", "render"}, {"mode", "0660"}}},
      {"rocm",
       {{"version", "6.3.0"},
        {"installs", json::array({{{"path", "/opt/rocm"}, {"version", "6.3.0"}}})},
        {"libraries", {{"hip", nullptr}}}}},
      {"frameworks",
       json::array({{{"name", "torch"}, {"path", "/x"}, {"version", "2.5"}, {"hip", "6.2"}, {"bundled_rocm", true}}})},
      {"env", {{"HIP_VISIBLE_DEVICES", "0"}, {"OTHER", "1"}}},
      {"env_source", "this process"},
      {"env_lines", {{"OTHER", "env.sh:3"}}},
      {"absence", nullptr},
      {"visible",
       {{"steps", json::array({{{"variable", "HIP_VISIBLE_DEVICES"},
                                {"value", "0"},
                                {"before", {0, 1}},
                                {"after", {0}},
                                {"note", nullptr}}})}}},
      {"failed_probes", json::array({{{"probe", "acs"}, {"why", "no permission"}}})},
      {"gpus", json::array()},
      {"links", json::array()}};
  for (int i = 0; i < gpus; ++i) {
    facts["gpus"].push_back(gpu(i, i * 2 / gpus));
    for (int k = 0; k < gpus; ++k)
      if (k != i)
        facts["links"].push_back({{"from", i}, {"to", k}, {"kind", "xgmi"}, {"max_mb_s", 64000}, {"hops", 1}});
  }
  return {{"schema", "pyflame.doctor/1"},
          {"facts", facts},
          {"verdict", "Two settings contradict each other."},
          {"findings",
           {finding("ENV-1", "CRIT"), finding("ENV-2", "MED", "visibility"), finding("ENV-3", "HIGH", "visibility"),
            finding("SYS-4", "INFO")}},
          {"counts", {{"CRIT", 1}, {"HIGH", 1}, {"MED", 1}, {"LOW", 0}, {"INFO", 1}}},
          {"checked", 200}};
}

inline json kernel(size_t index) {
  return {
      {"name", "void kernel_" + std::to_string(index) + "<float, 4>(float const*)"},
      {"symbol", "_Z1k"},
      {"gfx", "gfx942"},
      {"target", "gfx942:xnack-"},
      {"wave", 64},
      {"vgpr", 130},
      {"agpr", 0},
      {"sgpr", 32},
      {"vgpr_spill", 2},
      {"sgpr_spill", 0},
      {"lds", 16384},
      {"scratch", 16},
      {"code_bytes", 4096},
      {"required_workgroup", {256, 1, 1}},
      {"advice", json::array({{{"severity", "HIGH"}, {"what", "spills"}, {"why", "w"}, {"fix", "f"}}})},
      {"occupancy",
       {{"block", 256},
        {"wave", 64},
        {"waves_per_simd", 3},
        {"max_waves", 8},
        {"limiter", "VGPRs"},
        {"limits", {{"VGPRs", 3}, {"LDS", 4}}},
        {"next",
         {{"waves", 4},
          {"save", "2 VGPRs (130 -> 128)"},
          {"changes", json::array({{{"resource", "VGPRs"}, {"from", 130}, {"to", 128}}})}}},
        {"blocks", json::array({{{"block", 64}, {"waves_per_simd", 3}}, {{"block", 256}, {"waves_per_simd", 3}}})}}},
      {"isa",
       {{"instructions", 100},
        {"mix", {{"valu", 60}, {"matrix", 40}}},
        {"loops", json::array({{{"begin", "0x10"},
                                {"end", "0x20"},
                                {"depth", 1},
                                {"instructions", 10},
                                {"matrix_share", 0.4},
                                {"matrix", json::array({{{"name", "v_mfma"}, {"count", 4}}})},
                                {"waits", {{"vmcnt0", 1}}}}})},
        {"findings", json::array({{{"id", "narrow"},
                                   {"severity", "MED"},
                                   {"what", "narrow loads"},
                                   {"why", "w"},
                                   {"fix", "f"},
                                   {"address", "0x10"},
                                   {"count", 3}}})},
        {"assumptions", {"an assumption"}}}}};
}

inline json inspect(size_t kernels = 40) {
  json d = {
      {"schema", "pyflame.inspect/1"},
      {"inputs", {"libfoo.so"}},
      {"objects", json::array({{{"path", "libfoo.so"},
                                {"member", "#0"},
                                {"container", "bundle"},
                                {"target", "gfx942"},
                                {"bytes", 1000},
                                {"kernels", kernels}}})},
      {"kernels", json::array()},
      {"missing", {"no LLVM library was found"}},
      {"problems", json::array({{{"where", "x"}, {"what", "y"}}})},
      {"summary",
       {{"curve", {{"gfx942", {{"64", {{64, 8}, {128, 4}, {256, 2}, {512, 1}}}}}}}, {"findings", {{"narrow", 3}}}}}};
  for (size_t i = 0; i < kernels; ++i) d["kernels"].push_back(kernel(i));
  return d;
}

inline json report_kernels() {
  return json::array(
      {{{"name", "gemm"},
        {"full", "void gemm<1>()"},
        {"category", "GEMM"},
        {"calls", 10},
        {"us", 1200},
        {"share", 0.6},
        {"mean_us", 120},
        {"min_us", 100},
        {"max_us", 140},
        {"roofline", {{"intensity", 300}, {"tflops", 600}, {"gbs", 2000}, {"of_peak", 0.46}, {"bound", "compute"}}}},
       {{"name", "add"},
        {"category", "elementwise"},
        {"calls", 1},
        {"us", 10},
        {"share", 0.005},
        {"roofline", nullptr}}});
}

inline json report_timeline() {
  json events = json::array();
  for (int i = 0; i < 200; ++i) events.push_back({i * 10.0, 8.0, i % 3, i % 2});
  return {{"tracks", json::array({{{"name", "GPU 0 stream 7"}, {"events", events}}})},
          {"names", {"gemm", "add"}},
          {"categories", {"GEMM", "elementwise", "memory"}},
          {"steps", {{0, 1000, 1}, {1000, 1000, 2}}}};
}

inline json report() {
  return {{"schema", "pyflame.report/1"},
          {"inputs", {"trace.json"}},
          {"format", "Kineto trace"},
          {"device",
           {{"name", "AMD Instinct MI300X"},
            {"gfx", "gfx942"},
            {"peaks",
             {{"fp16_tflops", 1307.4}, {"bf16_tflops", 1307.4}, {"fp32_tflops", 163.4}, {"bandwidth_gbs", 5300}}}}},
          {"time",
           {{"wall_us", 2000},
            {"gpu_busy_us", 1600},
            {"idle_us", 300},
            {"launch_bound_us", 100},
            {"steps", {{"count", 2}, {"median_us", 1000}, {"spread", 0.1}}}}},
          {"categories", json::array({{{"name", "GEMM"}, {"us", 1200}, {"share", 0.6}, {"kernels", 10}},
                                      {{"name", "idle"}, {"us", 300}, {"share", 0.15}, {"kernels", 0}}})},
          {"kernels", report_kernels()},
          {"gaps",
           json::array({{{"at_us", 100}, {"us", 20}, {"before", "a"}, {"after", "b"}, {"why", "the host was busy"}}})},
          {"gap_reasons", json::array({{{"why", "the host was busy"}, {"us", 20}, {"share", 0.01}, {"count", 1}}})},
          {"copies", json::array({{{"kind", "copy"},
                                   {"direction", "host to device"},
                                   {"calls", 1},
                                   {"us", 5},
                                   {"bytes", 4096},
                                   {"gbs", 0.8}}})},
          {"communication",
           {{"us", 100},
            {"overlapped_us", 40},
            {"exposed_us", 60},
            {"exposed_share", 0.03},
            {"collectives", json::array({{{"name", "all_reduce"}, {"calls", 2}, {"us", 100}}})}}},
          {"timeline", report_timeline()},
          {"tuned", json::array({{{"problem", "GEMM 4096"},
                                  {"kind", "gemm"},
                                  {"choice", "Default"},
                                  {"us", 10},
                                  {"tflops", 500},
                                  {"roofline", 0.4},
                                  {"stale", "older"},
                                  {"line", 3}}})},
          {"validators", {{"PT_VERSION", "2.5"}}},
          {"advice", json::array({{{"severity", "HIGH"},
                                   {"what", "tune"},
                                   {"why", "slow"},
                                   {"do", {"first", "second"}},
                                   {"command", "x=1 python t.py"}}})},
          {"verdict", "Matrix products bound this step."},
          {"problems", json::array({{{"where", "trace.json"}, {"what", "cut"}}})}};
}

inline json train() {
  json curve = json::array(), few = json::array();
  for (int i = 1; i <= 300; ++i) curve.push_back({i, 4.0 / i + 1});
  for (int i = 50; i <= 300; i += 50) few.push_back({i, 4.1 / i + 1});
  return {
      {"schema", "pyflame.train/1"},
      {"name", "run"},
      {"status", "interrupted"},
      {"headline", "Interrupted at step 300 of 500; validation loss 1.0137"},
      {"subline", "GPT with 1M parameters on text.txt"},
      {"steps_done", 300},
      {"steps", 500},
      {"resumed_at", 100},
      {"duration", "2:41"},
      {"median_tokens_per_s", 50000},
      {"last", {{"loss", 1.01}, {"val_loss", 1.0137}}},
      {"best", {{"step", 300}, {"val_loss", 1.0137}}},
      {"curves", {{"loss", curve}, {"loss_mean", curve}, {"val_loss", few}, {"lr", curve}, {"tokens_per_s", curve}}},
      {"profile",
       {{"count", 5},
        {"wall_us", 50000},
        {"waited", true},
        {"categories", json::array({{{"name", "GEMM"}, {"share", 0.6}, {"us", 6000}},
                                    {{"name", "between steps"}, {"share", 0.4}, {"us", 4000}}})},
        {"steps", json::array({{{"name", "onednn.sgemm matmul+add"},
                                {"kind", "GEMM"},
                                {"share", 0.6},
                                {"us", 6000},
                                {"calls", 12},
                                {"mean_us", 500}}})}}},
      {"fallbacks", json::array({"sort on rocm:0 ran on the host 3 times, for 5 ms (no kernel)"})},
      {"memory",
       {{"peak_allocated", 1 << 30},
        {"allocated", 1 << 29},
        {"arena", 1 << 20},
        {"peak_resident", int64_t{3} << 30},
        {"total", int64_t{16} << 30}}},
      {"run", json::array({{"Data", "text.txt"}, {"Seed", "1337"}})},
      {"resume", "pyflame train gpt --out run --resume"}};
}

}  // namespace pyflame::tools::view::samples
