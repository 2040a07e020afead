// Code that is not ours reads bytes that nobody vouches for: LLVM's disassemblers are made for code that a compiler wrote, and some
// versions crash on other bytes. So they run in a child process, and what kills the child costs one instruction, not the program.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tools/inspect/disasm.h"

namespace pyflame::tools::inspect {

// Decodes single instructions; lives in the child.
class Decoder {
 public:
  virtual ~Decoder() = default;
  // Bytes of the instruction at the start of `code`, and its text, which stays valid until the next call; 0: it is none.
  virtual size_t one(uint64_t address, Bytes code, std::string_view& text) = 0;
};

// `make` runs in the child, a fork of this process. nullptr when no process can be made or `make` makes nothing.
std::unique_ptr<Disassembler> disassembler_in_child(std::function<std::unique_ptr<Decoder>()> make);

// Runs a program without a shell and gives its output line by line; what it says on stderr is dropped. True: it ended with status 0.
bool run_lines(const std::vector<std::string>& command, const std::function<void(std::string_view)>& line);

}  // namespace pyflame::tools::inspect
