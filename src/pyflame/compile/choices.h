// What was measured of implementation entries: a SQLite file in PYFLAME_CACHE_DIR, shared by processes. A measurement belongs to an
// environment (device, architecture, driver, libraries, PyFlame's version): in another one it says nothing. What cannot be opened, read
// or written is as if it were empty, and is said once.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "pyflame/backends/backend.h"

namespace pyflame {

struct Measurement {
  std::string entry;  // Impl::name
  double us = 0;
  double error = 0;  // greatest difference to the first entry's result, relative to its greatest value
  bool sound = true;
};

struct Environment {
  std::string device, architecture, driver, libraries, pyflame;
};
Environment environment_of(const Backend& backend, int index);

// Everything that decides what an entry does: ops, attributes, shapes, strides, dtypes.
std::string problem_key(const Problem& p);

// What this process may spend on measuring, and the file of the records: PYFLAME_TUNE_BUDGET_MS and choices.sqlite in
// PYFLAME_CACHE_DIR, unless a program sets them. Any thread; they hold for what is compiled afterwards.
double tune_budget_ms();
void set_tune_budget_ms(double ms);
std::string choices_file();
void set_choices_file(std::string file);

class Choices {
 public:
  // The records of a file, which is made where it is missing.
  static Choices& in(const std::string& file);
  // The fastest sound entry that was measured; empty: none was.
  std::optional<std::string> best(const Environment& e, const std::string& op, const std::string& problem);
  void store(const Environment& e, const std::string& op, const std::string& problem,
             const std::vector<Measurement>& all);
  const std::string& trouble() const { return trouble_; }  // why it is not used; empty: it is

 private:
  explicit Choices(const std::string& path);
  bool run(const char* sql);
  std::optional<int64_t> environment_id(const Environment& e, bool make);
  void* db_ = nullptr;
  std::string trouble_;
};

}  // namespace pyflame
