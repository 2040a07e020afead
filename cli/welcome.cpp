// `pyflame` without a command: three things that are worth trying on this machine.
#include <fmt/core.h>

#include <filesystem>
#include <string>
#include <vector>

#include "commands.h"
#include "output.h"
#include "pyflame/runtime/device.h"

namespace pyflame::apps::cli {

namespace {

namespace fs = std::filesystem;

// A model in the current folder: a GGUF file, or a folder with weights and their config.json. Empty: none.
std::string model_here() {
  std::error_code error;
  std::string found;
  for (fs::directory_iterator it(".", error), end; !error && it != end; it.increment(error)) {
    const fs::path& path = it->path();
    std::error_code ignored;
    const bool gguf = path.extension() == ".gguf" && it->is_regular_file(ignored);
    const bool folder = it->is_directory(ignored) && fs::is_regular_file(path / "config.json", ignored) &&
                        (fs::is_regular_file(path / "model.safetensors", ignored) ||
                         fs::is_regular_file(path / "model.safetensors.index.json", ignored));
    const std::string name = path.filename().string();
    if ((gguf || folder) && (found.empty() || name < found)) found = name;  // the same one each time
  }
  return found;
}

// As a word of a shell.
std::string quoted(const std::string& name) {
  if (name.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._+-") == std::string::npos)
    return "./" + name;
  std::string out = "'./";
  for (const char c : name) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

struct Idea {
  std::string command, reason;
};

std::vector<Idea> ideas(DeviceType gpu, const std::string& model) {
  std::vector<Idea> out;
  const bool has_gpu = gpu != DeviceType::cpu;
  const std::string device = gpu == DeviceType::rocm ? "rocm" : gpu == DeviceType::cuda ? "cuda" : "cpu";
  if (!model.empty())
    out.push_back({fmt::format("pyflame chat {}", quoted(model)), "talk with the model in this folder"});
  out.push_back({"pyflame doctor", has_gpu ? "what is wrong or slow in the settings of this machine"
                                           : "why no GPU is used, and whether there is one"});
  if (!model.empty())
    out.push_back({fmt::format("pyflame fit {}", quoted(model)), "whether the model fits the memory"});
  if (model.empty())
    out.push_back({fmt::format("pyflame bench memory --device {}", device),
                   fmt::format("how fast the memory of this {} is", has_gpu ? "GPU" : "machine")});
  if (out.size() < 3) out.push_back({"pyflame info", "versions, devices and libraries"});
  return out;
}

}  // namespace

int welcome() {
  const DeviceType gpu = device_available(DeviceType::rocm)   ? DeviceType::rocm
                         : device_available(DeviceType::cuda) ? DeviceType::cuda
                                                              : DeviceType::cpu;
  const std::string model = model_here();
  std::string text =
      gpu == DeviceType::cpu ? "No GPU is used here" : fmt::format("GPU: {}", device_info({gpu, 0}).name);
  text += model.empty() ? ".\n" : fmt::format(", and there is a model: {}.\n", model);
  text += "Worth trying:\n";
  for (const Idea& idea : ideas(gpu, model)) text += fmt::format("\n  {}\n      {}\n", idea.command, idea.reason);
  print(text + "\npyflame --help has all commands.\n");
  return kOk;
}

}  // namespace pyflame::apps::cli
