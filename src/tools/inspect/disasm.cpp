#include "tools/inspect/disasm.h"

#include <dlfcn.h>
#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <mutex>
#include <set>

#include "pyflame/base/error.h"
#include "tools/base/text.h"
#include "tools/inspect/disasm_child.h"
#include "tools/inspect/disasm_find.h"

namespace pyflame::tools::inspect {

namespace fs = std::filesystem;

namespace {

bool is_blank(char c) { return c == ' ' || c == '\t'; }

// --- libraries

// A library whose symbols are kept apart from those of the rest of the program.
void* load(const std::string& path, std::string& why) {
  void* handle = dlopen(path.c_str(), RTLD_LAZY | RTLD_LOCAL);
  if (!handle) {
    const char* error = dlerror();
    why = error ? error : "it cannot be loaded";
  }
  return handle;
}

template <class F>
F* symbol(void* library, const char* name) {
  return reinterpret_cast<F*>(dlsym(library, name));
}

// Whether LLVM knows a gfx. For an unknown subtarget LLVM prints a warning and takes a default, so it must not be asked. The names of all processors are strings in the data of the library.
bool has_string(void* address_in_library, const std::string& text) {
  struct Query {
    uintptr_t inside;
    std::string_view text;
    bool found;
  } query{reinterpret_cast<uintptr_t>(address_in_library), {text.c_str(), text.size() + 1}, false};
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* data) {
        auto& q = *static_cast<Query*>(data);
        const auto spans = [&](const ElfW(Phdr) & p) {
          const uintptr_t begin = info->dlpi_addr + p.p_vaddr;
          return p.p_type == PT_LOAD && q.inside >= begin && q.inside < begin + p.p_memsz;
        };
        if (std::none_of(info->dlpi_phdr, info->dlpi_phdr + info->dlpi_phnum, spans)) return 0;
        // Constants are in segments that are not executable, unless an older linker made only one segment.
        for (const bool executed : {false, true}) {
          for (int i = 0; i < info->dlpi_phnum && !q.found; ++i) {
            const ElfW(Phdr)& p = info->dlpi_phdr[i];
            if (p.p_type != PT_LOAD || !(p.p_flags & PF_R) || ((p.p_flags & PF_X) != 0) != executed) continue;
            q.found = memmem(reinterpret_cast<const void*>(info->dlpi_addr + p.p_vaddr), p.p_filesz, q.text.data(),
                             q.text.size()) != nullptr;
          }
        }
        return 1;
      },
      &query);
  return query.found;
}

std::string features_of(const std::string& gfx, int wave) {
  const bool choice = gfx.starts_with("gfx1");  // gfx10 and later support both wave sizes
  if (!choice || (wave != 32 && wave != 64)) return "";
  return wave == 32 ? "+wavefrontsize32" : "+wavefrontsize64";
}

// The disassembler of LLVM's C API (llvm-c/Disassembler.h), which has not changed since LLVM 3.
class LlvmLibrary {
 public:
  bool load_from(const std::string& path, std::string& why) {
    void* library = load(path, why);
    if (!library) return false;
    for (const char* part : {"TargetInfo", "TargetMC", "Disassembler"}) {
      auto* init = symbol<void()>(library, fmt::format("LLVMInitializeAMDGPU{}", part).c_str());
      if (!init) {
        why = "it was built without the AMDGPU target";
        return false;
      }
      init();
    }
    create_ = symbol<Create>(library, "LLVMCreateDisasmCPUFeatures");
    read_ = symbol<Read>(library, "LLVMDisasmInstruction");
    dispose_ = symbol<void(void*)>(library, "LLVMDisasmDispose");
    if (!create_ || !read_ || !dispose_) {
      why = "it lacks the C API of the disassembler";
      return false;
    }
    unsigned major = 0, minor = 0, patch = 0;
    if (auto* version = symbol<void(unsigned*, unsigned*, unsigned*)>(library, "LLVMGetVersion")) {
      version(&major, &minor, &patch);
      name_ = fmt::format("LLVM {}.{}.{} ({})", major, minor, patch, path);
    } else {
      name_ = fmt::format("LLVM ({})", path);
    }
    return true;
  }
  bool knows(const std::string& gfx) const { return has_string(reinterpret_cast<void*>(read_), gfx); }
  const std::string& name() const { return name_; }

  std::unique_ptr<Decoder> decoder(const std::string& gfx, int wave) const {
    void* context =
        create_("amdgcn-amd-amdhsa", gfx.c_str(), features_of(gfx, wave).c_str(), nullptr, 0, nullptr, nullptr);
    return context ? std::make_unique<Context>(*this, context) : nullptr;
  }

 private:
  using Create = void*(const char*, const char*, const char*, void*, int, void*, void*);
  using Read = size_t(void*, uint8_t*, uint64_t, uint64_t, char*, size_t);

  class Context : public Decoder {
   public:
    Context(const LlvmLibrary& library, void* context) : library_(library), context_(context) {}
    ~Context() override { library_.dispose_(context_); }
    size_t one(uint64_t address, Bytes code, std::string_view& text) override {
      // The API takes a pointer to non-const bytes, but only reads them. No instruction is longer than 20 bytes.
      const size_t most = std::min<size_t>(code.size(), 32);
      const size_t size =
          library_.read_(context_, const_cast<uint8_t*>(code.data()), most, address, buffer_, sizeof buffer_);
      if (size) text = buffer_;
      return size;
    }

   private:
    const LlvmLibrary& library_;
    void* context_;
    char buffer_[512];
  };

  Create* create_ = nullptr;
  Read* read_ = nullptr;
  void (*dispose_)(void*) = nullptr;
  std::string name_;
};

// AMD's comgr (amd_comgr.h): part of every ROCm runtime and of the wheels of PyTorch for ROCm, with an LLVM inside. It has no option for the wave size, so instructions with lane masks are printed for the default size.
class ComgrLibrary {
 public:
  bool load_from(const std::string& path, std::string& why) {
    void* library = load(path, why);
    if (!library) return false;
    create_ = symbol<Create>(library, "amd_comgr_create_disassembly_info");
    read_ = symbol<Read>(library, "amd_comgr_disassemble_instruction");
    dispose_ = symbol<Dispose>(library, "amd_comgr_destroy_disassembly_info");
    if (!create_ || !read_ || !dispose_) {
      why = "it lacks the disassembler";
      return false;
    }
    size_t major = 0, minor = 0;
    if (auto* version = symbol<void(size_t*, size_t*)>(library, "amd_comgr_get_version")) version(&major, &minor);
    name_ = fmt::format("comgr {}.{} ({})", major, minor, path);
    return true;
  }
  bool knows(const std::string& gfx) const { return decoder(gfx) != nullptr; }
  const std::string& name() const { return name_; }

  std::unique_ptr<Decoder> decoder(const std::string& gfx) const {
    uint64_t info = 0;
    const std::string isa = "amdgcn-amd-amdhsa--" + gfx;
    if (create_(isa.c_str(), read_memory, print_instruction, print_address, &info) != 0) return nullptr;
    return std::make_unique<Context>(*this, info);
  }

 private:
  struct View {
    uint64_t address = 0;
    Bytes code;
    std::string text;
  };
  using Create = int(const char*, uint64_t (*)(uint64_t, char*, uint64_t, void*), void (*)(const char*, void*),
                     void (*)(uint64_t, void*), uint64_t*);
  using Read = int(uint64_t, uint64_t, void*, uint64_t*);
  using Dispose = int(uint64_t);

  static uint64_t read_memory(uint64_t from, char* to, uint64_t size, void* data) {
    const View& view = *static_cast<const View*>(data);
    if (from < view.address || from - view.address > view.code.size()) return 0;
    const uint64_t offset = from - view.address, n = std::min<uint64_t>(size, view.code.size() - offset);
    std::memcpy(to, view.code.data() + offset, n);
    return n;
  }
  static void print_instruction(const char* text, void* data) { static_cast<View*>(data)->text = text; }
  static void print_address(uint64_t, void*) {}

  class Context : public Decoder {
   public:
    Context(const ComgrLibrary& library, uint64_t info) : library_(library), info_(info) {}
    ~Context() override { library_.dispose_(info_); }
    size_t one(uint64_t address, Bytes code, std::string_view& text) override {
      view_.address = address;
      view_.code = code;
      view_.text.clear();
      uint64_t size = 0;
      if (library_.read_(info_, address, &view_, &size) != 0) return 0;
      text = view_.text;
      return size;
    }

   private:
    const ComgrLibrary& library_;
    uint64_t info_;
    View view_;
  };

  Create* create_ = nullptr;
  Read* read_ = nullptr;
  Dispose* dispose_ = nullptr;
  std::string name_;
};

// --- the tool

// A temporary file for the tool, which is removed at the end.
class TemporaryFile {
 public:
  explicit TemporaryFile(Bytes data) {
    path_ = (fs::temp_directory_path() / "pyflame-inspect-XXXXXX").native();
    const int fd = mkstemp(path_.data());
    PF_CHECK(fd >= 0, OS, "inspect: no temporary file can be made in {}; hint: set TMPDIR",
             fs::temp_directory_path().native());
    for (size_t done = 0; done < data.size();) {
      const ssize_t n = write(fd, data.data() + done, data.size() - done);
      if (n <= 0) break;
      done += static_cast<size_t>(n);
    }
    close(fd);
  }
  ~TemporaryFile() { unlink(path_.c_str()); }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

struct ParsedLine {
  uint64_t address = 0;
  uint32_t size = 0;  // 0: not said
  std::string_view text;
};

std::optional<ParsedLine> parse_line(std::string_view line) {
  const auto hex = [](std::string_view s, uint64_t& value) {
    s = trim(s);
    const auto [end, error] = std::from_chars(s.data(), s.data() + s.size(), value, 16);
    return error == std::errc() && end == s.data() + s.size() && !s.empty();
  };
  ParsedLine parsed;
  const size_t comment = line.find("//");
  if (comment != std::string_view::npos) {
    // "<text> // 000000001C08: D6460000 0401100F <symbol+0x10>"
    std::string_view rest = line.substr(comment + 2);
    const size_t colon = rest.find(':');
    if (colon != std::string_view::npos && hex(rest.substr(0, colon), parsed.address)) {
      parsed.text = trim(line.substr(0, comment));
      rest = trim(rest.substr(colon + 1));
      for (uint64_t word = 0; !rest.empty();) {
        const size_t blank = rest.find(' ');
        if (!hex(rest.substr(0, blank), word)) break;
        parsed.size += 4;
        rest = blank == std::string_view::npos ? std::string_view() : trim(rest.substr(blank + 1));
      }
      return parsed.text.empty() ? std::nullopt : std::optional(parsed);
    }
    line = line.substr(0, comment);
  }
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos || !hex(line.substr(0, colon), parsed.address)) return std::nullopt;
  parsed.text = trim(line.substr(colon + 1));
  return parsed.text.empty() ? std::nullopt : std::optional(parsed);
}

}  // namespace

// --- listings

void Listing::add(uint64_t address, uint32_t size, std::string_view text) {
  text = trim(text.substr(0, text.find("//")));
  if (text.size() > 60'000) text = {};
  size_t end = 0;
  while (end < text.size() && !is_blank(text[end])) ++end;
  size_t rest = end;
  while (rest < text.size() && is_blank(text[rest])) ++rest;
  lines_.push_back({address, size, static_cast<uint32_t>(text_.size()), static_cast<uint16_t>(end),
                    static_cast<uint16_t>(text.size() - rest), static_cast<uint16_t>(rest - end)});
  text_ += text;
}

void Listing::clear() {
  text_.clear();
  lines_.clear();
}

Listing parse_listing(std::string_view text) {
  std::vector<ParsedLine> parsed;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    if (auto line = parse_line(text.substr(0, end))) parsed.push_back(*line);
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
  }
  Listing out;
  for (size_t i = 0; i < parsed.size(); ++i) {
    uint32_t size = parsed[i].size;
    if (size == 0) {
      const uint64_t next = i + 1 < parsed.size() ? parsed[i + 1].address : parsed[i].address + 4;
      size = next > parsed[i].address && next - parsed[i].address <= 32
                 ? static_cast<uint32_t>(next - parsed[i].address)
                 : 4;
    }
    out.add(parsed[i].address, size, parsed[i].text);
  }
  return out;
}

// --- the choice of a disassembler

struct Disassemblers::State {
  // A loaded library is never unloaded, because LLVM registers objects that must stay.
  struct Loaded {
    bool tried = false, usable = false;
    std::string why;
    LlvmLibrary llvm;
    ComgrLibrary comgr;
  };
  mutable std::mutex mutex;
  std::vector<Loaded> loaded;
  std::map<std::string, int> chosen;  // gfx -> index in found_, -1: none
  std::map<std::string, std::string> chosen_tool;
  std::set<std::string> used;
  std::map<std::string, std::vector<std::string>> rejected;  // gfx -> the reasons, without repetitions
};

Disassemblers::Disassemblers(const std::string& path)
    : found_(find_disassemblers(path)), state_(std::make_unique<State>()) {
  PF_CHECK(
      path.empty() || !found_.empty(), Value,
      "inspect: no disassembler in {}; expected a folder of LLVM or ROCm, libLLVM.so, libamd_comgr.so or llvm-objdump",
      path);
  state_->loaded.resize(found_.size());
}

Disassemblers::~Disassemblers() = default;

int Disassemblers::choose(const std::string& gfx) {
  auto [it, fresh] = state_->chosen.try_emplace(gfx, -1);
  for (size_t i = 0; fresh && i < found_.size() && it->second < 0; ++i) {
    if (found_[i].kind == DisassemblerKind::Kind::tool) continue;
    const bool comgr = found_[i].kind == DisassemblerKind::Kind::comgr;
    State::Loaded& l = state_->loaded[i];
    if (!l.tried) {
      l.tried = true;
      l.usable = comgr ? l.comgr.load_from(found_[i].path, l.why) : l.llvm.load_from(found_[i].path, l.why);
    }
    if (!l.usable) state_->rejected[gfx].push_back(fmt::format("{}: {}", found_[i].path, l.why));
    else if (comgr ? l.comgr.knows(gfx) : l.llvm.knows(gfx)) it->second = static_cast<int>(i);
    else
      state_->rejected[gfx].push_back(fmt::format("{} does not know {}", comgr ? l.comgr.name() : l.llvm.name(), gfx));
  }
  return it->second;
}

bool Disassemblers::knows(const std::string& gfx) {
  const std::lock_guard lock(state_->mutex);
  return choose(gfx) >= 0;
}

std::unique_ptr<Disassembler> Disassemblers::open(const std::string& gfx, int wave) {
  const std::lock_guard lock(state_->mutex);
  const int chosen = choose(gfx);
  if (chosen < 0) return nullptr;
  const size_t i = static_cast<size_t>(chosen);
  const bool comgr = found_[i].kind == DisassemblerKind::Kind::comgr;
  const State::Loaded& l = state_->loaded[i];
  state_->used.insert(comgr ? l.comgr.name() : l.llvm.name());
  return disassembler_in_child(
      [&l, comgr, gfx, wave] { return comgr ? l.comgr.decoder(gfx) : l.llvm.decoder(gfx, wave); });
}

bool Disassemblers::run_tool(const std::string& gfx, int wave, Bytes elf,
                             const std::function<void(uint64_t, uint32_t, std::string_view)>& line) {
  if (elf.empty() || std::none_of(found_.begin(), found_.end(),
                                  [](const DisassemblerKind& k) { return k.kind == DisassemblerKind::Kind::tool; }))
    return false;
  const TemporaryFile file(elf);
  std::string only;
  {
    const std::lock_guard lock(state_->mutex);
    if (const auto it = state_->chosen_tool.find(gfx); it != state_->chosen_tool.end()) only = it->second;
  }
  for (const DisassemblerKind& k : found_) {
    if (k.kind != DisassemblerKind::Kind::tool || (!only.empty() && k.path != only)) continue;
    std::vector<std::string> command = {k.path, "-d"};
    if (const std::string features = features_of(gfx, wave); !features.empty())
      command.push_back("--mattr=" + features);
    command.push_back(file.path());
    bool any = false;
    const bool ended = run_lines(command, [&](std::string_view text) {
      if (const auto parsed = parse_line(text)) {
        any = true;
        line(parsed->address, parsed->size ? parsed->size : 4, parsed->text);
      }
    });
    const std::lock_guard lock(state_->mutex);
    if (any && ended) {
      state_->chosen_tool[gfx] = k.path;
      state_->used.insert(fmt::format("llvm-objdump ({})", k.path));
      return true;
    }
    const std::string why = fmt::format("{} does not read code of {}", k.path, gfx);
    auto& reasons = state_->rejected[gfx];
    if (std::find(reasons.begin(), reasons.end(), why) == reasons.end()) reasons.push_back(why);
    if (any) return false;  // it failed in the middle: its output so far is used
  }
  return false;
}

std::vector<std::string> Disassemblers::used() const {
  const std::lock_guard lock(state_->mutex);
  return {state_->used.begin(), state_->used.end()};
}

std::string Disassemblers::missing(const std::string& gfx) const {
  const std::lock_guard lock(state_->mutex);
  std::string text = fmt::format("The machine code of {} was not read: ", gfx);
  const auto it = state_->rejected.find(gfx);
  if (it == state_->rejected.end() || it->second.empty()) {
    text += "no libLLVM, comgr or llvm-objdump was found";
  } else {
    for (size_t i = 0; i < it->second.size() && i < 4; ++i) text += (i ? "; " : "") + it->second[i];
  }
  return text + ". Install ROCm's LLVM or a newer one (apt install llvm), or pass its path with --llvm PATH.";
}

}  // namespace pyflame::tools::inspect
