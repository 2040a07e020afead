// Every rule has facts that fire it and facts that do not: tests/doctor/rule_cases.json. The rules about Python programs (lint) have
// theirs in tests/doctor/test_lint.py.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "support/source_dir.h"
#include "tools/doctor/audit.h"
#include "tools/system/host.h"

namespace pyflame::tools::doctor {
namespace {

using Json = nlohmann::json;

const Json& cases() {
  static const Json kCases = Json::parse(std::ifstream(test::file_of_project("tests/doctor/rule_cases.json")));
  return kCases;
}

// {"gfx": one GPU per entry, "gpu": more about each of them, "env": settings, "set": facts by dotted path, "folders": what
// the machine has in them}
Json facts_of(const Json& c) {
  Json facts = {{"env", c.value("env", Json::object())}, {"gpus", Json::array()}};
  const Json gfxs = c.value("gfx", Json::array()), set = c.value("set", Json::object());
  for (const Json& gfx : gfxs) {
    Json gpu = {{"index", facts["gpus"].size()}, {"gfx", gfx}, {"name", "a GPU"}, {"integrated", false}};
    gpu.update(c.value("gpu", Json::object()));
    facts["gpus"].push_back(gpu);
  }
  for (const auto& [path, value] : set.items()) {
    std::string pointer = "/" + path;
    for (char& ch : pointer) ch = ch == '.' ? '/' : ch;
    facts[Json::json_pointer(pointer)] = value;
  }
  return facts;
}

// A machine that has nothing but the case's "folders".
class Folders : public system::Host {
 public:
  explicit Folders(const Json& c) : folders_(c.value("folders", Json::object())) {}
  system::Reading read(const std::string&, size_t) const override { return {}; }
  std::vector<std::string> list_if(const std::string& path, const Keep&) const override {
    return folders_.value(path, std::vector<std::string>());
  }
  system::Status status(const std::string&) const override { return {}; }
  std::optional<std::string> real_path(const std::string&) const override { return {}; }
  std::optional<system::Space> space(const std::string&) const override { return {}; }
  std::optional<system::Environment> environment(std::optional<int64_t>) const override { return {}; }
  system::User user() const override { return {}; }
  std::string name() const override { return "folders"; }

 private:
  Json folders_;
};

std::vector<Json> findings_of(const std::string& id, const Json& c) {
  AuditOptions options;
  options.workload = c.value("workload", "");
  const Folders host(c);
  if (c.contains("folders")) options.host = &host;
  const Json document = audit(facts_of(c), options);
  EXPECT_FALSE(document["facts"]["failed_probes"].size()) << document["facts"]["failed_probes"] << c;
  std::vector<Json> found;
  for (const Json& f : document["findings"])
    if (f["id"] == id) found.push_back(f);
  return found;
}

TEST(RuleCases, FireWithTheirSeverity) {
  for (const auto& [id, both] : cases().items())
    for (const Json& c : both["fires"]) {
      bool as_said = false;
      std::string got;
      for (const Json& f : findings_of(id, c)) {
        as_said |= f["severity"] == c["severity"];
        got += f["severity"].get<std::string>() + ": " + f["what"].get<std::string>() + "\n";
      }
      EXPECT_TRUE(as_said) << id << " " << c << "\ngot " << got;
    }
}

TEST(RuleCases, StayQuiet) {
  for (const auto& [id, both] : cases().items())
    for (const Json& c : both["quiet"]) {
      const std::vector<Json> found = findings_of(id, c);
      EXPECT_TRUE(found.empty()) << id << " " << c << "\ngot " << found.front();
    }
}

TEST(RuleCases, EveryRuleHasBothKinds) {
  std::set<std::string> ids;
  for (const Rule& r : rules().rules) {
    ids.insert(r.id);
    if (r.lint) continue;
    ASSERT_TRUE(cases().contains(r.id)) << r.id << " has no cases";
    EXPECT_FALSE(cases()[r.id]["fires"].empty()) << r.id;
    EXPECT_FALSE(cases()[r.id]["quiet"].empty()) << r.id;
  }
  for (const auto& [id, both] : cases().items()) EXPECT_TRUE(ids.count(id)) << id << " is no rule";
}

// Each text has all its values filled in: nothing is "unknown", and no brace remains.
TEST(RuleCases, TextsAreComplete) {
  for (const auto& [id, both] : cases().items())
    for (const Json& c : both["fires"])
      for (const Json& f : findings_of(id, c)) {
        for (const char* key : {"title", "what", "why", "source"}) {
          const std::string text = f[key].get<std::string>();
          EXPECT_FALSE(text.empty()) << id << " " << key;
          EXPECT_EQ(text.find_first_of("{}"), std::string::npos) << id << ": " << text;
        }
        const std::string what = f["what"].get<std::string>();
        EXPECT_TRUE(what.ends_with(".") || what.ends_with("?") || what.ends_with("…")) << id << ": " << what;
        if (f["severity"] != "INFO") {
          EXPECT_FALSE(f["fix"].is_null() && f["command"].is_null()) << id << ": " << what;
        }
      }
}

// Whether a text may come from a template: compares the text before the first brace and after the last one.
bool made_from(const std::string& text, const std::string& pattern) {
  const size_t first = pattern.find('{'), last = pattern.rfind('}');
  if (first == std::string::npos) return text == pattern;
  return text.starts_with(pattern.substr(0, first)) && text.ends_with(pattern.substr(last + 1));
}

TEST(RuleCases, EveryCaseOfEveryRuleIsReached) {
  for (const Rule& r : rules().rules) {
    if (r.lint) continue;
    std::vector<Json> found;
    for (const Json& c : cases()[r.id]["fires"])
      for (const Json& f : findings_of(r.id, c)) found.push_back(f);
    for (const std::vector<Case>* list : {&r.cases, &r.unset_cases})
      for (const Case& c : *list) {
        bool reached = false;
        for (const Json& f : found)
          reached |= f["severity"] == name_of(c.severity) && f["no_op"] == c.no_op &&
                     made_from(f["what"].get<std::string>(), c.what);
        EXPECT_TRUE(reached) << r.id << ": " << c.what;
      }
  }
}

}  // namespace
}  // namespace pyflame::tools::doctor
