// Reading and checking rules.json. A misspelt key is an error: a rule that silently never fires would be worse than none.
#include "tools/doctor/rules.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "pyflame/base/env.h"
#include "pyflame/base/error.h"
#include "tools/doctor/embedded.h"
#include "tools/view/text.h"

namespace pyflame::tools::doctor {

namespace {

using Json = nlohmann::json;

// An object of the file. Its keys are taken one by one; keys that remain at the end are unknown.
class Object {
 public:
  Object(const Json& json, std::string where) : json_(json), where_(std::move(where)) {
    PF_CHECK(json.is_object(), Value, "rules: {} is not an object", where_);
  }

  const Json* take(const std::string& key) {
    seen_.insert(key);
    const auto it = json_.find(key);
    return it == json_.end() ? nullptr : &*it;
  }
  std::string text(const std::string& key, bool required = false) {
    const Json* v = take(key);
    PF_CHECK(v || !required, Value, "rules: {} lacks '{}'", where_, key);
    PF_CHECK(!v || v->is_string(), Value, "rules: '{}' of {} is not a text", key, where_);
    PF_CHECK(!v || !v->get_ref<const std::string&>().empty(), Value, "rules: '{}' of {} is empty", key, where_);
    return v ? v->get<std::string>() : "";
  }
  bool flag(const std::string& key) {
    const Json* v = take(key);
    PF_CHECK(!v || v->is_boolean(), Value, "rules: '{}' of {} is not true or false", key, where_);
    return v && v->get<bool>();
  }
  const Json& list(const std::string& key) {
    static const Json kNone = Json::array();
    const Json* v = take(key);
    PF_CHECK(!v || v->is_array(), Value, "rules: '{}' of {} is not a list", key, where_);
    return v ? *v : kNone;
  }
  std::vector<std::string> texts(const std::string& key) {
    std::vector<std::string> out;
    for (const Json& v : list(key)) {
      PF_CHECK(v.is_string(), Value, "rules: '{}' of {} holds something that is not a text", key, where_);
      out.push_back(v.get<std::string>());
    }
    return out;
  }
  // One text, or a list of them.
  std::vector<Fix> fixes(const std::string& key) {
    const auto it = json_.find(key);
    if (it == json_.end() || !it->is_array()) {
      std::string one = text(key);
      return one.empty() ? std::vector<Fix>{} : std::vector<Fix>{Fix(std::move(one))};
    }
    std::vector<Fix> out;
    for (std::string& step : texts(key)) out.emplace_back(std::move(step));
    return out;
  }
  Condition condition(const std::string& key) {
    const std::string when = text(key);
    if (when.empty()) return {};
    try {
      return Condition::parse(when);
    } catch (const Error& e) {
      PF_FAIL(Value, "rules: '{}' of {}: {}", key, where_, e.what());
    }
  }
  void done() const {
    for (const auto& [key, value] : json_.items())
      PF_CHECK(seen_.count(key), Value, "rules: {} has an unknown key '{}'", where_, key);
  }

 private:
  const Json& json_;
  std::string where_;
  std::set<std::string> seen_;
};

Variable parse_variable(const Json& j, const std::string& where) {
  Variable v;
  if (j.is_string()) {
    v.name = j.get<std::string>();
    return v;
  }
  Object o(j, where + ", a variable");
  v.name = o.text("name", true);
  if (const std::string d = o.text("default"); !d.empty()) v.default_value = d;
  v.note = o.text("note");
  o.done();
  return v;
}

Case parse_case(const Json& j, const Rule& rule, const std::string& where) {
  Object o(j, where);
  Case c;
  static_cast<RuleText&>(c) = rule;
  c.when = o.condition("when");
  c.only = o.texts("only");
  for (const std::string& name : c.only)
    PF_CHECK(
        std::any_of(rule.variables.begin(), rule.variables.end(), [&](const Variable& v) { return v.name == name; }),
        Value, "rules: {} is only for '{}', which its rule does not have", where, name);
  const std::string severity = o.text("severity", true);
  const auto s = severity_of(severity);
  PF_CHECK(s && severity == name_of(*s), Value, "rules: {} has the severity '{}'", where, severity);
  c.severity = *s;
  c.what = o.text("what", true);
  if (std::string title = o.text("title"); !title.empty()) c.title = std::move(title);
  if (std::string why = o.text("why"); !why.empty()) c.why = std::move(why);
  if (std::vector<Fix> fixes = o.fixes("fix"); !fixes.empty()) c.fixes = std::move(fixes);
  if (std::string command = o.text("command"); !command.empty()) c.command = std::move(command);
  c.each = o.text("each");
  c.no_op = o.flag("no_op");
  c.split = o.flag("split");
  c.first = o.flag("first");
  c.certain = o.flag("certain") || c.first;
  o.done();
  PF_CHECK(!c.why.empty(), Value, "rules: {} does not say why", where);
  return c;
}

Rule parse_rule(const Json& j, const RuleBase& base) {
  Rule r;
  Object o(j, "a rule");
  r.id = o.text("id", true);
  Object named(j, r.id);
  named.take("id");
  r.title = named.text("title", true);
  r.why = named.text("why");
  r.fixes = named.fixes("fix");
  r.command = named.text("command");
  r.source = named.text("source", true);
  r.reads = named.text("reads");
  r.lint = named.flag("lint");
  r.settings = named.flag("settings");
  r.temporary = named.flag("temporary");
  for (const Json& v : named.list("variables")) r.variables.push_back(parse_variable(v, r.id));
  PF_CHECK(r.variables.empty() != !r.reads.empty(), Value, "rules: {} must say who reads its variables", r.id);
  r.applies = named.condition("applies");
  int n = 0;
  for (const Json& c : named.list("cases")) r.cases.push_back(parse_case(c, r, fmt::format("{}, case {}", r.id, ++n)));
  for (const Json& c : named.list("unset_cases"))
    r.unset_cases.push_back(parse_case(c, r, fmt::format("{}, case {}", r.id, ++n)));
  PF_CHECK(r.reads == "nothing" ? !r.why.empty() : n > 0, Value, "rules: {} says nothing", r.id);
  for (const Json& g : named.list("guides")) {
    PF_CHECK(g.is_array() && !g.empty() && g.size() <= 3, Value, "rules: a guide of {} is not [guide, name, value]",
             r.id);
    Advice a;
    a.guide = g[0].get<std::string>();
    PF_CHECK(base.guides.count(a.guide), Value, "rules: {} names an unknown guide '{}'", r.id, a.guide);
    if (g.size() > 1) a.name = g[1].get<std::string>();
    if (g.size() > 2) a.value = g[2].get<std::string>();
    r.guides.push_back(a);
  }
  named.done();
  return r;
}

}  // namespace

const Rule* RuleBase::find(std::string_view id) const {
  for (const Rule& r : rules)
    if (r.id == id) return &r;
  return nullptr;
}

const Rule* RuleBase::of_variable(std::string_view variable) const {
  for (const Rule& r : rules)
    for (const Variable& v : r.variables)
      if (v.is(variable)) return &r;
  return nullptr;
}

bool RuleBase::knows(const std::string& variable) const {
  const auto own = env::table();
  return known.count(variable) || of_variable(variable) ||
         std::any_of(own.begin(), own.end(), [&](const env::Variable& v) { return variable == v.name; });
}

bool Variable::is(std::string_view variable) const {
  if (name.back() != '*') return variable == name;
  const std::string_view start = std::string_view(name).substr(0, name.size() - 1);
  const std::string_view rest = variable.substr(std::min(start.size(), variable.size()));
  return variable.starts_with(start) && !rest.empty() && rest.find_first_not_of("0123456789") == std::string_view::npos;
}

RuleBase parse_rules(std::string_view json) {
  const Json j = Json::parse(json, nullptr, false, true);
  PF_CHECK(!j.is_discarded(), Value, "rules: this is not JSON");
  RuleBase base;
  Object top(j, "the file");
  if (const Json* guides = top.take("guides")) {
    PF_CHECK(guides->is_object(), Value, "rules: 'guides' is not an object");
    for (const auto& [key, title] : guides->items()) base.guides[key] = title.get<std::string>();
  }
  base.prefixes = top.texts("prefixes");
  for (const std::string& name : top.texts("known")) base.known.insert(name);
  for (const Json& r : top.list("rules")) {
    base.rules.push_back(parse_rule(r, base));
    for (size_t i = 0; i + 1 < base.rules.size(); ++i)
      PF_CHECK(base.rules[i].id != base.rules.back().id, Value, "rules: {} is there twice", base.rules.back().id);
  }
  for (const Json& c : top.list("contradictions")) {
    Object o(c, "a contradiction");
    Contradiction k{o.text("group", true), o.texts("names"), o.condition("when")};
    PF_CHECK(!k.names.empty(), Value, "rules: the contradiction '{}' has no names", k.group);
    o.done();
    base.contradictions.push_back(std::move(k));
  }
  for (const Json& c : top.list("recommend")) {
    Object o(c, "a recommendation");
    Recommendation r{o.text("name", true), o.text("value", true), o.text("why", true), o.text("source", true),
                     o.condition("when")};
    o.done();
    base.recommend.push_back(std::move(r));
  }
  top.done();
  return base;
}

const RuleBase& rules() {
  static const RuleBase kBase = parse_rules(embedded("rules.json"));
  return kBase;
}

std::string shell_quote(std::string_view text) {
  static constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:,=+@%";
  if (!text.empty() && text.find_first_not_of(kPlain) == std::string_view::npos) return std::string(text);
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

namespace {

std::string value_text(const Json* v, std::string_view filter) {
  if (!v || v->is_null()) return "unknown";
  if (filter == "bytes" && v->is_number()) return view::bytes(v->get<double>());
  if (v->is_string()) return v->get<std::string>();
  if (v->is_boolean()) return v->get<bool>() ? "yes" : "no";
  if (v->is_number_integer()) return v->dump();
  if (v->is_number()) return fmt::format("{:g}", v->get<double>());
  if (!v->is_array()) return v->dump();
  std::string out;
  for (const Json& e : *v) out += (out.empty() ? "" : ", ") + value_text(&e, "");
  return out.empty() ? "none" : out;
}

}  // namespace

std::string fill(std::string_view text, const Scope& scope, bool for_shell) {
  std::string out;
  while (!text.empty()) {
    const size_t open = text.find('{');
    out += text.substr(0, open);
    if (open == std::string_view::npos) break;
    text.remove_prefix(open + 1);
    const size_t close = text.find('}');
    const std::string_view inside = text.substr(0, close);
    const bool is_path =
        close != std::string_view::npos && !inside.empty() &&
        inside.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.|") ==
            std::string_view::npos;
    if (!is_path) {  // a brace that belongs to a shell command
      out += '{';
      continue;
    }
    const size_t bar = inside.find('|');
    const std::string_view filter = bar == std::string_view::npos ? "" : inside.substr(bar + 1);
    const std::string value =
        view::clean(value_text(scope.find(inside.substr(0, bar)), filter), inside == "each" ? 4000 : 400);
    out += for_shell && filter != "raw" ? shell_quote(value) : value;
    text.remove_prefix(close + 1);
  }
  return out;
}

}  // namespace pyflame::tools::doctor
