// The rule base: doctor/rules.json, checked as it is read. What the doctor knows stands in that file; code only measures (probes)
// and evaluates. docs/doctor-rules.md is generated from it (tools/gen_rules_docs.py).
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
  std::string name;  // at its end * stands for any number
  bool is(std::string_view variable) const;
  std::optional<std::string> default_value;
  std::string note;  // what it does, where a rule covers several
};

// The first case that holds is the finding. What it does not say itself, its rule says. Texts are templates, see fill().
struct Case : RuleText {
  Condition when;
  std::vector<std::string> only;  // of the rule's variables; empty: all
  std::string what;
  std::string each;    // for each matched item, joined into {each}
  bool split = false;  // a finding for each matched item, which has a name
  bool no_op = false;
  bool first = false;  // tells why there is no GPU: shown before everything else
};

struct Advice {  // what a guide tells its readers to set
  std::string guide, name;
  std::optional<std::string> value;
};

struct Rule : RuleText {
  std::string reads;  // the component that reads its variables; "nothing": nobody does
  std::vector<Variable> variables;
  Condition applies;
  std::vector<Case> cases;        // with variables: for each one that is set; without: once
  std::vector<Case> unset_cases;  // when none of its variables is set
  std::vector<Advice> guides;
  bool lint = false;  // its findings come from the Python linter
  bool settings =
      false;  // judges settings although it has no variables of its own: holds for a file of settings as well
};

// Settings of which only some combinations make sense: the findings about them are shown together.
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
  std::set<std::string> known;                // variables that somebody reads and no rule is about
  std::vector<std::string> prefixes;          // of the variables that the doctor looks at

  const Rule* find(std::string_view id) const;
  const Rule* of_variable(std::string_view variable) const;
  bool knows(const std::string& variable) const;  // has a rule, is in `known`, or is PyFlame's own
};

// Raises Error (Value) naming the rule and the key that is wrong.
RuleBase parse_rules(std::string_view json);
// The one inside the program.
const RuleBase& rules();

// `text` with every {path} replaced by the value at that path, "unknown" where there is none; {path|bytes} is written as a size. For
// a shell, what is filled in is quoted where it must be, except {path|raw}, which is a command itself.
std::string fill(std::string_view text, const Scope& scope, bool for_shell = false);
std::string shell_quote(std::string_view text);

}  // namespace pyflame::tools::doctor
