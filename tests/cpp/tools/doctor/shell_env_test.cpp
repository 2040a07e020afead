// Files of settings: what each form of file sets, at which line, and that hostile ones end in bounded time and memory.
#include "tools/doctor/shell_env.h"

#include <gtest/gtest.h>

#include <random>

namespace pyflame::tools::doctor {
namespace {

std::string all(const SettingsFile& f) {
  std::string out;
  for (const auto& [name, a] : f.environment) out += name + "=" + a.value + "@" + std::to_string(a.line) + " ";
  return out;
}
std::string lost(const SettingsFile& f) {
  std::string out;
  for (const Started& s : f.programs)
    if (s.lost) out += s.name + "@" + std::to_string(s.line) + " ";
  return out;
}
std::string shell(const std::string& text) { return all(read_settings(text, "x.sh")); }

TEST(Shell, Assignments) {
  EXPECT_EQ(shell("export A=1 B=2\nC=3 # D=4\n#E=5\n"), "A=1@1 B=2@1 C=3@2 ");
  EXPECT_EQ(shell("A='x y' B=\"z $A\" C=a\\ b\n"), "A=x y@1 B=z x y@1 C=a b@1 ");
  EXPECT_EQ(shell("A=1; B=2 && C=3 || D=4\nif true; then export E=5; fi"), "A=1@1 B=2@1 C=3@1 D=4@1 E=5@2 ");
  EXPECT_EQ(shell("A=1\nA=2\nunset A\nB=1\n"), "B=1@4 ");
  EXPECT_EQ(shell("export A=1 \\\n  B=2\nC=3"), "A=1@1 B=2@1 C=3@3 ") << "a line that goes on counts as where it began";
  EXPECT_EQ(shell("A=\"two\nlines\"\nB=1"), "A=two\nlines@1 B=1@3 ");
  EXPECT_EQ(shell("declare -x A=1\nsetenv B 2\nreadonly C=3"), "A=1@1 B=2@2 C=3@3 ");
  EXPECT_EQ(shell("A=1 B=2 python train.py\nenv -i C=3 python x.py\n"), "A=1@1 B=2@1 C=3@2 ");
  EXPECT_EQ(shell("docker run -e A=1 --env B=2 --env=C=3 -e HOME image"), "A=1@1 B=2@1 C=3@1 ");
  EXPECT_EQ(shell("A=1\r\nB=2\r\n"), "A=1\r@1 B=2\r@2 ");
}

TEST(Shell, Expansion) {
  EXPECT_EQ(shell("A=1\nB=$A${A}2\nC='$A'\nD=\\$A\nE=\"\\$A\""), "A=1@1 B=112@2 C=$A@3 D=$A@4 E=$A@5 ");
  EXPECT_EQ(shell("A=${B:-3}\nC=${A:-4}\nD=$USER/x"), "A=3@1 C=3@2 D=$USER/x@3 ");
  EXPECT_EQ(shell("A=$(rm -rf /tmp/never)x\nB=`id`\nC=1"), "A=$(rm -rf /tmp/never)x@1 B=`id`@2 C=1@3 ");
}

TEST(Shell, ExportInFrontOfAProgram) {
  const auto lost_in = [](const char* text) { return lost(read_settings(text, "x.sh")); };
  EXPECT_EQ(lost_in("export A=1  hipblaslt-bench --alpha 1"), "hipblaslt-bench@1 ");
  EXPECT_EQ(lost_in("\nexport A=1 python train.py"), "python@2 ");
  EXPECT_EQ(lost_in("export A=1 B=2"), "");
  EXPECT_EQ(lost_in("export A=1 B"), "") << "B is a name to export";
  EXPECT_EQ(lost_in("export A=1; python train.py"), "");
  EXPECT_EQ(lost_in("A=1 python train.py"), "");
  EXPECT_EQ(lost_in("export PATH"), "");
}

TEST(Shell, OnlyExportLosesAProgram) {
  const auto lost_in = [](const char* text) { return lost(read_settings(text, "x.sh")); };
  EXPECT_EQ(lost_in("f() { local target=$1 element; }"), "") << "element is another variable";
  EXPECT_EQ(lost_in("declare -a a=1 names\nreadonly b=2 more"), "");
  EXPECT_EQ(lost_in("local n=$1 i r=()"), "");
  EXPECT_EQ(lost_in("export TOKEN=<your token>"), "") << "a placeholder";
  EXPECT_EQ(lost_in("export A=1 >log"), "");
  EXPECT_EQ(lost_in("export A=1 $B \"c d\""), "");
  EXPECT_EQ(lost_in("export A=1 ./run.sh --x"), "./run.sh@1 ");
}

// What alternatives() makes of the variables, one environment after the other.
std::string worlds(const char* text, const char* name) {
  std::string out;
  for (const Settings& world :
       alternatives(read_settings(text, name), [](std::string_view n) { return n.size() <= 2; })) {
    for (const auto& [variable, a] : world) out += variable + "=" + a.value + " ";
    out += "| ";
  }
  return out;
}

TEST(Alternatives, Branches) {
  EXPECT_EQ(worlds("A=1\nB=2\n", "x.sh"), "A=1 B=2 | ");
  EXPECT_EQ(worlds("if x; then\n  export A=1\nelse\n  export B=2\nfi\n", "x.sh"), "A=1 | B=2 | ");
  EXPECT_EQ(worlds("case $x in\n  a) A=1 ;;\n  b|c) B=2 ;;\nesac\nC=3\n", "x.sh"),
            "A=1 C=3 | B=2 C=3 | A=1 B=2 C=3 | ");
  EXPECT_EQ(worlds("A=1 first\nA=2 second\n", "x.sh"), "A=1 | A=2 | ") << "each counts for its command";
  EXPECT_EQ(worlds("(A=1; run)\nB=2\n", "x.sh"), "A=1 B=2 | B=2 | ");
  EXPECT_EQ(worlds("A=1\nunset A\nB=2\n", "x.sh"), "B=2 | ");
  EXPECT_EQ(worlds("", "x.sh"), "| ");
}

TEST(Alternatives, StagesAndServices) {
  EXPECT_EQ(
      worlds("FROM x AS base\nENV A=1\nFROM base AS left\nENV B=2\nFROM base AS right\nENV C=3\nFROM y\nENV D=4\n",
             "Dockerfile"),
      "A=1 | A=1 B=2 | A=1 C=3 | D=4 | ");
  EXPECT_EQ(worlds("FROM x\nENV A=1\nRUN export B=2 && make\nENV C=3\n", "Dockerfile"), "A=1 C=3 | A=1 B=2 C=3 | ");
  const char* compose = "services:\n  one:\n    environment:\n      - AA=1\n  two:\n    environment:\n      - BB=2\n";
  EXPECT_EQ(worlds(compose, "compose.yaml"), "AA=1 | BB=2 | ");
  EXPECT_EQ(worlds("# Title\n```bash\nA=1\n```\n# Other\n```bash\nB=2\n```\n", "x.md"), "A=1 | B=2 | ");
}

TEST(Reasons, CommentsAboveAndBeside) {
  const auto reason = [](const std::string& text, const char* name = "x.sh") {
    const SettingsFile f = read_settings(text, name);
    return f.environment.count("A") ? f.environment.at("A").reason : "none";
  };
  EXPECT_EQ(reason("# why it is so\n# and more\nexport A=1\n"), "why it is so and more");
  EXPECT_EQ(reason("export A=1  # why\n"), "why");
  EXPECT_EQ(reason("# why\nexport B=1\nexport A=1\n"), "why") << "a comment counts for the lines below it";
  EXPECT_EQ(reason("# why\nexport B=1\n\nexport A=1\n"), "") << "up to a blank line";
  EXPECT_EQ(reason("# why\nA=1\n\ndocker run -e A=\"$A\" image\n"), "why") << "a variable that is handed on";
  EXPECT_EQ(reason("FROM x\n# why\nENV A=1\n", "Dockerfile"), "why");
  EXPECT_EQ(reason("## Debugging\nTo find it:\n```bash\nexport A=1\n```\n", "x.md"),
            "Debugging ## Debugging. To find it:");
}

TEST(Forms, ScriptsInYaml) {
  const char* text = "steps:\n  - run: |\n      export A=1\n      if x; then export B=2; fi\n    env:\n      C: 3\n";
  const SettingsFile f = read_settings(text, "ci.yml");
  EXPECT_EQ(f.environment.at("A").value, "1");
  EXPECT_EQ(f.environment.at("B").value, "2");
}

TEST(Shell, HereDocuments) {
  EXPECT_EQ(shell("A=1\ncat <<EOF > b.sh\nexport B=2\nEOF\nC=3\n"), "A=1@1 C=3@5 ");
  EXPECT_EQ(shell("cat << 'END'\nB=2\nEND\nC=3\n"), "C=3@4 ");
  EXPECT_EQ(shell("cat <<EOF\nB=2\n"), "") << "one that never ends";
}

TEST(Forms, Dockerfile) {
  const char* text =
      "FROM rocm/pytorch\nARG Z=1\nENV A=1 B=\"x y\"\nENV C some words\nENV D=1 \\\n    E=2\nRUN export F=1 && make\n";
  EXPECT_EQ(all(read_settings(text, "Dockerfile")), "A=1@3 B=x y@3 C=some words@4 D=1@5 E=2@5 F=1@7 ");
}

TEST(Forms, Systemd) {
  const char* text = "[Service]\nEnvironment=\"A=1\" \"B=x y\" C=3\nEnvironment=D=$x\nExecStart=/bin/true E=1\n";
  EXPECT_EQ(all(read_settings(text, "x.service")), "A=1@2 B=x y@2 C=3@2 D=$x@3 ");
}

TEST(Forms, ComposeFilesAndManifests) {
  const std::string text =
      "services:\n  a:\n    environment:\n      - HSA_ENABLE_SDMA=0\n      - \"NCCL_DEBUG=INFO\"\n  b:\n    "
      "environment:\n"
      "      AMD_SERIALIZE_KERNEL: 3  # for now\n      EMPTY:\n    image: rocm/pytorch:latest\n"
      "    env:\n    - name: MIOPEN_FIND_MODE\n      value: \"FAST\"\n    - name: web\n      value: x\n";
  const SettingsFile file = read_settings(text, "compose.yaml");
  ASSERT_EQ(file.assignments.size(), 4u);
  EXPECT_EQ(file.environment.at("HSA_ENABLE_SDMA").value, "0");
  EXPECT_EQ(file.environment.at("NCCL_DEBUG").value, "INFO");
  EXPECT_EQ(file.environment.at("AMD_SERIALIZE_KERNEL").value, "3");
  EXPECT_EQ(file.environment.at("MIOPEN_FIND_MODE").value, "FAST");
  EXPECT_EQ(file.environment.at("MIOPEN_FIND_MODE").line, 13);
}

TEST(Forms, GuidesAreReadByTheirCodeBlocks) {
  const char* markdown =
      "# Title\nSet `A=1`, `export B=2` and `x=1`.\nexport NO=1\n```bash\nexport "
      "C=3\n```\n```python\nNO2=1\n```\n```sh\nD='4\n5'\n```\n";
  EXPECT_EQ(all(read_settings(markdown, "guide.txt")), "A=1@2 B=2@2 C=3@5 D=4\n5@11 ");
  const char* rst =
      "Title\n=====\nUse ``A=1``.\n\n.. code-block:: shell\n\n   export B=2\n   export C=3 prog-x\n\nNO=1\n\n.. "
      "code-block:: python\n\n   NO2=1\n";
  const SettingsFile f = read_settings(rst, "guide.txt");
  EXPECT_EQ(all(f), "A=1@3 B=2@7 C=3@8 ");
  EXPECT_EQ(lost(f), "prog-x@8 ");
}

TEST(Shell, Programs) {
  const SettingsFile f = read_settings("A=1 rocprof --stats x\nsudo rocprofv2 y\n", "x.sh");
  ASSERT_EQ(f.programs.size(), 2u);
  EXPECT_EQ(f.programs[0].name, "rocprof");
  EXPECT_EQ(f.programs[1].name, "rocprofv2");
  EXPECT_EQ(f.programs[1].line, 2);
}

TEST(Hostile, ValuesDoNotGrowWithoutBound) {
  std::string text = "A=xxxxxxxxxxxxxxxx\n";
  for (int i = 0; i < 100; ++i) text += "A=$A$A$A$A$A$A$A$A\n";
  const SettingsFile f = read_settings(text, "x.sh");
  EXPECT_LE(f.environment.at("A").value.size(), 32u << 10);
}

TEST(Hostile, ManyAssignmentsAndUnclosedThings) {
  std::string many;
  for (int i = 0; i < 200000; ++i) many += "A" + std::to_string(i) + "=1\n";
  EXPECT_LE(read_settings(many, "x.sh").assignments.size(), 10000u);
  for (const char* open : {"A='", "A=\"", "A=`", "A=$(", "A=${", "A=$", "A=\\", "export", "export ", "=1", "A=\"$(\"`",
                           "<<", "cat <<", "ENV", "\\\n\\\n", "((((", "$", "|||"})
    for (const char* name : {"x.sh", "Dockerfile", "x.service", "x.md", "x.rst"}) read_settings(open, name);
  for (const std::string& deep : {std::string(100000, '('), std::string(100000, '`'), std::string(100000, '\''),
                                  std::string(100000, '$'), std::string(100000, '{')})
    for (const char* name : {"x.sh", "Dockerfile", "x.service", "x.md", "x.rst"}) read_settings("A=" + deep, name);
  EXPECT_EQ(read_settings("A='unclosed", "x.sh").problems.size(), 1u);
}

TEST(Hostile, RandomBytes) {
  std::mt19937 random(7);
  const std::string pieces[] = {"A=", "export ", "$",  "${", "}", "$(",   ")",    "'",
                                "\"", "`",       "\\", "\n", " ", ";",    "<<",   "EOF",
                                "#",  "```",     "sh", "B",  "=", "ENV ", "\xff", std::string(1, '\0'),
                                "|",  "unset "};
  for (int round = 0; round < 3000; ++round) {
    std::string text;
    for (unsigned n = random() % 60; n > 0; --n) text += pieces[random() % std::size(pieces)];
    for (const char* name : {"x.sh", "Dockerfile", "x.service", "x.md", "x.rst", "x"}) {
      const SettingsFile f = read_settings(text, name);
      for (const Assignment& a : f.assignments) EXPECT_GE(a.line, 1);
    }
  }
}

}  // namespace
}  // namespace pyflame::tools::doctor
