// What is in a file or folder of model weights, as one JSON document: tensors with shape, dtype and size, the same ones grouped by layer, and
// the metadata. Only headers are read.
#pragma once
#include <nlohmann/json_fwd.hpp>
#include <string>

namespace pyflame::tools::model_files {

// Keys: path, format, file_bytes, totals {tensors, elements, bytes}, dtypes [{name, tensors, elements, bytes}],
// tensors [{name, shape, dtype, elements, bytes, file}], groups [{name, count, shape, dtype, elements, bytes}], metadata {}, notes [text].
// A group is all tensors whose names differ in numbers only and that have one shape and dtype: "layers.{0…29}.weight".
// OSError; ValueError if the format is not known or the file is damaged.
nlohmann::json document(const std::string& path);

}  // namespace pyflame::tools::model_files
