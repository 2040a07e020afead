// Finds the code objects in a file, through every kind of container: archives, host programs with fat binaries,
// bundles, compressed bundles, caches and databases. Files are recognised by their contents, never by their names.
#pragma once
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tools/inspect/bytes.h"
#include "tools/inspect/code_object.h"

namespace pyflame::tools::inspect {

struct TritonInfo {
  std::string name;
  int64_t num_warps = 0, num_stages = 0, shared = 0;
};

struct FoundObject {
  std::string path, member, container;  // member: "conv.o: .hip_fatbin #2"; empty for the file itself
  Memory memory;
  CodeObject object;
  std::optional<TritonInfo> triton;
};

struct Problem {
  std::string where, what;
};

// The contents of a file. `others` counts known things that have no machine code for AMD GPUs: kind -> number.
struct FileContents {
  std::vector<FoundObject> objects;
  std::vector<Problem> problems;
  std::map<std::string, int64_t> others;
  uint64_t decompressed = 0;  // bytes of memory that the objects use in addition to the mapped file
};

// What the first bytes of a file show, in words ("ELF", "archive", …); empty if unknown. The caller decides whether an
// unknown file is a problem.
std::string recognise(Bytes head);
constexpr size_t kHeadBytes = 512;

// Never throws for what is in the file; Error(OS) when it cannot be opened.
FileContents read_file_contents(const std::string& path);
// The same for bytes in memory (tests, fuzzing).
FileContents read_contents(const std::string& path, const Memory& file);

}  // namespace pyflame::tools::inspect
