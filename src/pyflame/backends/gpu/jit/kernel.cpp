// Makes kernels from text and launches them.
#include "pyflame/backends/gpu/jit/kernel.h"

#include <cctype>
#include <utility>

#include "pyflame/base/embedded.h"
#include "pyflame/base/error.h"
#include "pyflame/ops/op.h"

namespace pyflame::gpu {

const char* stored_type(DType d) {
  switch (d) {
    case DType::float32: return "float";
    case DType::float64: return "double";
    case DType::float16: return "pf::f16";
    case DType::bfloat16: return "pf::bf16";
    case DType::int64: return "pf::i64";
    case DType::int32: return "pf::i32";
    case DType::int16: return "pf::i16";
    case DType::int8: return "pf::i8";
    case DType::uint8: return "pf::u8";
    case DType::bool_: return "pf::bool8";
    default: break;
  }
  return "?";
}

namespace {

constexpr std::string_view kEntry = "PF_KERNEL(";
// What a text with Start::after says, to its Kernel.
constexpr std::string_view kStartsAfter = " /* starts after the end of the kernel in front */";

std::string word_at(std::string_view text, size_t at) {
  const auto of_word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; };
  size_t end = at;
  while (end < text.size() && of_word(text[end])) ++end;
  return std::string(text.substr(at, end - at));
}

// The name in the last statement "pf::function<...>(...);".
std::string last_call(std::string_view body) {
  constexpr std::string_view kSpace = "pf::";
  for (size_t at = body.rfind(kSpace); at != body.npos && at > 0; at = body.rfind(kSpace, at - 1)) {
    const size_t before = body.find_last_not_of(" \n", at - 1);
    if (before != body.npos && (body[before] == '{' || body[before] == ';')) return word_at(body, at + kSpace.size());
  }
  return "kernel";
}

// Whether a text calls one of the large functions, which other kernels need not compile.
bool calls_special(std::string_view text) {
  for (const OpInfo& op : kOps)
    if (op.gpu_cost >= kLarge && text.find(fmt::format("pf::{}<", op.name)) != text.npos) return true;
  return false;
}

// Whether a text rounds to 8-bit floats, which the GPU may have instructions for.
bool rounds_to_float8(std::string_view text) { return text.find("pf::to_float8_") != text.npos; }

std::string entry_of(std::string_view source) { return word_at(source, source.find(") ", source.rfind(kEntry)) + 2); }

}  // namespace

std::string kernel_source(std::initializer_list<const char*> files, unsigned threads, const std::string& body,
                          const std::string& before, std::string name, Start start) {
  std::string source;
  for (const char* file :
       {"device/launch.h", "device/scalar.h", "device/wave.h", "device/vec.h", "device/fault.h", "device/view.h"})
    source += fmt::format("{}{}\"\n", kSourceLine, file);
  for (const std::string file : files) {
    // The header of its arguments, which the host includes as well.
    const std::string arguments = file.substr(0, file.size() - 2) + "_args.h";
    if (!device_source("kernels/" + arguments).empty()) source += fmt::format("{}{}\"\n", kSourceLine, arguments);
    source += fmt::format("{}{}\"\n", kSourceLine, file);
  }
  if (rounds_to_float8(body)) source += fmt::format("{}device/float8.h\"\n", kSourceLine);
  if (calls_special(body) || calls_special(before))
    for (const char* file : {"device/special_fits.h", "device/special.h"})
      source += fmt::format("{}{}\"\n", kSourceLine, file);
  if (name.empty()) name = last_call(body);
  const size_t begin = body.find('{') + 1;  // of the statements
  const std::string_view wait = start == Start::awaits  ? " pf::await_earlier_kernels();"
                                : start == Start::after ? kStartsAfter
                                                        : "";
  return source + fmt::format("\n{}\n{}{}) pf_{}{}{}{}\n", before, kEntry, threads, name, body.substr(0, begin), wait,
                              body.substr(begin));
}

bool starts_after(std::string_view source) { return source.find(kStartsAfter) != source.npos; }

namespace {
thread_local KernelTexts* texts = nullptr;
}
KernelTexts::KernelTexts() : outer_(std::exchange(texts, this)) {}
KernelTexts::~KernelTexts() { texts = outer_; }

Kernel::Kernel(DeviceType type, unsigned threads, std::string source, unsigned shared_bytes)
    : type_(type),
      threads_(threads),
      shared_bytes_(shared_bytes),
      early_(!starts_after(source)),
      source_(std::move(source)) {
  if (texts) texts->all_.push_back(whole_source(source_));
  if (count_devices(type) == 0) return;
  arch_ = arch_of(type, 0).name;  // the devices of a machine usually have the same one
  compilation_ = compile_later(type_, arch_, source_);
}

bool Kernel::ready(int device_index) const {
  return device_ == device_index || (compilation_ && compilation_->ready());
}

void Kernel::run(int device_index, std::array<unsigned, 3> grid, void** parameters, std::span<const uint32_t> sizes) {
  GpuDevice& d = device(type_, device_index);
  if (device_ != device_index) {
    if (!compilation_ || arch_ != d.arch().name) {
      arch_ = d.arch().name;
      compilation_ = compile_later(type_, arch_, source_);
    }
    try {
      function_ = compilation_->on(d, entry_of(source_).c_str());
    } catch (const Error&) {
      compilation_.reset();  // the next run tries again
      throw;
    }
    d.allow_shared(function_, shared_bytes_);
    device_ = device_index;
  }
  d.launch({function_, grid, threads_, shared_bytes_, parameters, sizes, early_});
}

}  // namespace pyflame::gpu
