// The document of the doctor as a whole: order, contradictions, guides, what a file of settings is judged by, and what is printed.
#include "tools/doctor/audit.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "pyflame/base/error.h"
#include "tools/doctor/env_advice.h"
#include "tools/doctor/text.h"

namespace pyflame::tools::doctor {
namespace {

using Json = nlohmann::json;

const Json* find(const Json& document, const std::string& id) {
  for (const Json& f : document["findings"])
    if (f["id"] == id) return &f;
  return nullptr;
}
Json gpu(int index, const std::string& gfx) {
  return {{"index", index},        {"gfx", gfx}, {"name", "GPU " + gfx}, {"integrated", false},
          {"pci", "0000:05:00.0"}, {"numa", 0}};
}

TEST(Audit, NothingIsSaidOfNothing) {
  for (const Json& facts : {Json::object(), Json(), Json::array(), Json(1), Json{{"env", Json::object()}}}) {
    const Json document = audit(facts);
    EXPECT_TRUE(document["findings"].empty()) << document["findings"];
    EXPECT_EQ(document["verdict"], "Nothing to fix was found.");
    EXPECT_EQ(exit_code(document), 0);
    EXPECT_GE(document["checked"].get<int>(), 100);
  }
}

// Facts come from trees that strangers send: a wrong type anywhere must not end the report.
TEST(Audit, FactsOfAnyForm) {
  const std::vector<Json> values = {
      nullptr,
      true,
      -1,
      1e300,
      "text",
      Json::array(),
      Json::array({1, nullptr, "x", Json::object()}),
      Json::object(),
      {{"a", {{"b", 1}}}},
      {{{"index", "x"}, {"gfx", 5}, {"pcie", 1}, {"users", 1}, {"temperatures", {1, {{"c", "hot"}}}}}}};
  for (const char* key : {"host", "process", "driver", "kfd", "rocm", "frameworks", "gpus", "visible", "links", "acs",
                          "env", "env_lines", "absence", "lint", "failed_probes", "env_repeats", "env_programs"})
    for (const Json& value : values) {
      Json facts = {{"env", {{"HIP_VISIBLE_DEVICES", "0"}, {"NCCL_MIN_NCHANNELS", "112"}}},
                    {"gpus", {gpu(0, "gfx942")}}};
      facts[key] = value;
      const Json document = audit(facts);
      EXPECT_FALSE(report_text(document, {}).empty());
      EXPECT_FALSE(fix_script(document).empty());
    }
  for (const char* key : {"gpus", "steps"})
    for (const Json& value : values)
      audit({{"gpus", {gpu(0, "gfx942")}}, {"visible", {{"gpus", {0}}, {"steps", Json::array()}, {key, value}}}});
}

TEST(Audit, OrderAndExitCode) {
  const Json document =
      audit({{"env",
              {{"HSA_ENABLE_SDMA", "0"},
               {"AMD_LOG_LEVEL", "0"},
               {"PYTORCH_ALLOC_CONF", "expandable_segments:True,max_split_size_mb:1"},
               {"AMD_SERIALIZE_KERNEL", "3"}}},
             {"absence",
              {{"code", "no_driver"}, {"what", "no driver here"}, {"why", "so"}, {"fix", "sudo modprobe amdgpu"}}}});
  std::string order;
  for (const Json& f : document["findings"]) order += f["id"].get<std::string>() + " ";
  EXPECT_EQ(order, "SYS-04 ENV-50 ENV-14 ENV-30 ENV-12 ");
  EXPECT_EQ(document["verdict"], "No AMD GPU can be used: no driver here.");
  EXPECT_EQ(exit_code(document), 5);
  EXPECT_EQ(document["counts"], (Json{{"CRIT", 1}, {"HIGH", 2}, {"MED", 1}, {"LOW", 0}, {"INFO", 1}}));
  EXPECT_EQ(exit_code(audit({{"env", {{"AMD_SERIALIZE_KERNEL", "3"}}}})), 4);
  EXPECT_EQ(exit_code(audit({{"env", {{"HSA_ENABLE_SDMA", "0"}}}})), 3);
  EXPECT_EQ(exit_code(audit({{"env", {{"AMD_LOG_LEVEL", "0"}}}})), 0);
}

TEST(Audit, ContradictionsStandTogether) {
  const Json document = audit({{"env",
                                {{"HIP_LAUNCH_BLOCKING", "0"},
                                 {"CUDA_LAUNCH_BLOCKING", "1"},
                                 {"GPU_MAX_HEAP_SIZE", "50"},
                                 {"AMD_SERIALIZE_COPY", "1"}}}});
  const Json &cuda = *find(document, "ENV-17"), &hip = *find(document, "ENV-16");
  EXPECT_TRUE(cuda["group"].is_string());
  EXPECT_EQ(cuda["group"], hip["group"]);
  EXPECT_TRUE(find(document, "ENV-15")->at("group").is_null());
  for (size_t i = 0; i + 1 < document["findings"].size(); ++i)
    if (document["findings"][i]["id"] == "ENV-17") {
      EXPECT_EQ(document["findings"][i + 1]["id"], "ENV-16") << "the INFO stands beside the HIGH";
    }
  EXPECT_NE(report_text(document, {}).find("These contradict each other"), std::string::npos);
  EXPECT_TRUE(find(audit({{"env", {{"HIP_LAUNCH_BLOCKING", "1"}, {"CUDA_LAUNCH_BLOCKING", "1"}}}}), "ENV-17")
                  ->at("group")
                  .is_null());
}

TEST(Audit, GuidesThatAdviseIt) {
  const Json f = *find(audit({{"env", {{"TORCH_BLAS_PREFER_HIPBLASLT", "0"}}}}), "ENV-55");
  EXPECT_EQ(f["recommended_by"], Json({"ROCm 6.3 reference (RX 7900)"}));
  EXPECT_EQ(f["advised_otherwise"], Json({"kernel-optimization skill: 1"}));
  EXPECT_TRUE(find(audit({{"env", {{"HSA_ENABLE_SDMA", "1"}}}}), "ENV-30")->at("recommended_by").empty());
}

TEST(Audit, AFileIsJudgedByWhatItSets) {
  Json facts = {{"env", {{"HSA_ENABLE_SDMA", "0"}}},
                {"env_lines", {{"HSA_ENABLE_SDMA", "x.sh:3"}}},
                {"gpus", {gpu(0, "gfx942")}},
                {"host", {{"numa_balancing", 1}}},
                {"rocm", {{"version", "6.1.0"}}},
                {"lint", {{{"id", "LINT-13"}, {"what", "it is lost."}, {"fix", "mend it."}, {"where", "x.sh:9"}}}}};
  AuditOptions options;
  options.settings_only = true;
  const Json document = audit(facts, options);
  EXPECT_EQ(document["findings"].size(), 2u);
  EXPECT_EQ(find(document, "ENV-30")->at("where"), "x.sh:3");
  EXPECT_EQ(find(document, "LINT-13")->at("what"), "It is lost.");
  EXPECT_EQ(find(document, "LINT-13")->at("fix"), "mend it.");
  const Json all = audit(facts);
  EXPECT_TRUE(find(all, "SYS-08") && find(all, "ENV-10"));
}

TEST(Audit, WhatWasNotReadIsInTheVerdict) {
  AuditOptions of_file;
  of_file.settings_only = true;
  Json facts = {{"env", Json::object()},
                {"env_source", "train.py"},
                {"failed_probes", {{{"probe", "train.py"}, {"why", "line 2: invalid syntax"}}}}};
  EXPECT_EQ(audit(facts, of_file)["verdict"], "Not everything was read: train.py: line 2: invalid syntax.");
  EXPECT_EQ(audit(facts, of_file)["unread"], "train.py: line 2: invalid syntax");
  facts["env"] = {{"HIP_LAUNCH_BLOCKING", "1"}};
  EXPECT_EQ(audit(facts, of_file)["verdict"],
            "1 thing stops programs or costs much of their speed. Not everything was read: train.py: line 2: invalid "
            "syntax.");
  facts["failed_probes"][0]["probe"] = "topology";  // of the machine, not of what is judged
  EXPECT_TRUE(audit(facts, of_file)["unread"].is_null());
}

TEST(Audit, ReadersOfSettings) {
  const Json env = {{"HIP_VISIBLE_DEVICES", "0"}, {"TORCH_COMPILE_BACKEND", "inductor"}, {"NCCL_ALGO", "Ring"}};
  const Json readers = audit({{"env", env}})["readers"];
  EXPECT_EQ(readers, (Json{{"HIP_VISIBLE_DEVICES", "the HIP runtime"}, {"TORCH_COMPILE_BACKEND", "nothing"}}));
}

TEST(Audit, DidYouMean) {
  const Json document = audit({{"env", {{"HSA_ENABLE_SDAM", "0"}, {"MIOPEN_BLUE_MOON", "1"}, {"PYFLAME_DEBUG", "1"}}}});
  EXPECT_NE(document["findings"][0]["what"].get<std::string>().find("Did you mean HSA_ENABLE_SDMA?"),
            std::string::npos);
  EXPECT_EQ(document["findings"].size(), 2u);
  EXPECT_EQ(document["findings"][0]["names"], Json({"HSA_ENABLE_SDAM"}));
}

TEST(Fix, AScriptWithReasonsThatRunsNothingByItself) {
  const Json document =
      audit({{"env",
              {{"HIP_VISIBLE_DEVICES", "0"},
               {"CUDA_VISIBLE_DEVICES", "1; rm -rf /\nreboot"},
               {"HSA_ENABLE_SDMA", "0\n$(reboot)"},
               {"AMD_SERIALIZE_COPY", "1"}}},
             {"gpus", {gpu(0, "gfx942")}},
             {"kfd", {{"exists", true}, {"readable", false}, {"writable", false}, {"group", "ren der`reboot`"}}},
             {"host", {{"numa_balancing", 1}}}});
  const std::string script = fix_script(document);
  EXPECT_NE(script.find("sudo sysctl kernel.numa_balancing=0"), std::string::npos);
  EXPECT_NE(script.find("unset AMD_SERIALIZE_COPY"), std::string::npos);
  EXPECT_NE(script.find("sudo usermod -aG 'ren der`reboot`' $USER"), std::string::npos);
  EXPECT_LT(script.find("unset "), script.find("sudo ")) << "what needs root comes last";
  size_t begin = 0;
  for (size_t end; (end = script.find('\n', begin)) != std::string::npos; begin = end + 1) {
    const std::string line = script.substr(begin, end - begin);
    if (line.empty() || line[0] == '#') continue;
    EXPECT_TRUE(line.starts_with("unset ") || line.starts_with("export ") || line.starts_with("sudo ")) << line;
  }
}

TEST(Text, UntrustedWordsStayWords) {
  Json card = gpu(0, "gfx942");
  card["name"] = "card\x1b[31m\nfake line";
  const Json document =
      audit({{"env", {{"HSA_ENABLE_SDMA", "0\x1b]0;title\x07"}}}, {"gpus", {card}}, {"env_source", "a\x1b[2J"}});
  const std::string text = report_text(document, {}, {true, Severity::info});
  for (const char c : text) EXPECT_TRUE(c == '\n' || static_cast<unsigned char>(c) >= 32) << static_cast<int>(c);
  EXPECT_EQ(text.find("\nfake line"), std::string::npos);
}

TEST(Text, InfoIsShortUnlessAsked) {
  const Json document = audit({{"env", {{"AMD_LOG_LEVEL", "0"}, {"HSA_ENABLE_SDMA", "0"}}}});
  const std::string brief = report_text(document, {}), full = report_text(document, {}, {true, Severity::info}),
                    only = report_text(document, {}, {false, Severity::high});
  EXPECT_NE(brief.find("Without effect: AMD_LOG_LEVEL."), std::string::npos);
  EXPECT_EQ(brief.find("is the default"), std::string::npos);
  EXPECT_NE(full.find("AMD_LOG_LEVEL=0 is the default."), std::string::npos);
  EXPECT_EQ(only.find("ENV-30"), std::string::npos);
}

TEST(Topology, MatrixOfLinks) {
  const Json facts = {{"gpus", {gpu(0, "gfx942"), gpu(1, "gfx942"), gpu(2, "gfx942")}},
                      {"links",
                       {{{"from", 0}, {"to", 1}, {"kind", "xgmi"}, {"hops", 1}},
                        {{"from", 1}, {"to", 0}, {"kind", "xgmi"}, {"hops", 1}},
                        {{"from", 0}, {"to", 2}, {"kind", "pcie"}, {"hops", 2}}}},
                      {"host", {{"numa_nodes", 2}, {"iommu", {{"active", true}, {"mode", "identity"}}}}},
                      {"acs", {{"state", "unknown"}}}};
  const std::string text = topology_text(facts, {});
  EXPECT_NE(text.find("xGMI"), std::string::npos);
  EXPECT_NE(text.find("PCIe x2"), std::string::npos);
  EXPECT_NE(text.find("IOMMU: identity"), std::string::npos);
  EXPECT_EQ(topology_text({{"gpus", Json::array()}}, {}), "");
}

std::string advice(const std::string& gfx, const std::string& workload, const std::string& rocm) {
  return env_text(env_advice({gfx, workload, rocm}, nullptr));
}

TEST(EnvAdvice, OnlyWhatChangesSomething) {
  EXPECT_EQ(advice("gfx942", "", "7.2").find("HIP_FORCE_DEV_KERNARG"), std::string::npos) << "the default since 6.2";
  EXPECT_NE(advice("gfx942", "", "6.1.2").find("export HIP_FORCE_DEV_KERNARG=1\n"), std::string::npos);
  EXPECT_NE(advice("gfx1100", "training", "").find("export TORCH_ROCM_AOTRITON_ENABLE_EXPERIMENTAL=1\n"),
            std::string::npos);
  EXPECT_EQ(advice("gfx942", "inference", "").find("AOTRITON"), std::string::npos);
  EXPECT_EQ(advice("gfx1100", "training", "").find("HIPBLASLT"), std::string::npos) << "PyTorch chooses so by itself";
  EXPECT_NE(advice("gfx950", "inference", "").find("export VLLM_ROCM_USE_AITER=1\n"), std::string::npos);
  EXPECT_EQ(advice("gfx1201", "inference", "").find("AITER"), std::string::npos);
  EXPECT_NE(advice("gfx90a", "", "").find("Nothing to set"), std::string::npos);
  EXPECT_THROW(advice("gfx9999", "", ""), Error);
  EXPECT_THROW(advice("sm_90", "", ""), Error);
  for (const char* gfx : {"gfx906", "gfx908", "gfx90a", "gfx942", "gfx950", "gfx1030", "gfx1100", "gfx1151", "gfx1201"})
    for (const char* workload : {"", "training", "inference", "multi-gpu"}) {
      const Json document = env_advice({gfx, workload, "6.1"}, nullptr);
      // What it advises is no mistake by the doctor's own rules, on a machine with that GPU.
      Json facts = {{"env", Json::object()}, {"gpus", {gpu(0, gfx), gpu(1, gfx)}}, {"rocm", {{"version", "6.1.0"}}}};
      for (const Json& e : document["exports"]) facts["env"][e["name"].get<std::string>()] = e["value"];
      AuditOptions options;
      options.settings_only = true;
      options.workload = workload;
      const Json report = audit(facts, options);
      for (const Json& f : report["findings"]) {
        EXPECT_TRUE(f["severity"] == "LOW" || f["severity"] == "INFO") << gfx << " " << workload << " " << f;
        EXPECT_EQ(f["no_op"], false) << gfx << " " << workload << " " << f;
      }
    }
}

}  // namespace
}  // namespace pyflame::tools::doctor
