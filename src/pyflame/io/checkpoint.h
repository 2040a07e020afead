// A checkpoint is one safetensors file: tensors under "model." and "optimizer.", and everything else (step, schedule, random
// state, data position, configuration) as JSON texts in the metadata. One file means one rename, so a checkpoint is never torn.
#pragma once
#include <string>

#include "pyflame/io/safetensors.h"

namespace pyflame {

struct Checkpoint {
  NamedTensors model, optimizer;
  Metadata state;  // name -> JSON text
  // The text of `name`; ValueError naming the file's origin when it is not there.
  const std::string& at(const std::string& name) const;
};

// Atomic, see save_safetensors. The global random generator's state is not added here: it is part of `state` if it matters.
void save_checkpoint(const std::string& path, const Checkpoint& checkpoint);

// ValueError when the file is a safetensors file but not a checkpoint, or one of a later version.
Checkpoint load_checkpoint(const std::string& path, DeviceOpt device = {});

}  // namespace pyflame
