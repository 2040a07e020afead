// `pyflame completion` and `pyflame man`: scripts for shells, a page for man, and a document for programs, written from the table of commands that --help
// shows.
#include <fmt/core.h>

#include <CLI/Error.hpp>
#include <CLI/Validators.hpp>
#include <algorithm>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "commands.h"
#include "output.h"
#include "pyflame/version.h"

namespace pyflame::apps::cli {

namespace {

struct OptionRow {
  std::vector<std::string> words;    // "--json", "-h"
  std::vector<std::string> choices;  // values, where there are only these
  std::string meaning, name, type, initial;
  bool takes_value = false, positional = false, required = false, repeatable = false;
};

struct CommandRow {
  std::string path, meaning;  // path: "train gpt"; empty for the program itself
  std::vector<std::string> commands;
  std::vector<OptionRow> options;
};

// "TEXT:{bash,fish}" -> bash, fish.
std::vector<std::string> choices_of(const std::string& type) {
  std::vector<std::string> found;
  const size_t begin = type.find('{'), end = type.find('}');
  if (begin == std::string::npos || end == std::string::npos) return found;
  std::string word;
  for (size_t i = begin + 1; i <= end; ++i) {
    if (i < end && type[i] != ',') {
      word += type[i];
    } else {
      found.push_back(word);
      word.clear();
    }
  }
  return found;
}

OptionRow row_of(const CLI::Option& option) {
  OptionRow row;
  row.meaning = option.get_description();
  row.name = option.get_name();
  row.takes_value = option.get_items_expected_max() > 0;
  row.choices = choices_of(option.get_type_name());
  row.type = option.get_type_name().substr(0, option.get_type_name().find(':'));
  row.initial = option.get_default_str();
  row.required = option.get_required();
  row.repeatable = row.takes_value && option.get_multi_option_policy() == CLI::MultiOptionPolicy::TakeAll;
  row.positional = option.get_lnames().empty() && option.get_snames().empty();
  for (const std::string& name : option.get_snames()) row.words.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) row.words.push_back("--" + name);
  return row;
}

void collect(const CLI::App& app, const std::string& path, std::vector<CommandRow>& table) {
  const auto named = [](const CLI::App* a) { return !a->get_name().empty() && !a->get_group().empty(); };
  CommandRow row{path, app.get_description(), {}, {}};
  for (const CLI::Option* option : app.get_options())
    if (!option->get_group().empty()) row.options.push_back(row_of(*option));
  for (const CLI::App* sub : app.get_subcommands(named)) row.commands.push_back(sub->get_name());
  table.push_back(row);
  for (const CLI::App* sub : app.get_subcommands(named))
    collect(*sub, path.empty() ? sub->get_name() : path + " " + sub->get_name(), table);
}

// The text without what ends a word in single quotes, and on one line.
std::string one_line(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\'') out += "'\\''";
    else out += c == '\n' ? ' ' : c;
  }
  return out;
}

std::string join(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : " ") + word;
  return out;
}

// A shell function that sets `known` to what may follow a path of commands, and `values` to the values of the option before the cursor.
std::string shell_table(const std::vector<CommandRow>& table) {
  std::string out = "_pyflame_table() {\n  known='' values=''\n  case \"$1\" in\n";
  for (const CommandRow& command : table) {
    std::vector<std::string> words = command.commands;
    std::string values;
    for (const OptionRow& option : command.options) {
      if (option.positional) words.insert(words.end(), option.choices.begin(), option.choices.end());
      words.insert(words.end(), option.words.begin(), option.words.end());
      if (!option.takes_value || option.positional) continue;
      std::string pattern;
      for (const std::string& word : option.words) pattern += (pattern.empty() ? "" : "|") + word;
      values +=
          fmt::format("        {}) values='{}' ;;\n", pattern, option.choices.empty() ? "FILE" : join(option.choices));
    }
    out += fmt::format("    '{}')\n      known='{}'\n", command.path, join(words));
    if (!values.empty()) out += fmt::format("      case \"$2\" in\n{}      esac\n", values);
    out += "      ;;\n";
  }
  return out + "  esac\n}\n";
}

std::string commands_pattern(const std::vector<CommandRow>& table) {
  std::string out;
  for (const CommandRow& command : table)
    if (!command.path.empty()) out += (out.empty() ? "'" : "|'") + command.path + "'";
  return out;
}

std::string path_function(const std::vector<CommandRow>& table) {
  return fmt::format(
      R"(# _pyflame_path WORD...: sets `at` to the commands among the words before the cursor.
_pyflame_path() {{
  at=''
  local word next
  for word in "$@"; do
    next="${{at:+$at }}$word"
    case "$next" in
      {}) at=$next ;;
    esac
  done
}}
)",
      commands_pattern(table));
}

std::string bash_script(const std::vector<CommandRow>& table) {
  return "# Completion of pyflame for bash: source <(pyflame completion bash)\n" + shell_table(table) +
         path_function(table) + R"(_pyflame() {
  local current=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} at known values
  _pyflame_path "${COMP_WORDS[@]:1:COMP_CWORD-1}"
  _pyflame_table "$at" "$before"
  if [ "$values" = FILE ] || { [ -z "$values" ] && [ -z "$known" ]; }; then
    COMPREPLY=($(compgen -f -- "$current"))
    return
  fi
  COMPREPLY=($(compgen -W "${values:-$known}" -- "$current"))
  [ ${#COMPREPLY[@]} -gt 0 ] || [ -n "$values" ] || COMPREPLY=($(compgen -f -- "$current"))
}
complete -o filenames -F _pyflame pyflame
)";
}

std::string zsh_script(const std::vector<CommandRow>& table) {
  return "#compdef pyflame\n# Completion of pyflame for zsh: source <(pyflame completion zsh)\n" + shell_table(table) +
         path_function(table) + R"(_pyflame() {
  local before=${words[CURRENT-1]} at known values
  local -a given=("${(@)words[2,CURRENT-1]}")
  _pyflame_path "${given[@]}"
  _pyflame_table "$at" "$before"
  if [[ $values == FILE ]]; then
    _files
  elif [[ -n $values ]]; then
    compadd -- ${=values}
  else
    compadd -- ${=known} || _files
  fi
}
compdef _pyflame pyflame
)";
}

std::string fish_script(const std::vector<CommandRow>& table) {
  std::string out = "# Completion of pyflame for fish: pyflame completion fish | source\n";
  out +=
      "function __pyflame_at\n  set -l at\n  for word in (commandline -opc)[2..]\n    set -l next (string trim -- "
      "\"$at $word\")\n"
      "    switch $next\n";
  for (const CommandRow& command : table)
    if (!command.path.empty()) out += fmt::format("      case '{0}'\n        set at '{0}'\n", command.path);
  out += "    end\n  end\n  test \"$at\" = \"$argv\"\nend\n";
  for (const CommandRow& command : table) {
    const std::string start = fmt::format("complete -c pyflame -n '__pyflame_at {}'", command.path);
    for (const CommandRow& other : table) {
      const size_t cut = other.path.rfind(' ');
      const std::string parent = cut == std::string::npos ? "" : other.path.substr(0, cut);
      if (other.path.empty() || parent != command.path) continue;
      out += fmt::format("{} -f -a '{}' -d '{}'\n", start, other.path.substr(cut == std::string::npos ? 0 : cut + 1),
                         one_line(other.meaning));
    }
    for (const OptionRow& option : command.options) {
      if (option.positional) {
        if (!option.choices.empty())
          out += fmt::format("{} -f -a '{}' -d '{}'\n", start, join(option.choices), one_line(option.meaning));
        continue;
      }
      std::string names;
      for (const std::string& word : option.words)
        names += word.rfind("--", 0) == 0 ? " -l " + word.substr(2) : " -s " + word.substr(1);
      std::string value = option.takes_value ? " -r" : "";
      if (!option.choices.empty()) value += fmt::format(" -f -a '{}'", join(option.choices));
      out += fmt::format("{}{}{} -d '{}'\n", start, names, value, one_line(option.meaning));
    }
  }
  return out;
}

// Text of a page for man: a dash is a minus, and a line does not begin with a request.
std::string roff(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\') out += "\\e";
    else if (c == '-') out += "\\-";
    else if (c == '\n') out += ' ';
    else out += c;
  }
  return out.empty() || (out[0] != '.' && out[0] != '\'') ? out : "\\&" + out;
}

std::string man_page(const std::vector<CommandRow>& table) {
  std::string out = fmt::format(".TH PYFLAME 1 \"\" \"pyflame {}\" \"User Commands\"\n.SH NAME\npyflame \\- {}\n",
                                PYFLAME_VERSION, roff(table.front().meaning));
  out += ".SH SYNOPSIS\n.B pyflame\n.I command\n[\\fIoptions\\fR]\n";
  for (const CommandRow& command : table) {
    out += command.path.empty() ? std::string(".SH OPTIONS\n")
                                : fmt::format(".SH PYFLAME {}\n{}.\n", roff(command.path), roff(command.meaning));
    for (const OptionRow& option : command.options) {
      std::string words;
      for (const std::string& word : option.positional ? std::vector<std::string>{option.name} : option.words)
        words += (words.empty() ? "\\fB" : ", \\fB") + roff(word) + "\\fR";
      if (!option.choices.empty()) words += " " + roff(join(option.choices));
      out += fmt::format(".TP\n{}\n{}\n", words, roff(option.meaning));
    }
  }
  return out +
         ".SH EXIT STATUS\n0: success. 1: failure; a line on stderr says why. 2: wrong command line. 130: "
         "interrupted.\n";
}

nlohmann::ordered_json text_or_null(const std::string& text) {
  return text.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(text);
}

// What man_page() says, for programs. type, default and choices are null where there are none; an option without a type is a switch.
nlohmann::ordered_json document_of(const std::vector<CommandRow>& table) {
  nlohmann::ordered_json commands = nlohmann::ordered_json::array();
  for (const CommandRow& command : table) {
    nlohmann::ordered_json options = nlohmann::ordered_json::array(), examples = nlohmann::ordered_json::array();
    for (const OptionRow& o : command.options)
      options.push_back({{"names", o.positional ? std::vector<std::string>{o.name} : o.words},
                         {"positional", o.positional},
                         {"required", o.required},
                         {"repeatable", o.repeatable},
                         {"type", o.takes_value ? text_or_null(o.type) : nlohmann::ordered_json()},
                         {"choices", o.choices.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(o.choices)},
                         {"default", o.takes_value ? text_or_null(o.initial) : nlohmann::ordered_json()},
                         {"help", o.meaning}});
    for (const Example& e : examples_of(command.path))
      examples.push_back({{"command", e.command}, {"meaning", e.meaning}});
    commands.push_back({{"command", command.path},
                        {"help", command.meaning},
                        {"commands", command.commands},
                        {"options", options},
                        {"examples", examples}});
  }
  return {{"program", "pyflame"}, {"version", PYFLAME_VERSION}, {"commands", commands}};
}

std::string folder_of(const char* variable, const char* in_home) {
  const char *set = std::getenv(variable), *home = std::getenv("HOME");
  return set && *set ? set : std::string(home && *home ? home : "~") + in_home;
}

// Where a shell looks for a user's script. zsh looks only where fpath says.
std::string file_of(const std::string& shell) {
  if (shell == "fish") return folder_of("XDG_CONFIG_HOME", "/.config") + "/fish/completions/pyflame.fish";
  return folder_of("XDG_DATA_HOME", "/.local/share") +
         (shell == "zsh" ? "/zsh/site-functions/_pyflame" : "/bash-completion/completions/pyflame");
}

}  // namespace

void add_completion(CLI::App& app, Run& run) {
  CLI::App* cmd = app.add_subcommand("completion", "Write a script that completes commands and options in a shell");
  auto shell = std::make_shared<std::string>();
  auto as_json = std::make_shared<bool>(false);
  cmd->add_option("shell", *shell, "The shell")->required()->check(CLI::IsMember({"bash", "zsh", "fish"}));
  cmd->add_flag("--json", *as_json, "Print one JSON object: shell, script, and the file where the shell looks for it");
  const CLI::App* root = &app;
  cmd->callback([root, &run, shell, as_json] {
    run = [root, shell, as_json] {
      std::vector<CommandRow> table;
      collect(*root, "", table);
      const std::string script = *shell == "bash"  ? bash_script(table)
                                 : *shell == "zsh" ? zsh_script(table)
                                                   : fish_script(table);
      if (*as_json) print_json({{"shell", *shell}, {"script", script}, {"file", file_of(*shell)}});
      else print(script);
      return kOk;
    };
  });
  CLI::App* man = app.add_subcommand("man", "Write the page of all commands for man: pyflame man > pyflame.1");
  man->add_flag("--json", *as_json,
                "Print one JSON document instead: all commands with their options, types, defaults and examples");
  man->callback([root, &run, as_json] {
    run = [root, as_json] {
      std::vector<CommandRow> table;
      collect(*root, "", table);
      print(*as_json ? document_of(table).dump(2) + "\n" : man_page(table));
      return kOk;
    };
  });
}

}  // namespace pyflame::apps::cli
