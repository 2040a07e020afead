#include "apps/program.h"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "apps/help.h"
#include "pyflame/base/error.h"
#include "pyflame/version.h"
#include "tools/base/text.h"

namespace pyflame::apps {

namespace {

int report(const std::string& message) {
  std::fflush(stdout);
  fmt::print(stderr, "pyflame: {}\n", message);
  return kFailure;
}

// The command that was being read when an argument was not understood.
const CLI::App* innermost(const CLI::App* app) {
  for (std::vector<const CLI::App*> parsed = app->get_subcommands({}); !parsed.empty();) {
    const auto it = std::find_if(parsed.begin(), parsed.end(), [](const CLI::App* a) { return a->parsed(); });
    if (it == parsed.end()) break;
    app = *it;
    parsed = app->get_subcommands({});
  }
  return app;
}

// What was probably meant: a command, or an option; `help` means --help. Empty: nothing is similar.
std::string similar(const CLI::App& command, const std::string& argument) {
  const std::string word = argument.substr(0, argument.find('='));
  const int limit = word.size() < 5 ? 1 : 2;
  std::vector<std::string> commands, options;
  for (const CLI::App* c : command.get_subcommands({})) commands.push_back(c->get_name());
  for (const CLI::Option* option : command.get_options({}))
    for (const std::string& name : option->get_lnames()) options.push_back("--" + name);
  const bool is_option = word.starts_with("-");
  const std::string* found = is_option ? nullptr : tools::meant(word, commands, limit);
  if (!found) found = tools::meant(is_option ? word : "--" + word, options, is_option ? limit : 0);
  return found ? *found : "";
}

// Where a word that is no option may belong: after a subcommand, or after an option. `path`: the command with its parents.
std::string place_of(const CLI::App& command, const std::string& path, const std::string& word) {
  const std::vector<const CLI::App*> commands = command.get_subcommands({});
  if (commands.size() == 1 && command.get_require_subcommand_min() > 0)
    return fmt::format("did you mean {} {} {}? ", path, commands[0]->get_name(), word);
  if (command.get_require_subcommand_min() > 0) return "";
  return command.get_option_no_throw("--prompt") ? fmt::format("did you mean --prompt '{}'? ", word)
                                                 : "the command takes no further word; ";
}

std::string path_of(const CLI::App& command) {
  std::string path = command.get_name();
  for (const CLI::App* a = command.get_parent(); a; a = a->get_parent()) path = a->get_name() + " " + path;
  return path;
}

std::string help_of(const CLI::App& command) {
  return fmt::format("`{} --help` shows what there is", path_of(command));
}

std::string not_understood(const CLI::App& command, const std::vector<std::string>& unknown) {
  const std::string other = similar(command, unknown.front());
  std::string hint = other.empty() ? "" : fmt::format("did you mean {}? ", other);
  if (other.empty() && !unknown.front().starts_with("-")) hint = place_of(command, path_of(command), unknown.front());
  return fmt::format("not understood: '{}'; hint: {}{}", fmt::join(unknown, "', '"), hint, help_of(command));
}

// What the option or the word is for that an error of CLI11 calls required.
std::string purpose(const CLI::App& command, const std::string& text) {
  constexpr std::string_view kRequired = " is required";
  if (!text.ends_with(kRequired)) return "";
  const CLI::Option* option = command.get_option_no_throw(text.substr(0, text.size() - kRequired.size()));
  return option ? fmt::format(" ({})", option->get_description()) : "";
}

// A value that CLI11 cannot read as the option's type, which it tells in its own words; empty: another error.
std::string not_of_the_type(const CLI::App& command, const CLI::ParseError& error) {
  constexpr std::string_view kBegin = "Could not convert: ", kBetween = " = ";
  const std::string text = error.what();
  const size_t between = text.find(kBetween);
  if (!text.starts_with(kBegin) || between == std::string::npos) return "";
  const std::string name = text.substr(kBegin.size(), between - kBegin.size());
  const CLI::Option* option = command.get_option_no_throw(name);
  const bool whole =
      option && (option->get_type_name().starts_with("INT") || option->get_type_name().starts_with("UINT"));
  return fmt::format("{}: not a valid value; got '{}'; expected a {}number", name,
                     text.substr(between + kBetween.size()), whole ? "whole " : "");
}

// Unknown arguments are named: a misspelt option is often why a required one seems to be missing. A value that is wrong is named by `error` itself.
std::string usage_message(const CLI::App& app, const CLI::ParseError& error) {
  const std::vector<std::string> unknown = app.remaining(true);
  const CLI::App& command = *innermost(&app);
  const auto code = static_cast<CLI::ExitCodes>(error.get_exit_code());
  const bool names_value = code == CLI::ExitCodes::ConversionError || code == CLI::ExitCodes::ValidationError;
  if (!unknown.empty() && !names_value) return not_understood(command, unknown);
  const std::string other = not_of_the_type(command, error), text = other.empty() ? error.what() : other;
  return fmt::format("{}{}; hint: {}", text, purpose(command, text), help_of(command));
}

// Of a command that runs a program: an option that it does not have, where the program's name should stand. Those behind -m are the program's.
bool begins_with_option(const CLI::App& command) {
  const CLI::Option* module = command.get_option_no_throw("--module");
  const std::vector<std::string> rest = command.remaining();
  return module && module->empty() && command.get_prefix_command() && !rest.empty() && rest[0].size() > 1 &&
         rest[0][0] == '-' && rest[0] != "--";
}

int parse_and_run(int argc, char** argv, void (*add)(CLI::App& app, Run& run)) {
  CLI::App app{"PyFlame: a deep-learning framework"};
  app.name("pyflame");
  app.formatter(std::make_shared<HelpFormatter>());
  app.set_version_flag("--version", std::string("pyflame ") + PYFLAME_VERSION);
  app.require_subcommand(1);
  Run run;
  add(app, run);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& e) {  // --help and --version
    return app.exit(e);
  } catch (const CLI::ParseError& e) {
    fmt::print(stderr, "pyflame: {}\n", usage_message(app, e));
    return kUsage;
  }
  if (const CLI::App& command = *innermost(&app); begins_with_option(command)) {
    fmt::print(stderr, "pyflame: {}\n", not_understood(command, {command.remaining()[0]}));
    return kUsage;
  }
  const int code = run();
  // If the output is redirected to a file, a full disk shows only here.
  PF_CHECK(std::fflush(stdout) == 0 && std::ferror(stdout) == 0, OS, "the output cannot be written completely");
  return code;
}

}  // namespace

int run_program(int argc, char** argv, void (*add)(CLI::App& app, Run& run)) {
  // A reader that leaves early, such as `head`, ends the program without a word. Some parents let their children ignore the signal.
  std::signal(SIGPIPE, SIG_DFL);
  try {
    return parse_and_run(argc, argv, add);
  } catch (const Error& e) {
    return report(e.what());
  } catch (const std::bad_alloc&) {
    return report("out of memory");
  } catch (const std::exception& e) {
    return report(e.what());
  }
}

}  // namespace pyflame::apps
