// ELF64, little-endian: sections, symbols and notes, as far as they are inside the file. Other parts are left out and
// listed in `problems`, so a truncated file still shows what it has.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "tools/inspect/bytes.h"

namespace pyflame::tools::inspect {

struct ElfSection {
  std::string_view name;
  uint32_t type = 0, link = 0, info = 0;
  uint64_t flags = 0, address = 0, offset = 0, size = 0, entry_size = 0;
  Bytes data;  // empty for NOBITS, and if it is outside the file
};

struct ElfSymbol {
  std::string_view name;
  uint64_t value = 0, size = 0;
  uint16_t section = 0;
  uint8_t type = 0, binding = 0;
};

struct ElfNote {
  std::string_view name;
  uint32_t type = 0;
  Bytes description;
};

struct Elf {
  static constexpr uint16_t kAmdGpu = 224, kCuda = 190;
  static constexpr uint8_t kOsAbiHsa = 64;
  static constexpr uint8_t kObject = 1, kFunction = 2;  // types of symbols
  static constexpr uint8_t kGlobal = 1;                 // a binding

  Bytes file;
  uint8_t os_abi = 0, abi_version = 0;
  uint16_t type = 0, machine = 0;
  uint32_t flags = 0;
  std::vector<ElfSection> sections;
  std::vector<ElfSymbol> symbols;  // of .symtab, or of .dynsym if that is missing
  std::vector<ElfNote> notes;
  std::vector<std::string> problems;

  const ElfSection* find(std::string_view name) const;
  // The bytes of a symbol; empty if the file has none.
  Bytes contents(const ElfSymbol& symbol, uint64_t size) const;
};

bool is_elf(Bytes data);
// Reads only the header: the machine of an ELF file, 0 if unknown.
uint16_t elf_machine(Bytes data);
// Error(Value) if not even the header can be read.
Elf parse_elf(Bytes data);

}  // namespace pyflame::tools::inspect
