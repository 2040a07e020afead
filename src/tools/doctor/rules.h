// The rule base: doctor/rules.json, checked as it is read. All knowledge of the doctor is in that file. The code only measures (probes) and evaluates. docs/doctor-rules.md is generated from it (tools/gen_rules_docs.py).
#pragma once
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "tools/base/finding.h"
#include "tools/doctor/condition.h"

namespace pyflame::tools::doctor {

struct Variable {
  std::string name;  // a * at its end matches any number
  bool is(std::string_view variable) const;
  std::optional<std::string> default_value;
  std::string note;  // what it does, if a rule covers several variables
};

// The first case whose condition holds becomes the finding. Texts that a case lacks are those of its rule. Texts are templates, see fill().
struct Case : RuleText {
  Condition when;
  std::vector<std::string> only;  // the variables of the rule to which the case applies; empty: all
  std::string what;
  std::string each;    // a text for each matched item; joined they are {each}
  bool split = false;  // each matched item is a finding of its own; an item has a name
  bool no_op = false;
  bool certain = false;  // holds whatever the reason for the setting is; a reason makes other cases LOW
  bool first = false;    // explains why there is no GPU: shown before everything else
};

struct Advice {  // a setting that a guide recommends
  std::string guide, name;
  std::optional<std::string> value;
};

struct Rule : RuleText {
  std::string reads;  // the component that reads its variables; "nothing": no component does
  std::vector<Variable> variables;
  Condition applies;
  std::vector<Case> cases;        // evaluated for each of its variables that is set, or once if it has no variables
  std::vector<Case> unset_cases;  // evaluated if none of its variables is set
  std::vector<Advice> guides;
  bool lint = false;       // its findings come from the Python linter
  bool temporary = false;  // its variables are for finding faults and for experiments, so not for every run
  bool settings = false;   // has no variables, but checks settings, so it also applies to a file of settings
};

// Settings that contradict each other in some combinations. The findings about them are shown together.
struct Contradiction {
  std::string group;
  std::vector<std::string> names;
  Condition when;
};

// An export that `pyflame env` prints.
struct Recommendation {
  std::string name, value, why, source;
  Condition when;
};

struct RuleBase {
  std::vector<Rule> rules;
  std::vector<Contradiction> contradictions;
  std::vector<Recommendation> recommend;
  std::map<std::string, std::string> guides;  // key -> title
  std::set<std::string> known;                // variables that a component reads and that have no rule
  std::vector<std::string> prefixes;          // prefixes of the variables that the doctor checks

  const Rule* find(std::string_view id) const;
  const Rule* of_variable(std::string_view variable) const;
  bool knows(const std::string& variable) const;  // true if it has a rule, is in `known`, or is a variable of PyFlame
};

// Throws Error (Value), which names the rule and the wrong key.
RuleBase parse_rules(std::string_view json);
// The rule base that is built into the program.
const RuleBase& rules();

// Replaces every {path} in `text` by the value at that path, or by "unknown" if there is none. {path|bytes} is written as a size. For a shell, values are quoted if necessary, except {path|raw}, which is a command.
std::string fill(std::string_view text, const Scope& scope, bool for_shell = false);
std::string shell_quote(std::string_view text);

}  // namespace pyflame::tools::doctor
