// Measurements of implementations: a SQLite file in PYFLAME_CACHE_DIR that processes share. A measurement belongs to an
// environment (device, architecture, driver, libraries, PyFlame's version) and is ignored in any other. If the file
// cannot be opened, read or written, it counts as empty, and a message says so once.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "pyflame/backends/backend.h"

namespace pyflame {

struct Measurement {
  std::string entry;  // Impl::name
  double us = 0;
  double error = 0;  // the largest difference to the first implementation's result, relative to its largest value
  bool sound = true;
};

struct Environment {
  std::string device, architecture, driver, libraries, pyflame;
};
Environment environment_of(const Backend& backend, int index);

// Everything that an implementation depends on: ops, attributes, shapes, strides, dtypes.
std::string problem_key(const Problem& p);

// The time that this process may spend on measuring, and the file of measurements: PYFLAME_TUNE_BUDGET_MS and
// choices.sqlite in PYFLAME_CACHE_DIR, unless the program sets them. Any thread may call; settings apply to programs
// that are compiled afterwards.
double tune_budget_ms();
void set_tune_budget_ms(double ms);
std::string choices_file();
void set_choices_file(std::string file);

class Choices {
 public:
  // The measurements in a file, which is created if it is missing.
  static Choices& in(const std::string& file);
  // The fastest sound implementation that was measured, if any.
  std::optional<std::string> best(const Environment& e, const std::string& op, const std::string& problem);
  void store(const Environment& e, const std::string& op, const std::string& problem,
             const std::vector<Measurement>& all);
  const std::string& trouble() const { return trouble_; }  // why the file is not used; empty: it is used

 private:
  explicit Choices(const std::string& path);
  bool run(const char* sql);
  std::optional<int64_t> environment_id(const Environment& e, bool make);
  void* db_ = nullptr;
  std::string trouble_;
};

}  // namespace pyflame
