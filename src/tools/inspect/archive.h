// ar archives (.a): GNU and BSD names, and GNU's thin archives, whose members are files of their own.
#pragma once
#include <string>
#include <vector>

#include "tools/inspect/bytes.h"

namespace pyflame::tools::inspect {

struct ArchiveMember {
  std::string name;
  Bytes data;  // empty in a thin archive: `name` is then a path relative to the archive's folder
};

struct Archive {
  bool thin = false;
  std::vector<ArchiveMember> members;
  std::vector<std::string> problems;
};

bool is_archive(Bytes data);
Archive parse_archive(Bytes data);

}  // namespace pyflame::tools::inspect
