// Disassembles AMDGPU machine code with any LLVM of the machine: libLLVM (its stable C API), AMD's comgr library, or
// the tool llvm-objdump, in this order and newest first. None is linked; they are loaded when code is to be read, so
// the rest works without them. The choice is made for each architecture, because an old LLVM does not know new GPUs.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tools/inspect/bytes.h"

namespace pyflame::tools::inspect {

// Instructions in the order of their addresses. Views into it stay valid until the next add() or clear().
class Listing {
 public:
  struct Line {
    uint64_t address = 0;
    uint32_t size = 0;  // bytes of code
    uint32_t text = 0;  // where its text starts
    uint16_t mnemonic = 0, operands = 0, gap = 0;
  };
  // `text` as a disassembler prints it: blanks, mnemonic, blanks, operands, and possibly a comment. Empty text means
  // bytes that are not an instruction.
  void add(uint64_t address, uint32_t size, std::string_view text);
  void clear();
  size_t size() const { return lines_.size(); }
  uint64_t address(size_t i) const { return lines_[i].address; }
  uint32_t bytes(size_t i) const { return lines_[i].size; }
  std::string_view mnemonic(size_t i) const { return {text_.data() + lines_[i].text, lines_[i].mnemonic}; }
  std::string_view operands(size_t i) const {
    return {text_.data() + lines_[i].text + lines_[i].mnemonic + lines_[i].gap, lines_[i].operands};
  }

 private:
  std::string text_;
  std::vector<Line> lines_;
};

// Lines "1a00: v_add_f32 v0, v1, v2", or llvm-objdump's own ("v_add_f32 v0, v1, v2 // 000000001A00: 02000501"); other
// lines are skipped. If a line has no code words, an instruction ends where the next one begins (the last one has 4
// bytes).
Listing parse_listing(std::string_view text);

// One for each thread.
class Disassembler {
 public:
  virtual ~Disassembler() = default;
  // Appends the instructions of `code`, which is loaded at `address`. Bytes that are not instructions are added four at
  // a time, without text.
  virtual void read(uint64_t address, Bytes code, Listing& out) = 0;
};

// A disassembler that was found on the machine.
struct DisassemblerKind {
  enum class Kind { library, comgr, tool };
  Kind kind = Kind::library;
  std::string path;
};

class Disassemblers {
 public:
  // `path`: use only this (a file, or a folder of an LLVM or ROCm installation); empty: search. Error(Value) if a given
  // path has no disassembler.
  explicit Disassemblers(const std::string& path = "");
  ~Disassemblers();

  // Whether a library knows an architecture ("gfx942").
  bool knows(const std::string& gfx);
  // For one architecture and wave size (0: its default). nullptr when no library knows it; then there may be a tool.
  // Thread-safe; what it returns is for one thread.
  std::unique_ptr<Disassembler> open(const std::string& gfx, int wave);
  // Runs an llvm-objdump on a whole code object and calls `line` for each instruction. False if there is no tool, or if
  // none could read the object.
  bool run_tool(const std::string& gfx, int wave, Bytes elf,
                const std::function<void(uint64_t address, uint32_t size, std::string_view text)>& line);

  // What was used so far: "LLVM 22.1.8 (/usr/lib/…)".
  std::vector<std::string> used() const;
  // One sentence on why nothing can read this architecture, and what to install; for use after open() and run_tool()
  // have failed.
  std::string missing(const std::string& gfx) const;
  const std::vector<DisassemblerKind>& found() const { return found_; }

 private:
  struct State;
  int choose(const std::string& gfx);  // index into found_, -1: none; the caller has the lock
  std::vector<DisassemblerKind> found_;
  std::unique_ptr<State> state_;
};

}  // namespace pyflame::tools::inspect
