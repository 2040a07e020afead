// The tuning database: measurements of implementations in a SQLite file in PYFLAME_CACHE_DIR that processes share. A
// measurement belongs to an environment (device, architecture, driver, libraries, PyFlame's version) and decides nothing
// in any other. Beside it is a copy of its rows, choices.sqlite.rows, which the first look-up reads instead if the file has
// not changed since. If the file cannot be opened, read or written, it counts as empty, and a message says so once.
#pragma once
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "pyflame/backends/backend.h"
#include "pyflame/base/sqlite.h"
#include "pyflame/compile/choice_rows.h"
#include "pyflame/compile/tiers.h"

namespace pyflame {

struct Measurement {
  std::string entry;  // Candidate::name()
  double us = 0;      // the median of its runs; on a device with cold caches
  double error = 0;   // the largest difference to the result that is expected, as a part of what is allowed
  bool sound = true;
  double spread = 0;  // the quartiles' distance over the median
  size_t workspace = 0;
  std::string note = {};  // why it is not sound
  double warm_us = 0;     // the median with warm caches; 0: it was not measured
  bool own = false;       // it is taken if there are no measurements
};

// How far searches have come in the Enumeration of an implementation for a problem.
struct Enumerated {
  std::string impl;
  uint64_t tried = 0;   // candidates
  uint64_t looked = 0;  // places that were looked at
  uint64_t size = 0;    // all places
};

// Whether an entry is faster than the own one beyond doubt: with cold caches by more than noise, and with warm ones not slower.
bool clearly_faster(const Measurement& m, const Measurement& own);

const Environment& environment_of(const Backend& backend, int index);

// Everything that an implementation depends on: ops, attributes, shapes, strides, dtypes.
std::string problem_key(const Problem& p);

// The time that this process may spend on measuring, and the file of measurements: PYFLAME_TUNE_BUDGET_MS and
// choices.sqlite in PYFLAME_CACHE_DIR, unless the program sets them. Any thread may call; settings apply to programs
// that are compiled afterwards.
double tune_budget_ms();
void set_tune_budget_ms(double ms);
// Whether candidates of this implementation may be measured: PYFLAME_TUNE_ENTRIES, unless the program sets the names. No names: all may be.
bool may_measure(std::string_view impl);
std::vector<std::string> tune_entries();
void set_tune_entries(std::vector<std::string> names);
// Whether a search may spend all of the budget on one problem's Enumerations.
bool tunes_all_algorithms();
void set_tune_all_algorithms(bool all);
std::string choices_file();
void set_choices_file(std::string file);
// Whether measurements decide at all (PYFLAME_TUNED): without them, the order of the lists does.
bool uses_choices();

class Choices {
 public:
  // The measurements in a file, which is created if it is missing.
  static Choices& in(const std::string& file);
  // The same, but null if there is no such file.
  static Choices* if_present(const std::string& file);
  // Of choices_file(), without a copy of its name.
  static Choices* if_present();

  struct Known {
    std::optional<std::string> best;  // the fastest sound entry of this environment
    std::vector<std::string>
        next;  // the others that are no slower than the own one, where the best is not there any more
    std::vector<std::string> tried;        // the entries that need not be measured again; only for tuning
    std::optional<std::string> elsewhere;  // the fastest with other versions on this device; a hint what to measure
  };
  static constexpr size_t kLeastProblems = 2;  // one alone may be an exception
  Known known(const Environment& e, const std::string& op, const std::string& problem, bool for_tuning = true);
  std::optional<std::string> best(const Environment& e, const std::string& op, const std::string& problem) {
    return known(e, op, problem, false).best;
  }
  // For a problem that was not measured: the entries that were clearly faster than the own one wherever a problem of the tier was
  // measured here, the one with the smallest product of times first. None if fewer than kLeastProblems were measured.
  std::vector<std::string> faster_in_tier(const Environment& e, const std::string& op, const std::string& tier);
  // Notes that an entry is about to run for the first time. If the process does not survive that twice, the entry counts as
  // tried. passed() takes the note back.
  void begin(const Environment& e, const std::string& op, const std::string& problem, const std::string& entry);
  void passed();
  void store(const Environment& e, const std::string& op, const std::string& problem,
             const std::vector<Measurement>& all);
  // Nothing is known of an implementation that is not there.
  std::vector<Enumerated> enumerated(const Environment& e, const std::string& op, const std::string& problem);
  void store_enumerated(const Environment& e, const std::string& op, const std::string& problem,
                        const Enumerated& so_far);
  const std::string& trouble();                 // opens the file; why it is not used; empty: it is used
  int64_t queries() const { return queries_; }  // how often look-ups have asked the file; for tests

 private:
  // The rows of environments in the file. An environment that the file does not have is -1.
  struct Place {
    int64_t here = -1;
    std::vector<int64_t> elsewhere;  // this device with other versions
  };
  explicit Choices(const std::string& path);
  bool opens();
  bool is_written() const;
  void read_copy();
  void write_copy() const;
  void read_environments();
  void forget();
  void forget_if_changed();
  const Place& place_of(const Environment& e);
  bool reading_all_pays();
  void read_all();
  void read_one(const std::string& op, const std::string& problem);
  static Known known_from(const std::vector<const ChoiceRow*>& rows, const Place& place, bool for_tuning);
  void forget_begun();
  void find_tiers();
  void add_tiers(const std::string& op, const std::string& problem);
  std::string prepare(const std::string& path);
  std::optional<int64_t> environment_id(const Environment& e, bool make);
  std::optional<sqlite::Database> db_;  // none until the first query
  std::string path_;
  std::string trouble_;
  int forks_ = 0;                                 // how many forks there were before this object
  int64_t begun_ = 0;                             // the row of the note; 0: there is none
  FileStamp stamp_;                               // of the file when table_, places_ and tiers_ were filled
  std::chrono::steady_clock::time_point looked_;  // when the stamp was compared
  std::unique_ptr<ChoiceTable> table_;            // rows of the file
  std::unordered_map<std::string, std::vector<std::string>> tiers_;  // what faster_in_tier() has found
  std::vector<std::pair<Environment, Place>> places_;                // a process has few environments
  std::optional<Environments> environments_;                         // of the file; none: they were not read
  std::unordered_set<std::string> asked_;  // problems that were asked for alone since the file has changed
  bool has_all_ = false;                   // table_ has every row of the file
  bool has_read_all_ = false;              // once, perhaps before the file has changed
  bool has_looked_for_copy_ = false;
  int64_t queries_ = 0;
  int64_t row_count_ = -1;  // of the file, about; -1: it was not asked for
};

}  // namespace pyflame
