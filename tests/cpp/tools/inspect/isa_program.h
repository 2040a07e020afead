// Programs for tests of the machine code analysis, as text: one instruction a line, "name:" is a label that branches may name.
#pragma once
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "tools/inspect/isa_lint.h"

namespace pyflame::tools::inspect {

inline Listing assemble(const std::string& source) {
  std::istringstream in(source);
  std::vector<std::string> lines;
  std::map<std::string, size_t> labels;
  for (std::string line; std::getline(in, line);) {
    line.erase(0, line.find_first_not_of(' '));
    if (line.empty()) continue;
    if (line.back() == ':') labels[line.substr(0, line.size() - 1)] = lines.size();
    else lines.push_back(line);
  }
  std::string text;
  for (size_t i = 0; i < lines.size(); ++i) {
    std::string line = lines[i];
    const size_t blank = line.rfind(' ');
    if (line.find("branch") != std::string::npos && blank != std::string::npos &&
        labels.count(line.substr(blank + 1))) {
      const auto words =
          static_cast<uint16_t>(static_cast<int64_t>(labels[line.substr(blank + 1)]) - static_cast<int64_t>(i) - 1);
      line = line.substr(0, blank + 1) + std::to_string(words);
    }
    text += fmt::format("{:x}: {}\n", 0x1000 + 4 * i, line);
  }
  return parse_listing(text);
}

// A program with all that the analysis makes of it.
struct Program {
  Program(const std::string& gfx, const std::string& source, int wave = 0, int64_t scratch = -1)
      : listing(assemble(source)), classifier(IsaArch::of(gfx, wave)) {
    classifier.run(listing, scratch, ops);
    flow = control_flow(ops);
    regions = make_regions(ops, flow);
    findings = lint_isa(classifier.arch(), ops, flow, regions);
  }
  const IsaFinding* find(const std::string& id) const {
    for (const IsaFinding& f : findings)
      if (id == f.id) return &f;
    return nullptr;
  }
  std::string names() const {
    std::string all;
    for (const IsaFinding& f : findings) all += f.id + " ";
    return all;
  }

  Listing listing;
  Classifier classifier;
  std::vector<Op> ops;
  ControlFlow flow;
  Regions regions;
  std::vector<IsaFinding> findings;
};

// `body` as a loop of its own.
inline std::string looped(const std::string& body) {
  return "s_mov_b32 s0, 0\ntop:\n" + body + "\ns_cmp_lt_i32 s0, s1\ns_cbranch_scc1 top\ns_endpgm\n";
}

inline std::string repeated(int times, const std::string& line) {
  std::string all;
  for (int i = 0; i < times; ++i) all += line + "\n";
  return all;
}

}  // namespace pyflame::tools::inspect
