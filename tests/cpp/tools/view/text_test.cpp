// Text for terminals: columns of UTF-8, untrusted text, wrapping, tables and numbers with units.
#include "tools/view/text.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <sstream>
#include <string>

namespace pyflame::tools::view {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

std::vector<std::string> lines(const std::string& text) {
  std::vector<std::string> out;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) out.push_back(line);
  return out;
}

TEST(Text, WidthCountsCodePoints) {
  EXPECT_EQ(width_of(""), 0);
  EXPECT_EQ(width_of("abc"), 3);
  EXPECT_EQ(width_of("äöü…"), 4);
  EXPECT_EQ(width_of("漢字"), 2);
  EXPECT_EQ(width_of("a\nb\tc"), 3);
  EXPECT_EQ(width_of("\x1b[31mred\x1b[0m"), 3);
  EXPECT_EQ(width_of("\x1b[31"), 3);       // not a colour sequence: only ESC is nothing
  EXPECT_EQ(width_of("\xff\xfe"), 2);      // each wrong byte shows as one replacement
  EXPECT_EQ(width_of("\xe2\x80"), 2);      // a cut sequence
  EXPECT_EQ(width_of("\xc0\xaf"), 2);      // overlong
  EXPECT_EQ(width_of("\xed\xa0\x80"), 3);  // a surrogate
}

TEST(Text, CleanReplacesWhatATerminalWouldObey) {
  EXPECT_EQ(clean("plain text"), "plain text");
  EXPECT_EQ(clean("\x1b[2Jgone"), "\xEF\xBF\xBD[2Jgone");
  EXPECT_EQ(clean("a\nb\tc"), "a b c");
  EXPECT_EQ(clean("x\xffy"), "x\xEF\xBF\xBDy");
  EXPECT_EQ(clean("\xc2\x9b"
                  "31m"),
            "\xEF\xBF\xBD"
            "31m");  // CSI as one code point
  EXPECT_EQ(clean("a\xe2\x80\xae"
                  "b"),
            "a\xEF\xBF\xBD"
            "b");  // right-to-left override
  EXPECT_EQ(clean(std::string("a\0b", 3)),
            "a\xEF\xBF\xBD"
            "b");
  EXPECT_EQ(clean("größe"), "größe");
}

TEST(Text, CleanCutsAtTheWidth) {
  EXPECT_EQ(clean("abcdef", 6), "abcdef");
  EXPECT_EQ(clean("abcdefg", 6), "abcde…");
  EXPECT_EQ(clean("äöüäöüä", 3), "äö…");
  EXPECT_EQ(clean("abc", 0), "");
  EXPECT_EQ(width_of(clean(std::string(1000000, 'x'))), 1000);
}

TEST(Text, WrapKeepsWordsAndTheWidth) {
  EXPECT_EQ(wrap("", 20), "");
  EXPECT_EQ(wrap("one two three", 20), "one two three");
  EXPECT_EQ(wrap("one two three", 8), "one two\nthree");
  EXPECT_EQ(wrap("one  two", 20), "one two");
  EXPECT_EQ(wrap("one two three four", 12, 2), "one two\n  three four");
  EXPECT_EQ(wrap("first\nsecond", 20), "first\nsecond");
  EXPECT_EQ(wrap("ein größerer Käfer", 12), "ein größerer\nKäfer");
  EXPECT_EQ(wrap("abcdefghijklmnop", 10), "abcdefghij\nklmnop");
}

TEST(Text, WrapNeverExceedsTheWidth) {
  std::string text;
  for (int i = 1; i < 60; ++i) text += std::string(static_cast<size_t>(i * 7 % 31 + 1), 'w') + (i % 9 ? " " : "\n");
  for (int width = 10; width < 60; width += 7)
    for (const std::string& line : lines(wrap(text, width, 2))) EXPECT_LE(width_of(line), width);
}

TEST(Text, PaintOnlyWhereColourIsWanted) {
  EXPECT_EQ(paint({}, Tone::red, "x"), "x");
  EXPECT_EQ(paint({true, 100}, Tone::red, "x"), "\x1b[31mx\x1b[0m");
  EXPECT_EQ(paint({true, 100}, Tone::plain, "x"), "x");
  EXPECT_EQ(paint({true, 100}, Tone::red, ""), "");
}

TEST(Text, StyleOfAFile) {
  FILE* file = tmpfile();
  ASSERT_NE(file, nullptr);
  const Style style = Style::of(fileno(file));
  EXPECT_FALSE(style.color);
  EXPECT_EQ(style.width, 100);
  fclose(file);
}

TEST(Text, TableAligns) {
  EXPECT_EQ(table({}, {"name", ">us", "note"}, {{"gemm", "12", "x"}, {"größe", "3", ""}}),
            "name   us  note\n"
            "gemm   12  x\n"
            "größe   3\n");
  EXPECT_EQ(table({}, {"a"}, {}), "a\n");
  EXPECT_EQ(table({}, {}, {}), "");
  EXPECT_EQ(table({}, {"", ""}, {{"a", "b"}}), "a  b\n");
  EXPECT_EQ(table({}, {"a", "b"}, {{"1"}, {"1", "2", "3"}}), "a  b\n1\n1  2  3\n");
}

TEST(Text, TableCutsTheWidestLeftColumn) {
  const std::string text =
      table({false, 40}, {"kernel", ">time", "file"}, {{std::string(80, 'k'), "1234567", "short.hip"}});
  for (const std::string& line : lines(text)) EXPECT_LE(width_of(line), 40);
  EXPECT_NE(text.find("1234567"), std::string::npos);
  EXPECT_NE(text.find("short.hip"), std::string::npos);
  EXPECT_NE(text.find("k…"), std::string::npos);
  const std::string two = table({false, 60}, {"a", "b"}, {{std::string(300, 'a'), std::string(50, 'b')}});
  EXPECT_EQ(width_of(lines(two)[1]), 60);
  EXPECT_GT(std::count(two.begin(), two.end(), 'b'), 25);
}

TEST(Text, TableCutsPaintedCellsWithoutLeavingColourOn) {
  const Style style{true, 20};
  const std::string text = table(style, {"x"}, {{paint(style, Tone::red, std::string(50, 'r'))}});
  const std::string row = lines(text)[1];
  EXPECT_EQ(width_of(row), 20);
  EXPECT_EQ(row.substr(row.size() - 4), "\x1b[0m");
}

TEST(Text, ANarrowTerminalHasAParagraphForEachRow) {
  const std::vector<std::string> titles = {"kernel", ">VGPRs", ">bytes", "note"};
  const std::vector<std::vector<std::string>> rows = {{"a_long_name_of_a_kernel", "12", "1234567890", ""},
                                                      {"b", "3", "4", "what is said of it"}};
  EXPECT_EQ(table({false, 30}, titles, rows),
            "a_long_name_of_a_kernel\n"
            "  VGPRs 12, bytes 1234567890\n"
            "b\n"
            "  VGPRs 3, bytes 4, note what\n"
            "  is said of it\n");
  EXPECT_EQ(table({false, 80}, titles, rows).substr(0, 6), "kernel");
}

TEST(Text, Bar) {
  EXPECT_EQ(bar(0, 4), "    ");
  EXPECT_EQ(bar(1, 4), "████");
  EXPECT_EQ(bar(0.5, 4), "██  ");
  EXPECT_EQ(bar(7, 4), "████");
  EXPECT_EQ(bar(-1, 4), "    ");
  EXPECT_EQ(bar(kNan, 4), "    ");
  EXPECT_EQ(bar(1e-9, 4), "▏   ");
  for (int i = 0; i <= 100; ++i) EXPECT_EQ(width_of(bar(i / 100.0, 13)), 13);
}

TEST(Text, Numbers) {
  EXPECT_EQ(bytes(0), "0 B");
  EXPECT_EQ(bytes(512), "512 B");
  EXPECT_EQ(bytes(1536), "1.5 KiB");
  EXPECT_EQ(bytes(1024 - 0.25), "1 KiB");
  EXPECT_EQ(bytes(206158430208.0), "192 GiB");
  EXPECT_EQ(bytes(kNan), "n/a");
  EXPECT_EQ(microseconds(3.2), "3.2 us");
  EXPECT_EQ(microseconds(1250), "1.25 ms");
  EXPECT_EQ(microseconds(2.1e6), "2.1 s");
  EXPECT_EQ(microseconds(0.25), "250 ns");
  EXPECT_EQ(microseconds(0), "0 us");
  EXPECT_EQ(microseconds(-1250), "-1.25 ms");
  EXPECT_EQ(microseconds(999.7), "1 ms");
  EXPECT_EQ(percent(0.123), "12.3 %");
  EXPECT_EQ(percent(0), "0.0 %");
  EXPECT_EQ(percent(1), "100.0 %");
  EXPECT_EQ(percent(kInf), "n/a");
  EXPECT_EQ(count(812), "812");
  EXPECT_EQ(count(31200), "31.2k");
  EXPECT_EQ(count(4.1e6), "4.1M");
  EXPECT_EQ(count(999999), "1M");
  EXPECT_EQ(rate(1.2e12, "FLOP/s"), "1.2 TFLOP/s");
  EXPECT_EQ(rate(5.3e12, "B/s"), "5.3 TB/s");
  EXPECT_EQ(rate(12, "B/s"), "12 B/s");
  EXPECT_EQ(rate(kNan, "B/s"), "n/a");
  EXPECT_LT(bytes(1e300).size(), 20u);
}

}  // namespace
}  // namespace pyflame::tools::view
