// LLVM's disassemblers are made for code of compilers, and some versions crash on other bytes, but the input is
// untrusted. So they run in a child process: a crash costs one instruction, not the program.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tools/inspect/disasm.h"

namespace pyflame::tools::inspect {

// Decodes single instructions; runs in the child.
class Decoder {
 public:
  virtual ~Decoder() = default;
  // The size of the instruction at the start of `code`, and its text, which is valid until the next call; 0: not an
  // instruction.
  virtual size_t one(uint64_t address, Bytes code, std::string_view& text) = 0;
};

// `make` runs in the child, a fork of this process. nullptr if no process can be made or `make` returns nothing.
std::unique_ptr<Disassembler> disassembler_in_child(std::function<std::unique_ptr<Decoder>()> make);

// Runs a program without a shell and passes its output line by line; its stderr is dropped. True: it ended with status
// 0.
bool run_lines(const std::vector<std::string>& command, const std::function<void(std::string_view)>& line);

}  // namespace pyflame::tools::inspect
