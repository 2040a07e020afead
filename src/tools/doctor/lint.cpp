// Runs the lint (doctor/lint) in a Python interpreter and reads its findings.
#include "tools/doctor/lint.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "pyflame/base/error.h"
#include "tools/doctor/embedded.h"

extern char** environ;

namespace pyflame::tools::doctor {

namespace {

using Json = nlohmann::json;
constexpr size_t kMostOutput = 16 << 20;

struct Finished {
  std::string output;
  int status = 0;
};

// Runs a program from PATH and reads its output. False if there is no such program.
bool run(const char* program, const std::vector<std::string>& arguments, Finished& out) {
  std::vector<char*> argv;
  for (const std::string& a : arguments) argv.push_back(const_cast<char*>(a.c_str()));
  argv.push_back(nullptr);
  int ends[2];
  PF_CHECK(pipe2(ends, O_CLOEXEC) == 0, OS, "doctor lint: no pipe; {}", std::strerror(errno));
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  pid_t child = 0;
  const int error = posix_spawnp(&child, program, &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  if (error != 0) {
    close(ends[0]);
    return false;
  }
  char buffer[65536];
  while (true) {
    const ssize_t n = read(ends[0], buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0 || out.output.size() > kMostOutput) break;
    out.output.append(buffer, static_cast<size_t>(n));
  }
  close(ends[0]);
  while (waitpid(child, &out.status, 0) < 0 && errno == EINTR) {
  }
  return true;
}

std::string text_at(const Json& j, const char* key) {
  const auto it = j.find(key);
  return it != j.end() && it->is_string() ? it->get<std::string>() : "";
}

}  // namespace

Json lint(const std::string& file) {
  std::error_code ec;
  PF_CHECK(std::filesystem::exists(file, ec), OS, "doctor lint: the file does not exist; got '{}'", file);
  const std::string source(embedded("lint.py"));
  Finished python;
  bool found = false;
  for (const char* program : {"python3", "python"}) {
    // A file named -x must not become an option.
    const std::string path = file.starts_with("-") ? "./" + file : file;
    if ((found = run(program, {program, "-I", "-c", source, path}, python))) break;
  }
  PF_CHECK(
      found, OS,
      "doctor lint: python3 was not found in PATH; it is needed to parse the file; hint: install Python 3.9 or later");
  const Json report = Json::parse(python.output, nullptr, false);
  PF_CHECK(report.is_object() && report.contains("findings"), Runtime,
           "doctor lint: Python returned no report about '{}' (status {}); hint: check that python3 is at least 3.9",
           file, WIFEXITED(python.status) ? WEXITSTATUS(python.status) : -1);
  Json out = {{"lint", Json::array()},
              {"env", Json::object()},
              {"env_lines", Json::object()},
              {"env_source", file},
              {"failed_probes", Json::array()}};
  const auto where = [&](const Json& j) { return fmt::format("{}:{}", file, j.value("line", 0)); };
  for (const Json& f : report["findings"]) {
    Json entry = f;
    entry["where"] = where(f);
    out["lint"].push_back(std::move(entry));
  }
  if (report.contains("env"))
    for (const Json& e : report["env"]) {
      if (!e.contains("name") || !e["name"].is_string() || !e.contains("value") || !e["value"].is_string()) continue;
      out["env"][text_at(e, "name")] = text_at(e, "value");
      out["env_lines"][text_at(e, "name")] = where(e);
    }
  if (report.contains("problems"))
    for (const Json& p : report["problems"])
      if (p.is_string()) out["failed_probes"].push_back({{"probe", file}, {"why", p}});
  return out;
}

}  // namespace pyflame::tools::doctor
