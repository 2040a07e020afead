// Finds the source line of an address: our own reader of DWARF line tables (versions 2 to 5), so no tool is needed.
// Only the line programs are read, and nothing else of the debug information; all counts and offsets are checked.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "tools/inspect/bytes.h"

namespace pyflame::tools::inspect {

class SourceLines {
 public:
  SourceLines() = default;
  // Reads an ELF file with .debug_line. Without one, or if it cannot be understood, there are no lines.
  static SourceLines of_elf(Bytes elf);
  static SourceLines of_sections(Bytes line, Bytes line_strings, Bytes strings);

  bool empty() const { return rows_.empty(); }
  // "kernel.hip:123", or empty.
  std::string find(uint64_t address) const;

 private:
  struct Row {
    uint64_t address = 0;
    uint32_t file = 0, line = 0;
    bool end = false;  // the first address after a sequence
  };
  friend class LineReader;
  std::vector<std::string> files_;
  std::vector<Row> rows_;  // by address
};

}  // namespace pyflame::tools::inspect
