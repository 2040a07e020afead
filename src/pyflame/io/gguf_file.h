// GGUF files (versions 2 and 3): typed metadata and tensors, most of them in blocks of a few bits per element. The file is not trusted:
// counts and lengths are checked against its size before anything is allocated.
#pragma once
#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "pyflame/io/input_file.h"
#include "pyflame/tensor/dims.h"
#include "pyflame/tensor/dtype.h"
#include "pyflame/tensor/gguf_blocks.h"

namespace pyflame::gguf {

struct Entry {
  std::string name;
  const Type* type = nullptr;
  Dims shape;  // outermost first, as everywhere in PyFlame; the file has the reverse
  uint64_t begin = 0, bytes = 0;
  DType dtype() const { return type->dtype ? *type->dtype : DType::float32; }
};

class Reader {
 public:
  // OSError; ValueError if it is no such file, is damaged, or has a type of tensors that is not known.
  Reader(std::string op, const std::string& path);
  static bool is_one(const InputFile& file);

  uint32_t version() const { return version_; }
  const std::vector<Entry>& entries() const { return entries_; }
  // By key; arrays are JSON arrays. Text that is not UTF-8 is kept as it is.
  const nlohmann::json& metadata() const { return metadata_; }
  // The elements of one tensor in its dtype(); ValueError if its type cannot be decoded.
  std::unique_ptr<char[]> read(const Entry& entry) const;
  // The same with all its bytes as they are, to memory of entry.bytes.
  void read_blocks(const Entry& entry, void* to) const { file_.read(to, entry.bytes, entry.begin); }
  // The whole file in memory; an entry's bytes begin at entry.begin.
  std::shared_ptr<char> map() const { return file_.map(); }

 private:
  class Cursor;
  nlohmann::json read_value(Cursor& at, uint32_t kind, int depth) const;
  void read_metadata(Cursor& at, uint64_t count);
  void read_entries(Cursor& at, uint64_t count);

  InputFile file_;
  uint32_t version_ = 0;
  nlohmann::json metadata_ = nlohmann::json::object();
  std::vector<Entry> entries_;
};

}  // namespace pyflame::gguf
