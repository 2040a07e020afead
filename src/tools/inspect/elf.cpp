#include "tools/inspect/elf.h"

#include <algorithm>

#include "pyflame/base/error.h"

namespace pyflame::tools::inspect {

namespace {

constexpr uint64_t kHeaderSize = 64, kSectionSize = 64, kSegmentSize = 56, kSymbolSize = 24;
constexpr uint32_t kSymtab = 2, kNote = 7, kNoBits = 8, kDynsym = 11, kSegmentNote = 4;
constexpr size_t kMostElfProblems = 20;

void complain(Elf& elf, std::string what) {
  if (elf.problems.size() < kMostElfProblems) elf.problems.push_back(std::move(what));
}

uint64_t align_up(uint64_t n, uint64_t to) { return (n + to - 1) / to * to; }

void read_sections(Elf& elf) {
  const uint64_t at = *read<uint64_t>(elf.file, 40);
  const uint16_t entry = *read<uint16_t>(elf.file, 58);
  uint64_t count = *read<uint16_t>(elf.file, 60);
  uint32_t names = *read<uint16_t>(elf.file, 62);
  if (at == 0) return;
  const auto first = slice(elf.file, at, kSectionSize);
  if (!first || entry != kSectionSize) {
    complain(elf, fmt::format("the section table at offset {} is outside of the file ({} bytes): is it truncated?", at,
                              elf.file.size()));
    return;
  }
  // Files with more than 65,279 sections store these two numbers in the first section.
  if (count == 0) count = *read<uint64_t>(*first, 32);
  if (names == 0xffff) names = *read<uint32_t>(*first, 40);
  const uint64_t possible = (elf.file.size() - at) / kSectionSize;
  if (count > possible) {
    complain(elf, fmt::format("the section table has {} entries, of which {} are inside the file", count, possible));
    count = possible;
  }
  std::vector<uint32_t> name_offsets;
  for (uint64_t i = 0; i < count; ++i) {
    const Bytes h = *slice(elf.file, at + i * kSectionSize, kSectionSize);
    ElfSection s;
    name_offsets.push_back(*read<uint32_t>(h, 0));
    s.type = *read<uint32_t>(h, 4);
    s.flags = *read<uint64_t>(h, 8);
    s.address = *read<uint64_t>(h, 16);
    s.offset = *read<uint64_t>(h, 24);
    s.size = *read<uint64_t>(h, 32);
    s.link = *read<uint32_t>(h, 40);
    s.info = *read<uint32_t>(h, 44);
    s.entry_size = *read<uint64_t>(h, 56);
    if (s.type != kNoBits && s.type != 0 && s.size != 0) {
      if (const auto data = slice(elf.file, s.offset, s.size)) s.data = *data;
      else
        complain(elf, fmt::format("section {} (offset {}, {} bytes) is outside of the file ({} bytes)", i, s.offset,
                                  s.size, elf.file.size()));
    }
    elf.sections.push_back(s);
  }
  if (names >= elf.sections.size()) return;
  const Bytes table = elf.sections[names].data;
  for (size_t i = 0; i < elf.sections.size(); ++i)
    elf.sections[i].name = read_text(table, name_offsets[i]).value_or(std::string_view());
}

void read_symbols(Elf& elf) {
  const ElfSection* table = nullptr;
  for (const ElfSection& s : elf.sections)
    if (s.type == kSymtab || (s.type == kDynsym && !table)) table = &s;
  if (!table || table->link >= elf.sections.size()) return;
  const Bytes names = elf.sections[table->link].data;
  const uint64_t count = table->data.size() / kSymbolSize;
  elf.symbols.reserve(count);
  for (uint64_t i = 1; i < count; ++i) {
    const Bytes e = table->data.subspan(i * kSymbolSize, kSymbolSize);
    ElfSymbol s;
    s.name = read_text(names, *read<uint32_t>(e, 0)).value_or(std::string_view());
    s.type = e[4] & 15;
    s.binding = e[4] >> 4;
    s.section = *read<uint16_t>(e, 6);
    s.value = *read<uint64_t>(e, 8);
    s.size = *read<uint64_t>(e, 16);
    if (!s.name.empty()) elf.symbols.push_back(s);
  }
}

void read_notes(Elf& elf, Bytes data, uint64_t alignment) {
  if (alignment != 8) alignment = 4;
  uint64_t at = 0;
  while (data.size() - at >= 12) {
    const uint64_t name_size = *read<uint32_t>(data, at), size = *read<uint32_t>(data, at + 4);
    const auto name = slice(data, at + 12, name_size);
    const uint64_t description_at = align_up(at + 12 + name_size, alignment);
    const auto description = slice(data, description_at, size);
    if (!name || !description) {
      complain(elf, fmt::format("a note of {} + {} bytes does not fit into its section ({} bytes)", name_size, size,
                                data.size()));
      return;
    }
    std::string_view text = as_text(*name);
    while (!text.empty() && text.back() == '\0') text.remove_suffix(1);
    elf.notes.push_back({text, *read<uint32_t>(data, at + 8), *description});
    at = std::min<uint64_t>(align_up(description_at + size, alignment), data.size());
  }
}

// Notes are found by segments if there are no sections (a stripped file).
void read_note_segments(Elf& elf) {
  const uint64_t at = *read<uint64_t>(elf.file, 32);
  const uint16_t entry = *read<uint16_t>(elf.file, 54), count = *read<uint16_t>(elf.file, 56);
  if (entry != kSegmentSize) return;
  for (uint64_t i = 0; i < count; ++i) {
    const auto h = at > elf.file.size() ? std::nullopt : slice(elf.file, at + i * kSegmentSize, kSegmentSize);
    if (!h) return;
    if (*read<uint32_t>(*h, 0) != kSegmentNote) continue;
    const auto data = slice(elf.file, *read<uint64_t>(*h, 8), *read<uint64_t>(*h, 32));
    if (data) read_notes(elf, *data, *read<uint64_t>(*h, 48));
  }
}

}  // namespace

bool is_elf(Bytes data) {
  return starts_with(data,
                     "\x7f"
                     "ELF");
}

uint16_t elf_machine(Bytes data) {
  const bool readable = is_elf(data) && data.size() >= kHeaderSize && data[4] == 2 && data[5] == 1;
  return readable ? *read<uint16_t>(data, 18) : uint16_t{0};
}

Elf parse_elf(Bytes data) {
  PF_CHECK(is_elf(data), Value, "not an ELF file");
  PF_CHECK(data.size() >= kHeaderSize, Value, "the ELF file ends inside its header; got {} bytes", data.size());
  PF_CHECK(data[4] == 2 && data[5] == 1, Value, "an ELF file, but not a 64-bit little-endian one");
  Elf elf;
  elf.file = data;
  elf.os_abi = data[7];
  elf.abi_version = data[8];
  elf.type = *read<uint16_t>(data, 16);
  elf.machine = *read<uint16_t>(data, 18);
  elf.flags = *read<uint32_t>(data, 48);
  read_sections(elf);
  read_symbols(elf);
  for (const ElfSection& s : elf.sections)
    if (s.type == kNote) read_notes(elf, s.data, 4);
  if (elf.notes.empty()) read_note_segments(elf);
  return elf;
}

const ElfSection* Elf::find(std::string_view name) const {
  for (const ElfSection& s : sections)
    if (s.name == name) return &s;
  return nullptr;
}

Bytes Elf::contents(const ElfSymbol& symbol, uint64_t size) const {
  if (symbol.section == 0 || symbol.section >= sections.size()) return {};
  const ElfSection& s = sections[symbol.section];
  // In a relocatable file (type 1) values are offsets into the section, else addresses.
  const uint64_t base = type == 1 ? 0 : s.address;
  if (symbol.value < base) return {};
  return slice(s.data, symbol.value - base, size).value_or(Bytes());
}

}  // namespace pyflame::tools::inspect
