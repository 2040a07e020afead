// Reads the records of a JSON file as a stream: the objects in chosen arrays, one at a time. A record is flat: each
// number or text has the path of its keys in the record. The file may be larger than memory, hostile or cut off.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/profile/importer.h"

namespace pyflame::tools::profile {

class JsonRecord {
 public:
  // The first value with this path, such as "dispatch_info.agent_id.handle"; empty if there is none. The elements of an
  // array all have the path of the array.
  std::string_view text(std::string_view path) const;
  int64_t integer(std::string_view path, int64_t otherwise = 0) const;
  std::vector<std::string_view> all(std::string_view path) const;

 private:
  friend class RecordHandler;
  struct Field {
    std::string path, text;
  };
  std::vector<Field> fields_;  // the first `used_` are of this record; the others keep their memory
  size_t used_ = 0;
};

// Calls `record` with the path of its array, such as "buffer_records.hip_api", for each object in an array for which
// `wanted` is true. The numbers of elements are no part of paths. What is wrong with the file becomes a problem of the
// profile; fails if the file has no record.
using RecordCallback = std::function<void(const std::string& list, const JsonRecord& record)>;
void read_json_records(const Source& source, Profile& profile, const Progress& progress,
                       const std::function<bool(const std::string& list)>& wanted, const RecordCallback& record);

}  // namespace pyflame::tools::profile
