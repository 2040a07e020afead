// Tensors on disk, in the safetensors layout: 8 bytes little-endian header length, a JSON header, then the tensors' bytes. Other
// programs read what we write and we read what they write. Files are hostile until checked: nothing is allocated that the file's
// own size does not cover, and the header is read by a streaming parser that knows the schema.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "pyflame/io/safetensors_file.h"
#include "pyflame/ops/ops.h"

namespace pyflame {

using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

struct SafetensorsFile {
  NamedTensors tensors;  // in the order of the header, which is the order in which save_safetensors got them
  Metadata metadata;
};

// Atomic: the new file is there as a whole, or the old one is as it was. ValueError for duplicate names, invalid UTF-8 and the
// reserved name "__metadata__"; OSError (with the sizes) when the disk does not take it. Sync point for every tensor.
void save_safetensors(const std::string& path, const NamedTensors& tensors, const Metadata& metadata = {});

// OSError when the file cannot be read, ValueError when it is not a valid safetensors file.
SafetensorsFile load_safetensors(const std::string& path, DeviceOpt device = {});

}  // namespace pyflame
