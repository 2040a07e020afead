// Tokenizers, folders of text, and batches that depend only on the seed and the batch's number.
#include "pyflame/data/text.h"

#include <gtest/gtest.h>

#include <set>

#include "pyflame/base/error.h"
#include "pyflame/base/philox.h"
#include "support/temp_folder.h"

namespace pyflame::data {
namespace {

using test::TempFolder;
using test::write_all;

template <class Fn>
std::string error_of(Fn fn) {
  try {
    fn();
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

TEST(Tokenizer, CharactersRoundTrip) {
  const std::string text = "héllo wörld €😀\n";
  const Tokenizer t = Tokenizer::chars(decode_utf8("test", text));
  EXPECT_EQ(t.vocabulary(), 12);
  EXPECT_EQ(t.decode(t.encode(text)), text);
  const Tokenizer again = Tokenizer::from_json(t.to_json());
  EXPECT_EQ(again.encode(text), t.encode(text));
}

TEST(Tokenizer, NamesWhatTheVocabularyLacks) {
  const Tokenizer t = Tokenizer::chars(U"abc");
  const std::string message = error_of([&] { t.encode("a\tzb€"); });
  EXPECT_NE(message.find("U+0009"), std::string::npos) << message;
  EXPECT_NE(message.find("'z' (U+007A)"), std::string::npos) << message;
  EXPECT_NE(message.find("'€' (U+20AC)"), std::string::npos) << message;
  EXPECT_EQ(message.find("'a'"), std::string::npos) << message;
}

TEST(Tokenizer, BytesTakeAnything) {
  const Tokenizer t = Tokenizer::bytes();
  std::string all;
  for (int i = 0; i < 256; ++i) all += static_cast<char>(i);
  EXPECT_EQ(t.vocabulary(), 256);
  EXPECT_EQ(t.decode(t.encode(all)), all);
  EXPECT_TRUE(Tokenizer::from_json(t.to_json()).is_bytes());
}

TEST(Tokenizer, RareCharactersAreDroppedAndCounted) {
  const std::u32string text = U"aaaabbbbc";
  const Tokenizer t = Tokenizer::chars(text, 2);
  int64_t dropped = 0;
  EXPECT_EQ(t.encode_lossy(text, dropped).size(), 8u);
  EXPECT_EQ(dropped, 1);
}

TEST(Tokenizer, BadDescriptions) {
  for (const char* json :
       {"", "{}", "[]", "{\"kind\":\"words\"}", "{\"kind\":\"chars\"}", "{\"kind\":\"chars\",\"alphabet\":\"\"}",
        "{\"kind\":\"chars\",\"alphabet\":\"ba\"}", "{\"kind\":\"chars\",\"alphabet\":\"aa\"}"}) {
    EXPECT_NE(error_of([&] { Tokenizer::from_json(json); }), "no error") << json;
  }
}

TEST(Utf8, RejectsWhatIsNotUtf8) {
  EXPECT_TRUE(is_utf8("aé€😀"));
  for (const char* bad :
       {"\x80", "\xC0\x80", "\xC3", "\xE2\x82", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xFF", "a\xC3(", "\xE0\x80\x80"}) {
    EXPECT_FALSE(is_utf8(bad));
    EXPECT_NE(error_of([&] { decode_utf8("test", bad); }), "no error");
  }
}

TEST(Utf8, StreamKeepsCharactersWhole) {
  Utf8Stream s;
  EXPECT_EQ(s.push("a\xE2"), "a");
  EXPECT_EQ(s.push("\x82"), "");
  EXPECT_EQ(s.push("\xAC!"), "€!");
  EXPECT_EQ(s.push("\xFFx"), "\xEF\xBF\xBDx");
  EXPECT_EQ(s.push("\xF0\x9F"), "");
  EXPECT_EQ(s.finish(), "\xEF\xBF\xBD");
  EXPECT_EQ(s.finish(), "");
}

TEST(ReadText, FolderInOrderOfPaths) {
  const TempFolder folder;
  for (const char* d : {"/b", "/.hidden", "/__pycache__", "/site-packages"})
    std::filesystem::create_directory(folder.str() + d);
  write_all(folder / "z.py", "Z");
  write_all(folder / "a.txt", "A");
  write_all(folder / "b/x.py", "BX");
  write_all(folder / "bad.py", "\xff\xfe");
  write_all(folder / "empty.py", "");
  write_all(folder / "image.png", "PNG");
  write_all(folder / ".hidden/h.py", "H");
  write_all(folder / "__pycache__/c.py", "C");
  write_all(folder / "site-packages/s.py", "S");
  const TextSource r = read_text(folder.str(), 1000, false);
  EXPECT_EQ(r.text, "A\nBX\nZ\n");
  EXPECT_EQ(r.files, 3);
  EXPECT_EQ(r.skipped, 2);
  EXPECT_FALSE(r.truncated);
  const TextSource cut = read_text(folder.str(), 6, false);
  EXPECT_EQ(cut.text, "A\nBX\n");
  EXPECT_TRUE(cut.truncated);
}

TEST(ReadText, FilesAndErrors) {
  const TempFolder folder;
  write_all(folder / "a.bin", "x\xff");
  EXPECT_NE(error_of([&] { read_text(folder / "a.bin", 100, false); }).find("bytes tokenizer"), std::string::npos);
  EXPECT_EQ(read_text(folder / "a.bin", 100, true).text, "x\xff");
  write_all(folder / "e", "");
  EXPECT_NE(error_of([&] { read_text(folder / "e", 100, false); }).find("is empty"), std::string::npos);
  EXPECT_NE(error_of([&] { read_text(folder / "none", 100, false); }).find("does not exist"), std::string::npos);
  std::filesystem::create_directory(folder / "d");
  EXPECT_NE(error_of([&] { read_text(folder / "d", 100, false); }).find("no text found"), std::string::npos);
  write_all(folder / "u", "a€€");
  const TextSource cut = read_text(folder / "u", 3, false);
  EXPECT_EQ(cut.text, "a");
  EXPECT_TRUE(cut.truncated);
}

TEST(TokenDataset, BatchesAreAFunctionOfSeedAndNumber) {
  std::vector<Token> tokens;
  for (int i = 0; i < 1000; ++i) tokens.push_back(static_cast<Token>(i));
  const TokenDataset d(tokens, 16);
  EXPECT_EQ(d.train_tokens(), 900);
  EXPECT_EQ(d.eval_tokens(), 100);
  std::set<int64_t> seen;
  for (int64_t index = 0; index < 50; ++index) {
    const auto [x, y] = d.batch(7, Stream::train, index, 4);
    const auto* px = static_cast<const int64_t*>(x.data());
    const auto* py = static_cast<const int64_t*>(y.data());
    for (int64_t row = 0; row < 4; ++row) {
      // The rule that the documentation states, so that other programs can draw the same batches.
      const uint64_t start = philox_element64(7, (uint64_t{1} << 63) + static_cast<uint64_t>(index), row) % (900 - 16);
      EXPECT_EQ(px[row * 16], static_cast<int64_t>(start));
      for (int64_t i = 0; i < 16; ++i) EXPECT_EQ(py[row * 16 + i], px[row * 16 + i] + 1);
      EXPECT_LT(py[row * 16 + 15], 900) << "a training row reaches into the held-out part";
      seen.insert(px[row * 16]);
    }
    const auto [again, unused] = d.batch(7, Stream::train, index, 4);
    EXPECT_EQ(0, std::memcmp(again.data(), px, 4 * 16 * sizeof(int64_t)));
    const auto [held, target] = d.batch(7, Stream::eval, index, 4);
    const auto* ph = static_cast<const int64_t*>(held.data());
    for (int64_t row = 0; row < 4; ++row) EXPECT_GE(ph[row * 16], 900);
  }
  EXPECT_GT(seen.size(), 150u);
}

TEST(TokenDataset, TooShort) {
  EXPECT_NE(error_of([] { TokenDataset(std::vector<Token>(100), 16); }).find("too short"), std::string::npos);
  EXPECT_NE(error_of([] { TokenDataset(std::vector<Token>(100), 0); }).find("positive"), std::string::npos);
  EXPECT_NE(TokenDataset({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, 1).fingerprint(),
            TokenDataset({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1, 2, 3, 4, 5, 6, 7, 8, 8}, 1).fingerprint());
}

}  // namespace
}  // namespace pyflame::data
