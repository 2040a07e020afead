// Converts text to numbers: to characters (the Unicode code points of the training text) or to bytes (256, for any
// text).
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace pyflame::data {

// The number of a character or byte.
using Token = uint16_t;

// The code points of valid UTF-8; otherwise a ValueError names `op` and the byte.
std::u32string decode_utf8(const char* op, std::string_view text);
bool is_utf8(std::string_view text);
// How many bytes at the beginning are valid UTF-8: all, or those before the first wrong character.
size_t count_utf8(std::string_view text);
std::string encode_utf8(std::u32string_view text);
// A character for a message: the character itself if it is printable, and its code.
std::string describe_char(char32_t c);

// A vocabulary: bytes, or characters. Two are made alike from the JSON text of one.
class Tokenizer {
 public:
  static Tokenizer bytes();
  // Every character that occurs at least `min_count` times, in the order of their codes. ValueError above 65536 characters.
  static Tokenizer chars(std::u32string_view text, int64_t min_count = 1);
  static Tokenizer from_json(const std::string& json);
  std::string to_json() const;

  bool is_bytes() const { return is_bytes_; }
  int64_t vocabulary() const { return is_bytes_ ? 256 : static_cast<int64_t>(alphabet_.size()); }

  // ValueError that names every character that is missing in the vocabulary.
  std::vector<Token> encode(std::string_view text) const;
  // Characters outside the vocabulary are dropped; `dropped` counts them.
  std::vector<Token> encode_lossy(std::u32string_view text, int64_t& dropped) const;
  // The bytes of one token: a whole character, or one byte.
  std::string decode(Token t) const;
  std::string decode(const std::vector<Token>& tokens) const;

 private:
  bool is_bytes_ = true;
  std::u32string alphabet_;  // sorted
};

// Makes valid UTF-8 from the bytes of a stream of tokens: it holds back an unfinished character and replaces invalid
// ones.
class Utf8Stream {
 public:
  std::string push(std::string_view bytes);
  std::string finish();  // the rest: a replacement character for an unfinished one

 private:
  std::string pending_;
};

}  // namespace pyflame::data
