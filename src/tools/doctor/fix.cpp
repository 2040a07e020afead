// --fix: the commands of the findings as a script that the user reads and then runs. Settings of the shell come first, so that the script can be sourced. Commands that need root come last; they begin with sudo. Findings of severity INFO contribute settings only, and a command with a placeholder remains a comment.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>

#include "tools/doctor/text.h"

namespace pyflame::tools::doctor {

namespace {

using Json = nlohmann::json;

// One line, so that the text cannot leave its comment.
std::string comment(const Json& f, const char* key) {
  const auto it = f.find(key);
  return it != f.end() && it->is_string() ? view::clean(it->get<std::string>(), 2000) : "";
}

}  // namespace

std::string shell_comment(std::string_view text) {
  std::string out = view::wrap(text, 110);
  while (!out.empty() && out.back() == '\n') out.pop_back();
  for (size_t p = 0; (p = out.find('\n', p)) != std::string::npos; p += 3) out.insert(p + 1, "# ");
  return "# " + out + "\n";
}

std::string fix_script(const Json& document) {
  std::string settings, commands, root, by_hand;
  std::set<std::string> seen;
  for (const Json& f : document["findings"]) {
    const std::string command = comment(f, "command"), where = comment(f, "where");
    const bool of_shell = command.starts_with("export ") || command.starts_with("unset ");
    if (comment(f, "severity") == "INFO" && !of_shell) continue;
    const std::string why =
        "\n" +
        shell_comment(fmt::format("{} {}: {}{}", comment(f, "severity"), comment(f, "id"), comment(f, "what"),
                                  where.empty() ? "" : " (set at " + where + ")")) +
        shell_comment(comment(f, "why"));
    if (command.empty()) {
      if (const std::string fix = comment(f, "fix"); !fix.empty()) by_hand += why + shell_comment(fix);
      continue;
    }
    if (!seen.insert(command).second) continue;
    if (command.ends_with(" IMAGE") || command.ends_with(" COMMAND") ||
        command.find(" CONTAINER ") != std::string::npos) {
      by_hand += why + "# Replace the names by your own: " + command + "\n";
      continue;
    }
    const bool needs_root = command.find("sudo ") != std::string::npos;
    (of_shell ? settings : needs_root ? root : commands) += why + command + "\n";
  }
  std::string out =
      "#!/bin/sh\n# Fixes that pyflame doctor recommends. Nothing has been changed yet. Read each line, remove what "
      "you "
      "do not want,\n"
      "# and run the rest. Settings take effect only if you source this file ( . ./fix.sh ) or copy them.\n";
  const auto section = [&](const char* title, const std::string& body) {
    if (!body.empty()) out += fmt::format("\n# ---- {}\n", title) + body;
  };
  section("Settings", settings);
  section("Commands", commands);
  section("Commands that need root", root);
  section("By hand", by_hand);
  if (settings.empty() && commands.empty() && root.empty() && by_hand.empty()) out += "\n# Nothing to fix was found.\n";
  return out;
}

}  // namespace pyflame::tools::doctor
