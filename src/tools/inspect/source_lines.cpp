#include "tools/inspect/source_lines.h"

#include <algorithm>

#include "pyflame/base/error.h"
#include "tools/inspect/elf.h"

namespace pyflame::tools::inspect {

namespace {

// A table announces its number of entries, which is wrong in a hostile file.
constexpr size_t kMostRows = 4'000'000, kMostSourceFiles = 200'000;

// Reads forward. After the first read beyond the end, it stays at the end and returns zeros.
class Cursor {
 public:
  explicit Cursor(Bytes data) : data_(data) {}
  bool ok() const { return ok_; }
  bool done() const { return !ok_ || at_ >= data_.size(); }
  size_t position() const { return at_; }

  uint64_t fixed(int bytes) {
    const auto part = slice(data_, at_, static_cast<uint64_t>(bytes));
    if (!part) return fail();
    uint64_t value = 0;
    for (int i = 0; i < bytes && i < 8; ++i) value |= uint64_t{(*part)[static_cast<size_t>(i)]} << (8 * i);
    at_ += static_cast<size_t>(bytes);
    return value;
  }
  uint64_t uleb() {
    uint64_t value = 0;
    for (int shift = 0; shift < 70; shift += 7) {
      const uint64_t byte = fixed(1);
      if (!ok_) return 0;
      if (shift < 64) value |= (byte & 0x7f) << shift;
      if (!(byte & 0x80)) return value;
    }
    return fail();
  }
  int64_t sleb() {
    uint64_t value = 0;
    for (int shift = 0; shift < 70; shift += 7) {
      const uint64_t byte = fixed(1);
      if (!ok_) return 0;
      if (shift < 64) value |= (byte & 0x7f) << shift;
      if (byte & 0x80) continue;
      if ((byte & 0x40) && shift + 7 < 64) value |= ~uint64_t{0} << (shift + 7);
      return static_cast<int64_t>(value);
    }
    fail();
    return 0;
  }
  std::string_view text() {
    const auto s = read_text(data_, at_);
    if (!s) {
      fail();
      return {};
    }
    at_ += s->size() + 1;
    return *s;
  }
  Bytes take(uint64_t size) {
    const auto part = slice(data_, at_, size);
    if (!part) {
      fail();
      return {};
    }
    at_ += static_cast<size_t>(size);
    return *part;
  }

 private:
  uint64_t fail() {
    ok_ = false;
    at_ = data_.size();
    return 0;
  }
  Bytes data_;
  size_t at_ = 0;
  bool ok_ = true;
};

}  // namespace

// Reads the units of .debug_line one after the other. An invalid unit is skipped by its length.
class LineReader {
 public:
  LineReader(SourceLines& out, Bytes line_strings, Bytes strings)
      : out_(out), line_strings_(line_strings), strings_(strings) {}

  void section(Bytes line) {
    Cursor cursor(line);
    while (!cursor.done() && out_.rows_.size() < kMostRows) {
      wide_ = false;
      uint64_t length = cursor.fixed(4);
      if (length == 0xffffffff) {
        wide_ = true;
        length = cursor.fixed(8);
      }
      const Bytes body = cursor.take(length);
      if (!cursor.ok()) break;
      unit(body);
    }
    std::stable_sort(out_.rows_.begin(), out_.rows_.end(), [](const SourceLines::Row& a, const SourceLines::Row& b) {
      return a.address != b.address ? a.address < b.address : a.end && !b.end;
    });
  }

 private:
  struct Header {
    int version = 0, step = 1, line_base = 0, line_range = 1, opcode_base = 1;
    std::vector<uint8_t> operands;  // the number of operands of standard opcodes
    std::vector<uint32_t> files;    // file number in the unit -> index in files_
  };

  void unit(Bytes body) {
    Cursor c(body);
    Header h;
    h.version = static_cast<int>(c.fixed(2));
    if (h.version < 2 || h.version > 5) return;
    if (h.version >= 5) c.fixed(2);  // sizes of addresses and segment selectors
    const uint64_t header_length = c.fixed(wide_ ? 8 : 4);
    const uint64_t program = c.position() + header_length;
    h.step = static_cast<int>(c.fixed(1));
    if (h.version >= 4) c.fixed(1);  // operations of a VLIW instruction
    c.fixed(1);                      // is_stmt
    h.line_base = static_cast<int8_t>(c.fixed(1));
    h.line_range = static_cast<int>(c.fixed(1));
    h.opcode_base = static_cast<int>(c.fixed(1));
    if (!c.ok() || h.line_range == 0 || h.opcode_base == 0 || header_length > body.size()) return;
    for (int i = 1; i < h.opcode_base; ++i) h.operands.push_back(static_cast<uint8_t>(c.fixed(1)));
    if (h.version >= 5) {
      entries(c, nullptr);  // folders
      entries(c, &h.files);
    } else {
      while (c.ok() && !c.text().empty()) {
      }
      h.files.push_back(add_file({}));  // indices begin at 1
      for (std::string_view name; c.ok() && !(name = c.text()).empty();) {
        h.files.push_back(add_file(name));
        for (int i = 0; i < 3; ++i) c.uleb();
        if (h.files.size() > kMostSourceFiles) return;
      }
    }
    const auto code = slice(body, program, body.size() - std::min<uint64_t>(program, body.size()));
    if (!c.ok() || !code) return;
    run(*code, h);
  }

  uint32_t add_file(std::string_view name) {
    if (out_.files_.empty() || out_.files_.back() != name) {
      if (out_.files_.size() >= kMostSourceFiles) return 0;
      out_.files_.emplace_back(name.substr(0, 4096));
    }
    return static_cast<uint32_t>(out_.files_.size() - 1);
  }

  std::string_view string_at(Bytes section, uint64_t offset) {
    const auto s = read_text(section, offset);
    return s ? *s : std::string_view();
  }

  // The value of a form in a table of version 5, or its text.
  std::string_view form(Cursor& c, uint64_t kind) {
    switch (kind) {
      case 0x08: return c.text();                                          // string
      case 0x1f: return string_at(line_strings_, c.fixed(wide_ ? 8 : 4));  // line_strp
      case 0x0e: return string_at(strings_, c.fixed(wide_ ? 8 : 4));       // strp
      case 0x0b:
      case 0x25: c.fixed(1); break;  // data1, strx1
      case 0x05:
      case 0x26: c.fixed(2); break;  // data2, strx2
      case 0x27: c.fixed(3); break;  // strx3
      case 0x06:
      case 0x28: c.fixed(4); break;  // data4, strx4
      case 0x07: c.fixed(8); break;  // data8
      case 0x1e: c.take(16); break;  // data16
      case 0x0f:
      case 0x1a: c.uleb(); break;            // udata, strx
      case 0x09: c.take(c.uleb()); break;    // block
      default: c.take(~uint64_t{0}); break;  // unknown, so its size is unknown too and the unit ends
    }
    return {};
  }

  void entries(Cursor& c, std::vector<uint32_t>* files) {
    std::vector<std::pair<uint64_t, uint64_t>> format;
    for (uint64_t n = c.fixed(1); n > 0 && c.ok(); --n) {
      const uint64_t content = c.uleb();
      format.emplace_back(content, c.uleb());
    }
    const uint64_t count = c.uleb();
    if (format.empty()) return;
    for (uint64_t i = 0; i < count && c.ok() && i < kMostSourceFiles; ++i) {
      std::string_view name;
      for (const auto& [content, kind] : format) {
        const std::string_view text = form(c, kind);
        if (content == 1) name = text;
      }
      if (files) files->push_back(add_file(name));
    }
  }

  // The state machine of a line program.
  struct State {
    uint64_t address = 0, file = 1;
    int64_t line = 1;
  };

  void row(const Header& h, const State& s, bool end) {
    if (out_.rows_.size() >= kMostRows) return;
    SourceLines::Row r;
    r.address = s.address;
    r.file = s.file < h.files.size() ? h.files[static_cast<size_t>(s.file)] : 0;
    r.line = s.file < h.files.size() && s.line > 0 && s.line < INT32_MAX ? static_cast<uint32_t>(s.line) : 0;
    r.end = end;
    out_.rows_.push_back(r);
  }

  // Removed functions remain in the table, at address 0 or at the maximum address.
  void end_sequence(size_t first) {
    if (first >= out_.rows_.size()) return;
    const uint64_t start = out_.rows_[first].address;
    if (start == 0 || start >= ~uint64_t{0} - 1) out_.rows_.resize(first);
  }

  void extended(Cursor& c, const Header& h, State& s, size_t& first) {
    const Bytes body = c.take(c.uleb());
    if (body.empty()) return;
    Cursor e(body.subspan(1));
    if (body[0] == 1) {  // end_sequence
      row(h, s, true);
      end_sequence(first);
      first = out_.rows_.size();
      s = {};
    } else if (body[0] == 2) {  // set_address
      s.address = e.fixed(static_cast<int>(std::min<size_t>(8, body.size() - 1)));
    }
  }

  // Line numbers of a damaged program may overflow, so they wrap.
  static int64_t advanced(int64_t line, int64_t by) {
    return static_cast<int64_t>(static_cast<uint64_t>(line) + static_cast<uint64_t>(by));
  }

  void run(Bytes code, const Header& h) {
    Cursor c(code);
    State s;
    size_t first = out_.rows_.size();
    const uint64_t step = static_cast<uint64_t>(h.step);
    const auto special = [&](int opcode) {
      return static_cast<uint64_t>((opcode - h.opcode_base) / h.line_range) * step;
    };
    while (!c.done() && out_.rows_.size() < kMostRows) {
      const int opcode = static_cast<int>(c.fixed(1));
      if (opcode >= h.opcode_base) {
        s.address += special(opcode);
        s.line = advanced(s.line, h.line_base + (opcode - h.opcode_base) % h.line_range);
        row(h, s, false);
        continue;
      }
      switch (opcode) {
        case 0: extended(c, h, s, first); break;
        case 1: row(h, s, false); break;
        case 2: s.address += c.uleb() * step; break;
        case 3: s.line = advanced(s.line, c.sleb()); break;
        case 4: s.file = c.uleb(); break;
        case 8: s.address += special(255); break;
        case 9: s.address += c.fixed(2); break;
        case 6:
        case 7:
        case 10:
        case 11: break;
        default:  // column, instruction set and unknown opcodes: the header has the number of operands to skip
          for (int n = h.operands[static_cast<size_t>(opcode - 1)]; n > 0; --n) c.uleb();
      }
    }
    // A sequence without an end does not tell where its last line ends.
    if (first < out_.rows_.size()) out_.rows_.resize(first);
  }

  SourceLines& out_;
  Bytes line_strings_, strings_;
  bool wide_ = false;  // DWARF's 64-bit form
};

SourceLines SourceLines::of_sections(Bytes line, Bytes line_strings, Bytes strings) {
  SourceLines lines;
  LineReader(lines, line_strings, strings).section(line);
  return lines;
}

SourceLines SourceLines::of_elf(Bytes elf) {
  if (!is_elf(elf)) return {};
  try {
    const Elf parsed = parse_elf(elf);
    const auto data = [&](std::string_view name) {
      const ElfSection* s = parsed.find(name);
      constexpr uint64_t kCompressed = 0x800;
      return s && !(s->flags & kCompressed) ? s->data : Bytes();
    };
    return of_sections(data(".debug_line"), data(".debug_line_str"), data(".debug_str"));
  } catch (const Error&) {
    return {};  // the reader of the object reports what is wrong
  }
}

std::string SourceLines::find(uint64_t address) const {
  auto it =
      std::upper_bound(rows_.begin(), rows_.end(), address, [](uint64_t a, const Row& r) { return a < r.address; });
  // Line 0 marks code without a line. The line before it is the nearest.
  for (int back = 0; it != rows_.begin() && back < 64; ++back) {
    --it;
    if (it->end) return {};
    if (it->line > 0 && it->file < files_.size() && !files_[it->file].empty())
      return files_[it->file] + ":" + std::to_string(it->line);
  }
  return {};
}

}  // namespace pyflame::tools::inspect
