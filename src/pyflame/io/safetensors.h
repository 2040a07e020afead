// Tensors on disk, in the safetensors layout: 8 bytes with the header length (little-endian), a JSON header, then the
// tensors' bytes. Other programs can read our files, and we can read theirs. Files are not trusted: nothing larger than
// the file itself is allocated, and a streaming parser that knows the schema reads the header.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "pyflame/io/safetensors_file.h"
#include "pyflame/ops/ops.h"

namespace pyflame {

// Tensors with names, in an order.
using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

// What a file holds.
struct SafetensorsFile {
  NamedTensors tensors;  // in the order of the header, which is that of save_safetensors's argument
  Metadata metadata;
};

// Atomic: either the new file is complete, or the old one is unchanged. ValueError for duplicate names, invalid UTF-8
// and the reserved name "__metadata__"; OSError (with the sizes) if the disk is full. A sync point for every tensor.
void save_safetensors(const std::string& path, const NamedTensors& tensors, const Metadata& metadata = {});

// OSError if the file cannot be read, ValueError if it is not a valid safetensors file.
SafetensorsFile load_safetensors(const std::string& path, DeviceOpt device = {});

}  // namespace pyflame
