// The language in which rules.json says when a rule holds: paths into the facts, comparisons, `and`, `or`, `not`, and
// `any` and `all` over a list. It has three truth values. A comparison with an unknown fact is unknown, and a rule
// holds only if its condition is certainly true. So the doctor never reports what it could not see.
//
//   rocm.version < v6.2 and any gpus(gfx in ['gfx942', 'gfx950'])      v6.2 is a version, compared part by part
//   set(HIP_VISIBLE_DEVICES) and env.HIP_VISIBLE_DEVICES != env.CUDA_VISIBLE_DEVICES
//   on(value) or value >= 3                                            value, name: of the variable being checked
//   exists(absence) or count(gpus) > 1 or gfx startswith 'gfx11' or groups contains 'render'
#pragma once
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace pyflame::tools::doctor {

enum class Truth { no, unknown, yes };

// Where names in a condition or a text are looked up: first an item of a list, then the values of the checked variable,
// then the facts.
struct Scope {
  const nlohmann::json* facts = nullptr;
  const nlohmann::json* locals = nullptr;  // name, value, default, note, …
  const nlohmann::json* item = nullptr;
  // The value at a dotted path, or nullptr if there is none.
  const nlohmann::json* find(std::string_view path) const;
};

class Condition {
 public:
  Condition();  // always true
  Condition(Condition&&) noexcept;
  Condition& operator=(Condition&&) noexcept;
  ~Condition();
  // Throws Error (Value) that says what was not understood, and where.
  static Condition parse(std::string_view text);
  // `matched` (if given) receives the items for which the last true `any` or `all` held.
  Truth test(const Scope& scope, std::vector<const nlohmann::json*>* matched = nullptr) const;

  struct Node;

 private:
  std::unique_ptr<Node> root_;
};

// Compares the numbers in versions, such as "6.3.0-39" and "6.2": -1, 0 or 1. Missing parts count as 0.
int compare_versions(std::string_view a, std::string_view b);
// Whether two settings have the same meaning: as numbers, as switches (1, true, on, yes; 0, false, off, no) or as text.
bool same_setting(std::string_view a, std::string_view b);

}  // namespace pyflame::tools::doctor
