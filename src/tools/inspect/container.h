// From one file to the code objects in it, through every kind of wrapping: archives, host programs with fat binaries, bundles,
// compressed ones, caches and databases. Files are recognised by what they contain, never by their names.
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

// What one file holds. `others` counts what is known and has no machine code for AMD GPUs: kind -> how many.
struct FileContents {
  std::vector<FoundObject> objects;
  std::vector<Problem> problems;
  std::map<std::string, int64_t> others;
  uint64_t decompressed = 0;  // bytes of memory that the objects hold beside the mapped file
};

// What the first bytes of a file say, in words ("ELF", "archive", …); empty for what is not known. `named` files that are unknown
// are a problem, others are not: that is for who calls.
std::string recognise(Bytes head);
constexpr size_t kHeadBytes = 512;

// Never throws for what is in the file; Error(OS) when it cannot be opened.
FileContents read_file_contents(const std::string& path);
// The same for bytes in memory (tests, fuzzing).
FileContents read_contents(const std::string& path, const Memory& file);

}  // namespace pyflame::tools::inspect
