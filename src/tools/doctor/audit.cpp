// Evaluates the rules over the facts. For all rules, variables that no component reads and variables that equal their default are handled here.
#include "tools/doctor/audit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "tools/doctor/probes.h"
#include "tools/view/finding.h"
#include "tools/view/text.h"

namespace pyflame::tools::doctor {

namespace {

using Json = nlohmann::json;

// Makes the first letter a capital, unless the first word is a name such as hipBLASLt, amdgpu-install or /dev/kfd.
std::string sentence_case(std::string s) {
  static const std::set<std::string_view> kNames = {"pyflame", "gloo",   "torch",  "torchrun", "vllm",    "triton",
                                                    "jax",     "amdgpu", "export", "rocprof",  "rocblas", "rocprofv"};
  const std::string_view word = std::string_view(s).substr(0, s.find(' '));
  const bool plain =
      !word.empty() && std::all_of(word.begin(), word.end(), [](char c) { return c >= 'a' && c <= 'z'; });
  if (plain && !kNames.count(word)) s[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(s[0])));
  return s;
}
// Facts may or may not end with a period, so a filled template may end with two.
std::string sentence(std::string s) {
  for (size_t p; (p = s.find("..")) != std::string::npos && s.find("...") != p;) s.erase(p, 1);
  return sentence_case(std::move(s));
}
Json or_null(const std::string& s) { return s.empty() ? Json() : Json(s); }

// "GPU 0, 1 (gfx1100) and GPU 2 (gfx1036)" if the items that a condition matched are GPUs.
std::string gpu_names(const std::vector<const Json*>& matched) {
  std::map<std::string, std::string> by_gfx;
  for (const Json* g : matched) {
    if (!g->is_object() || !g->contains("gfx") || !g->contains("index") || !(*g)["gfx"].is_string()) continue;
    if (g->contains("assumed")) return (*g)["gfx"].get<std::string>();  // a file for this architecture
    std::string& numbers = by_gfx[(*g)["gfx"].get<std::string>()];
    numbers += (numbers.empty() ? "" : ", ") + (*g)["index"].dump();
  }
  std::string out;
  for (const auto& [gfx, numbers] : by_gfx)
    out += fmt::format("{}GPU {} ({})", out.empty() ? "" : " and ", numbers, gfx);
  return out;
}

struct DoctorFinding : Finding {
  std::vector<std::string> names = {};  // the variables that it is about
  bool no_op = false;                   // the setting can be removed
  Json recommended_by = {}, advised_otherwise = {};
};

Json finding_json(const DoctorFinding& f) {
  Json j = view::to_json(f);
  j["names"] = f.names;
  j["no_op"] = f.no_op;
  j["recommended_by"] = f.recommended_by;
  j["advised_otherwise"] = f.advised_otherwise;
  return j;
}

class Audit {
 public:
  Audit(Json facts, const AuditOptions& options, const RuleBase& base)
      : facts_(std::move(facts)), options_(options), base_(base) {
    if (!facts_.is_object()) facts_ = Json::object();
    if (!options.workload.empty() || !facts_.contains("workload")) facts_["workload"] = or_null(options.workload);
    if (!facts_.contains("failed_probes") || !facts_["failed_probes"].is_array())
      facts_["failed_probes"] = Json::array();
  }

  Json run() {
    int checked = 0;
    const Json alternatives =
        facts_.contains("alternatives") && facts_["alternatives"].is_array() ? facts_["alternatives"] : Json::array();
    if (alternatives.empty()) checked = judge_all();
    const Json whole = facts_;
    for (const Json& alternative : alternatives) {
      facts_.update(alternative);
      checked = std::max(checked, judge_all());
      merge();
    }
    if (!alternatives.empty()) {
      facts_["env"] = whole["env"];
      facts_["visible"] = whole["visible"];
      // GPUs that a file is for are no facts about a machine.
      if (!facts_["gpus"].empty() && facts_["gpus"][0].contains("assumed")) facts_["gpus"] = Json::array();
    }
    sort_findings(findings_);
    Json document = {{"schema", "pyflame.doctor/1"}, {"checked", checked}, {"findings", Json::array()}};
    for (const std::string_view severity : kSeverities) document["counts"][std::string(severity)] = 0;
    for (const DoctorFinding& f : findings_) {
      Json& n = document["counts"][std::string(name_of(f.severity))];
      n = n.get<int>() + 1;
      document["findings"].push_back(finding_json(f));
    }
    document["verdict"] = verdict(document);
    document["unread"] = or_null(unread());
    document["readers"] = readers();
    for (const char* key :
         {"probe", "lint", "alternatives", "env_reads", "env_reasons", "env_at_times", "env_mentioned", "wheels"})
      facts_.erase(key);
    document["facts"] = std::move(facts_);
    return document;
  }

 private:
  // Returns how many rules were checked.
  int judge_all() {
    facts_["probe"] = probe(facts_, options_.host, base_);
    int checked = 0;
    for (const Rule& rule : base_.rules) {
      try {
        checked += judge(rule);
      } catch (const std::exception& e) {  // facts of an unexpected form must not stop the other rules
        facts_["failed_probes"].push_back({{"probe", rule.id}, {"why", e.what()}});
      }
    }
    group();
    return checked;
  }

  // The same setting may have been judged in several environments. The worst finding about it stays.
  void merge() {
    std::vector<DoctorFinding> kept;
    for (DoctorFinding& f : findings_) {
      const auto same = std::find_if(kept.begin(), kept.end(), [&](const DoctorFinding& k) {
        return k.id == f.id && k.where == f.where && k.names == f.names && (!f.names.empty() || k.what == f.what);
      });
      if (same == kept.end()) kept.push_back(std::move(f));
      else if (f.severity < same->severity) *same = std::move(f);
    }
    findings_ = std::move(kept);
  }

  Scope scope(const Json* locals = nullptr) const {
    Scope s;
    s.facts = &facts_;
    s.locals = locals;
    return s;
  }

  // Returns whether the rule was checked.
  bool judge(const Rule& rule) {
    if (rule.lint) return linted(rule);
    if (rule.variables.empty()) {
      if (options_.settings_only && !rule.settings) return false;
      if (rule.applies.test(scope()) == Truth::yes) first_of(rule, rule.cases, Json::object());
      return true;
    }
    bool any = false;
    if (const auto env = facts_.find("env"); env != facts_.end() && env->is_object())
      for (const auto& [name, value] : env->items())
        for (const Variable& v : rule.variables)
          if (value.is_string() && v.is(name)) {
            any = true;
            judge_setting(rule, v, name, value.get<std::string>());
          }
    if (!any && !options_.settings_only && rule.applies.test(scope()) == Truth::yes)
      first_of(rule, rule.unset_cases, Json::object());
    return any || !options_.settings_only;
  }

  void judge_setting(const Rule& rule, const Variable& v, const std::string& name, const std::string& value) {
    if (value.empty()) return;  // an empty value means the same as no value
    Json locals = {{"name", name}, {"judged", name}, {"value", value}, {"note", or_null(v.note)}};
    if (v.default_value) locals["default"] = *v.default_value;
    Case generic;
    generic.id = rule.id;
    generic.severity = Severity::info;
    generic.no_op = true;
    generic.command = "unset {name}";
    generic.source = rule.source;
    generic.fixes = {"Remove it."};
    if (rule.reads == "nothing") {
      generic.title = rule.title;
      generic.what = "No component reads {name}={value}.";
      generic.why = rule.why;
      add(rule, generic, locals, {});
    } else if (v.default_value && same_setting(value, *v.default_value)) {
      generic.title = rule.title;
      generic.what = "{name}={value} is the default.";
      generic.why = "It changes nothing for " + rule.reads + ", and distracts from the other settings.";
      add(rule, generic, locals, {});
    } else if (rule.applies.test(scope(&locals)) == Truth::yes) {
      first_of(rule, rule.cases, std::move(locals));
    }
  }

  // Cases with `split` report every matched item; of the others, the first one that holds is reported.
  void first_of(const Rule& rule, const std::vector<Case>& cases, Json locals) {
    // The output of a command is not known, so only a rule that has a single case for any value can report it.
    const std::string value = locals.value("value", "");
    const bool computed = value.find("$(") != std::string::npos || value.find('`') != std::string::npos;
    for (const Case& c : cases) {
      if (!c.only.empty() && std::find(c.only.begin(), c.only.end(), locals.value("name", "")) == c.only.end())
        continue;
      if (computed && cases.size() > 1) continue;
      std::vector<const Json*> matched;
      if (c.when.test(scope(&locals), &matched) != Truth::yes) continue;
      if (!c.split) return add(rule, c, std::move(locals), matched);
      for (const Json* item : matched) {
        Json named = *item;
        named["judged"] = named["name"];
        add(rule, c, std::move(named), {});
      }
    }
  }

  bool linted(const Rule& rule) {
    const auto lint = facts_.find("lint");
    if (lint == facts_.end() || !lint->is_array()) return false;
    for (const Json& l : *lint)
      if (l.is_object() && l.value("id", "") == rule.id) {
        const Json& locals = l;
        const auto c = std::find_if(rule.cases.begin(), rule.cases.end(),
                                    [&](const Case& one) { return one.when.test(scope(&locals)) == Truth::yes; });
        if (c == rule.cases.end()) continue;
        add(rule, *c, locals, {}, l.value("where", ""));
        if (const std::string fix = l.value("fix", ""); !fix.empty()) findings_.back().fixes = {fix};
      }
    return true;
  }

  void add(const Rule& rule, const Case& c, Json locals, const std::vector<const Json*>& matched,
           std::string where = "") {
    locals["gpus"] = gpu_names(matched);
    if (!c.each.empty()) {
      std::string joined;
      for (const Json* item : matched) {
        Scope s = scope(&locals);
        s.item = item;
        joined += (joined.empty() ? "" : "; ") + fill(c.each, s);
      }
      locals["each"] = joined;
    }
    const Scope s = scope(&locals);
    const std::string name = locals.value("judged", ""), value = locals.value("value", "");
    if (where.empty() && !name.empty())
      where = facts_["env_lines"].is_object() ? facts_["env_lines"].value(name, "") : "";
    DoctorFinding f{make_finding(c, sentence(fill(c.what, s)))};
    f.title = fill(c.title, s);
    f.why = sentence(fill(c.why, s));
    for (std::string& fix : f.fixes) fix = sentence(fill(fix, s));
    f.command = fill(c.command.text, s, true);
    f.where = where;
    f.first = c.first;
    if (!name.empty()) f.names = {name};
    f.no_op = c.no_op;
    soften(f, rule, c, name);
    f.recommended_by = guides(rule, name, value, true);
    f.advised_otherwise = guides(rule, name, value, false);
    findings_.push_back(std::move(f));
  }

  // A file that says why it has a setting has decided. What a setting costs is still said, but not as something to mend; and a setting for
  // finding faults is none if it is made for one command or under a condition.
  void soften(DoctorFinding& f, const Rule& rule, const Case& c, const std::string& name) const {
    if (name.empty() || f.severity < Severity::high || f.severity > Severity::med) return;
    const auto has = [&](const char* list) {
      const Json* names = scope().find(list);
      return names && names->is_array() && std::find(names->begin(), names->end(), name) != names->end();
    };
    const Json* reasons = scope().find("env_reasons");
    if (has("env_mentioned")) {
      f.what += " The file mentions or compares it.";
    } else if (c.certain) {
      return;
    } else if (reasons && reasons->is_object() && reasons->contains(name)) {
      f.what += fmt::format(" The file says why: \"{}\".", view::clean((*reasons)[name].get<std::string>(), 160));
      f.fixes = {"Keep it as long as that reason holds."};
    } else if (rule.temporary && has("env_at_times")) {
      f.what += " It is set for one command, under a condition, in a test or in a guide.";
    } else {
      return;
    }
    f.severity = Severity::low;
    f.command = {};
  }

  // Titles of the guides that recommend this value of this variable. With `this_value` false: of those that recommend another value, with that value.
  Json guides(const Rule& rule, const std::string& name, const std::string& value, bool this_value) const {
    std::map<std::string, std::string> titles;  // guide -> what it recommends instead
    const auto same = [&](const Advice& a) { return !a.value || same_setting(*a.value, value); };
    for (const Advice& a : rule.guides) {
      if (a.name != name) continue;
      const bool guide_says_this = std::any_of(rule.guides.begin(), rule.guides.end(), [&](const Advice& b) {
        return b.guide == a.guide && b.name == name && same(b);
      });
      if (this_value && guide_says_this) titles[base_.guides.at(a.guide)];
      if (!this_value && !guide_says_this) {
        std::string& instead = titles[base_.guides.at(a.guide)];
        instead += (instead.empty() ? "" : " or ") + *a.value;
      }
    }
    Json out = Json::array();
    for (const auto& [title, instead] : titles)
      out.push_back(this_value ? title : fmt::format("{}: {}", title, instead));
    return out;
  }

  // Findings about settings that contradict each other get the name of the contradiction as their group.
  void group() {
    for (const Contradiction& c : base_.contradictions) {
      if (c.when.test(scope()) != Truth::yes) continue;
      for (DoctorFinding& f : findings_)
        for (const std::string& name : f.names)
          if (f.group.empty() && std::find(c.names.begin(), c.names.end(), name) != c.names.end()) f.group = c.group;
    }
  }

  // Why the settings or the program could not be read completely. Empty if they were.
  std::string unread() const {
    const std::string source =
        facts_.value("env_source", Json()).is_string() ? facts_["env_source"].get<std::string>() : "";
    for (const Json& p : facts_["failed_probes"]) {
      if (!p.is_object() || !p.value("probe", Json()).is_string() || !p.value("why", Json()).is_string()) continue;
      const std::string probe = p["probe"];
      if (probe == "environment") return p["why"];
      if (options_.settings_only && probe == source) return source + ": " + p["why"].get<std::string>();
    }
    return "";
  }

  // Setting -> the component that reads it.
  Json readers() const {
    Json out = Json::object();
    if (const auto env = facts_.find("env"); env != facts_.end() && env->is_object())
      for (const auto& [name, value] : env->items())
        if (const Rule* rule = base_.of_variable(name); rule && !rule->reads.empty()) out[name] = rule->reads;
    return out;
  }

  std::string verdict(const Json& document) const {
    const std::string why = unread();
    std::string judged = judgement(document);
    if (why.empty()) return judged;
    // "Nothing was found" would be misleading if not everything was read.
    const std::string missing = fmt::format("Not everything was read: {}.", why);
    return document["findings"].empty() ? missing : judged + " " + missing;
  }

  std::string judgement(const Json& document) const {
    const Json& counts = document["counts"];
    const Json* absence = scope().find("absence");
    if (absence && absence->is_object() && !options_.settings_only)
      return sentence(fmt::format("No AMD GPU can be used: {}.", absence->value("what", "the reason is not known")));
    static constexpr struct {
      const char *severity, *one, *more;
    } kVerdicts[] = {{"CRIT", "1 thing can corrupt results or hang the program",
                      "{} things can corrupt results or hang the program"},
                     {"HIGH", "1 thing stops programs or costs much of their speed",
                      "{} things stop programs or cost much of their speed"},
                     {"MED", "1 thing costs speed or stability", "{} things cost speed or stability"}};
    std::string out;
    for (const auto& v : kVerdicts)
      if (const int n = counts[v.severity].get<int>())
        out += (out.empty() ? "" : "; ") + (n == 1 ? std::string(v.one) : fmt::format(fmt::runtime(v.more), n));
    if (!out.empty()) return out + ".";
    return document["findings"].empty() ? "Nothing to fix was found." : "Nothing serious was found.";
  }

  Json facts_;
  const AuditOptions& options_;
  const RuleBase& base_;
  std::vector<DoctorFinding> findings_;
};

}  // namespace

Json audit(Json facts, const AuditOptions& options, const RuleBase& base) {
  return Audit(std::move(facts), options, base).run();
}

int exit_code(const Json& document) {
  for (size_t i = 0; i < kSeverities.size(); ++i)
    if (document["counts"][std::string(kSeverities[i])].get<int>() > 0) return exit_code(static_cast<Severity>(i));
  return 0;
}

}  // namespace pyflame::tools::doctor
