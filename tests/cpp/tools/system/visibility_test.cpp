// Which GPUs are left by the visibility variables, rule by rule of the two runtimes.
#include "tools/system/visibility.h"

#include <gtest/gtest.h>

namespace pyflame::tools::system {
namespace {

struct Case {
  Environment environment;
  std::vector<int> gpus;
  std::string note;  // part of the note of the last step; empty: there is none
};

const std::vector<std::string> kFour = {"GPU-00000000000000a1", "GPU-00000000000000a2", "", "GPU-0f00000000000001"};

TEST(Visibility, Table) {
  const std::vector<Case> cases = {
      {{}, {0, 1, 2, 3}, ""},
      // HIP's list: order counts, it ends at the first entry that is no device, a second mention counts once
      {{{"HIP_VISIBLE_DEVICES", "2,0"}}, {2, 0}, ""},
      {{{"HIP_VISIBLE_DEVICES", "1,7,0"}}, {1}, "entry '7' is not among the 4 GPUs that are left"},
      {{{"HIP_VISIBLE_DEVICES", "-1"}}, {}, "entry '-1' is negative"},
      {{{"HIP_VISIBLE_DEVICES", "0,0,1"}}, {0, 1}, "counts once"},
      {{{"HIP_VISIBLE_DEVICES", "0, 1"}}, {0}, "entry ' 1' is neither an index nor a UUID"},
      {{{"HIP_VISIBLE_DEVICES", "01"}}, {}, "neither an index"},
      {{{"HIP_VISIBLE_DEVICES", "1,"}}, {1}, ""},
      {{{"HIP_VISIBLE_DEVICES", ""}}, {0, 1, 2, 3}, "set but empty"},
      {{{"HIP_VISIBLE_DEVICES", "all"}}, {}, "neither an index"},
      {{{"HIP_VISIBLE_DEVICES", "GPU-00000000000000a2"}}, {1}, ""},
      {{{"HIP_VISIBLE_DEVICES", "GPU-0f00000000000001,0"}}, {3, 0}, ""},
      {{{"HIP_VISIBLE_DEVICES", "GPU-00000000000000ff"}}, {}, "UUID of no GPU"},
      // CUDA's name counts only where HIP's is not set
      {{{"CUDA_VISIBLE_DEVICES", "3"}}, {3}, ""},
      {{{"HIP_VISIBLE_DEVICES", "0"}, {"CUDA_VISIBLE_DEVICES", "3"}}, {0}, ""},
      {{{"HIP_VISIBLE_DEVICES", ""}, {"CUDA_VISIBLE_DEVICES", "3"}}, {3}, ""},
      // ROCr's list: blanks and any case are taken, a second mention ends it, the empty value hides all
      {{{"ROCR_VISIBLE_DEVICES", " 1 , 0"}}, {1, 0}, ""},
      {{{"ROCR_VISIBLE_DEVICES", ""}}, {}, "no GPU at all"},
      {{{"ROCR_VISIBLE_DEVICES", "0,0,1"}}, {0}, "second time"},
      {{{"ROCR_VISIBLE_DEVICES", "0,,1"}}, {0}, "is empty"},
      {{{"ROCR_VISIBLE_DEVICES", "0x1"}}, {1}, ""},
      {{{"ROCR_VISIBLE_DEVICES", "1,9"}}, {1}, "entry '9' is not among the 4 GPUs: it is ignored"},
      {{{"ROCR_VISIBLE_DEVICES", "gpu-0F00000000000001"}}, {3}, ""},
      {{{"ROCR_VISIBLE_DEVICES", "GPU-0f"}}, {3}, ""},
      {{{"ROCR_VISIBLE_DEVICES", "GPU-00"}}, {}, "more than one UUID"},
      {{{"ROCR_VISIBLE_DEVICES", "0,1,2,3,0"}}, {0, 1, 2, 3}, "more than there are GPUs"},
      // stacked: the second list counts among what is left
      {{{"ROCR_VISIBLE_DEVICES", "1"}, {"HIP_VISIBLE_DEVICES", "1"}}, {}, "not among the 1 GPU that is left"},
      {{{"ROCR_VISIBLE_DEVICES", "3,1"}, {"HIP_VISIBLE_DEVICES", "1"}}, {1}, ""},
      {{{"ROCR_VISIBLE_DEVICES", "2,3"}, {"HIP_VISIBLE_DEVICES", "GPU-00000000000000a1"}}, {}, "no GPU that is left"},
      // HIP programs do not read this one
      {{{"GPU_DEVICE_ORDINAL", "1"}}, {0, 1, 2, 3}, "OpenCL"},
  };
  for (const Case& c : cases) {
    const Visibility v = visible_gpus(kFour, c.environment);
    std::string text;
    for (const auto& [name, value] : c.environment) text += name + "=" + value + " ";
    EXPECT_EQ(v.gpus, c.gpus) << text;
    const std::string note = v.steps.empty() ? "" : v.steps.back().note;
    if (c.note.empty()) EXPECT_EQ(note, "") << text;
    else EXPECT_NE(note.find(c.note), std::string::npos) << text << "→ " << note;
  }
}

TEST(Visibility, StepsTellTheChain) {
  const Visibility v = visible_gpus(
      kFour, {{"CUDA_VISIBLE_DEVICES", "0"}, {"HIP_VISIBLE_DEVICES", "1"}, {"ROCR_VISIBLE_DEVICES", "2,3"}});
  ASSERT_EQ(v.steps.size(), 3u);
  EXPECT_EQ(v.steps[0].variable, "ROCR_VISIBLE_DEVICES");
  EXPECT_EQ(v.steps[0].after, (std::vector<int>{2, 3}));
  EXPECT_EQ(v.steps[1].variable, "CUDA_VISIBLE_DEVICES");
  EXPECT_EQ(v.steps[1].note, "ignored: HIP_VISIBLE_DEVICES is set");
  EXPECT_EQ(v.steps[2].before, (std::vector<int>{2, 3}));
  EXPECT_EQ(v.gpus, (std::vector<int>{3}));
}

TEST(Visibility, NoGpusAtAll) {
  EXPECT_TRUE(visible_gpus({}, {{"HIP_VISIBLE_DEVICES", "0"}}).gpus.empty());
  EXPECT_TRUE(visible_gpus({}, {{"ROCR_VISIBLE_DEVICES", "0"}}).gpus.empty());
}

}  // namespace
}  // namespace pyflame::tools::system
