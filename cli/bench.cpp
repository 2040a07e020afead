// `pyflame bench`: measures. Python does it (python/pyflame/benchmarking), because programs and ops are called there; this file checks the
// command line.
#include <fmt/format.h>

#include <memory>
#include <string>
#include <vector>

#include "commands.h"
#include "python_command.h"

namespace pyflame::apps::cli {

namespace {

struct BenchSettings {
  std::vector<std::string> what;
  std::string device, problems, records, python;
  int scale = 1, runs = 5;
  double seconds = 10, relative = 1;
  bool cold = false, entries = false, no_record = false, json = false;
};

int bench(const BenchSettings& s) {
  PythonCommand c("bench", "pyflame.benchmarking", s.python);
  for (const std::string& word : s.what) c.add(word);
  if (!s.device.empty()) c.add("--device", s.device);
  if (!s.problems.empty()) c.add("--problems", s.problems);
  if (!s.records.empty()) c.add("--records", s.records);
  c.add("--scale", std::to_string(s.scale));
  c.add("--seconds", fmt::format("{}", s.seconds));
  c.add("--relative", fmt::format("{}", s.relative));
  if (s.cold) c.add("--cold");
  c.add("--runs", std::to_string(s.runs));
  if (s.entries) c.add("--entries");
  if (s.no_record) c.add("--no-record");
  if (s.json) c.add("--json");
  c.start();
}

// Language models have options of their own, which Python checks.
void add_bench_llm(CLI::App& bench, const std::shared_ptr<BenchSettings>& of_bench, Run& run) {
  CLI::App* cmd = bench.add_subcommand(
      "llm", "Measure a language model: --latency, --throughput, or --serve over HTTP; `pyflame bench llm --help`");
  cmd->set_help_flag("");
  takes_program(cmd, "[OPTION ...]");
  cmd->final_callback([&run, cmd, of_bench] {
    run = [words = program_of(cmd), of_bench]() -> int {
      PythonCommand c("bench llm", "pyflame.llm.bench", of_bench->python);
      for (const std::string& word : words) c.add(word);
      if (!of_bench->records.empty()) c.add("--records", of_bench->records);
      if (of_bench->no_record) c.add("--no-record");
      c.start();
    };
  });
}

}  // namespace

void add_bench(CLI::App& app, Run& run) {
  CLI::App* cmd = app.add_subcommand(
      "bench", "Measure a function of a program, ops by name or a list of products; compare two measurements");
  auto s = std::make_shared<BenchSettings>();
  cmd->add_option("what", s->what,
                  "FILE.py:function; or gemm, conv, attention, elementwise, reduce, memory, launch, comm, model, all; "
                  "after gemm "
                  "M,N,K,dtype,layout; or compare A B; or list");
  cmd->add_option("--device", s->device, "Device to measure on: cpu, rocm, rocm:1, cuda, ...; default: cpu");
  cmd->add_option(
         "--problems", s->problems,
         "A list of products, one in a line: M,N,K,dtype,layout, lines of hipblaslt-bench or rocblas-bench, rows of "
         "TunableOp's CSV")
      ->check(CLI::ExistingFile);
  cmd->add_option("--scale", s->scale, "Divides the sizes of the ops by name; 8 suits a CPU")
      ->capture_default_str()
      ->check(CLI::Range(1, 1024));
  cmd->add_option("--seconds", s->seconds, "The longest time for one figure")->capture_default_str()->check(kAboveZero);
  cmd->add_option("--relative", s->relative,
                  "The 95 % interval of the median ends the measurement at so many percent of it")
      ->capture_default_str()
      ->check(kAboveZero);
  cmd->add_flag(
      "--cold", s->cold,
      "Empty the last-level cache before each call; with compare: compare by fresh processes, the first call apart");
  cmd->add_option("--runs", s->runs, "With compare --cold: processes of each side")
      ->capture_default_str()
      ->check(CLI::Range(3, 1000));
  cmd->add_flag(
      "--entries", s->entries,
      "With gemm: also time all entries of the implementation list, and print the share of the best one; what "
      "is found is kept, as `pyflame tune` keeps it");
  cmd->add_option("--records", s->records,
                  "The folder of the kept measurements; default: ~/.local/share/pyflame/bench");
  cmd->add_flag("--no-record", s->no_record, "Keep no record");
  cmd->add_flag("--json", s->json, "Print one JSON object for each measurement");
  cmd->add_option(
      "--python", s->python,
      "The Python interpreter that has the package; default: PYFLAME_PYTHON, or the one beside this program");
  auto llm = std::make_shared<Run>();
  add_bench_llm(*cmd, s, *llm);
  cmd->final_callback([&run, cmd, s, llm] {
    if (!s->what.empty()) {
      run = [s] { return bench(*s); };
    } else if (*llm) {
      run = *llm;
    } else {
      throw CLI::RequiredError(cmd->get_option("what")->get_name());
    }
  });
}

}  // namespace pyflame::apps::cli
