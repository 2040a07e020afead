// A checkpoint is one safetensors file: tensors under "model." and "optimizer.", and everything else (step, schedule,
// random state, data position, configuration) as JSON texts in the metadata. Since it is one file and one rename, a
// checkpoint is never half-written.
#pragma once
#include <string>

#include "pyflame/io/safetensors.h"

namespace pyflame {

// What a checkpoint holds.
struct Checkpoint {
  NamedTensors model, optimizer;
  Metadata state;  // name -> JSON text
  // The text of `name`; if it is missing, a ValueError names the file.
  const std::string& at(const std::string& name) const;
};

// Atomic, see save_safetensors. The state of the global random generator is not added automatically; callers that need
// it add it to `state`.
void save_checkpoint(const std::string& path, const Checkpoint& checkpoint);

// ValueError if the file is a safetensors file but not a checkpoint, or if a later version wrote it.
Checkpoint load_checkpoint(const std::string& path, DeviceOpt device = {});

}  // namespace pyflame
