#include "pyflame/data/tokenizer.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "pyflame/base/error.h"

namespace pyflame::data {

namespace {

constexpr const char* kReplacement = "\xEF\xBF\xBD";
constexpr int64_t kMaxVocabulary = 65536;

// The length of the character at `at`: > 0 if it is complete and valid, 0 if more bytes are needed, -1 if it is
// invalid.
int read_char(std::string_view s, size_t at, char32_t& out) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(s[i]); };
  const unsigned char b = byte(at);
  if (b < 0x80) {
    out = b;
    return 1;
  }
  const int length = b >= 0xF0 ? 4 : b >= 0xE0 ? 3 : 2;
  if (b < 0xC2 || b > 0xF4) return -1;
  char32_t c = static_cast<char32_t>(b & (0xFF >> (length + 1)));
  for (int i = 1; i < length; ++i) {
    if (at + static_cast<size_t>(i) >= s.size()) return 0;
    const unsigned char n = byte(at + static_cast<size_t>(i));
    // The second byte excludes overlong forms, surrogates and values above 0x10FFFF.
    const unsigned char low = i > 1 ? 0x80 : b == 0xE0 ? 0xA0 : b == 0xF0 ? 0x90 : 0x80;
    const unsigned char high = i > 1 ? 0xBF : b == 0xED ? 0x9F : b == 0xF4 ? 0x8F : 0xBF;
    if (n < low || n > high) return -1;
    c = (c << 6) | (n & 0x3F);
  }
  out = c;
  return length;
}

void append_utf8(std::string& out, char32_t c) {
  const auto put = [&](char32_t v) { out += static_cast<char>(static_cast<unsigned char>(v)); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xC0 | (c >> 6));
    put(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    put(0xE0 | (c >> 12));
    put(0x80 | ((c >> 6) & 0x3F));
    put(0x80 | (c & 0x3F));
  } else {
    put(0xF0 | (c >> 18));
    put(0x80 | ((c >> 12) & 0x3F));
    put(0x80 | ((c >> 6) & 0x3F));
    put(0x80 | (c & 0x3F));
  }
}

}  // namespace

std::u32string decode_utf8(const char* op, std::string_view text) {
  std::u32string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    char32_t c = 0;
    const int n = read_char(text, at, c);
    PF_CHECK(n > 0, Value,
             "{}: the text is not valid UTF-8 at byte {}; got 0x{:02x}; expected UTF-8, or the bytes tokenizer", op, at,
             static_cast<unsigned>(static_cast<unsigned char>(text[at])));
    out += c;
    at += static_cast<size_t>(n);
  }
  return out;
}

bool is_utf8(std::string_view text) { return count_utf8(text) == text.size(); }

size_t count_utf8(std::string_view text) {
  size_t at = 0;
  char32_t c = 0;
  for (int n = 1; n > 0 && at < text.size();) {
    n = read_char(text, at, c);
    at += static_cast<size_t>(std::max(n, 0));
  }
  return at;
}

std::string encode_utf8(std::u32string_view text) {
  std::string out;
  out.reserve(text.size());
  for (char32_t c : text) append_utf8(out, c);
  return out;
}

std::string describe_char(char32_t c) {
  if (c < 0x20 || (c >= 0x7F && c < 0xA0)) return fmt::format("U+{:04X}", static_cast<uint32_t>(c));
  return fmt::format("'{}' (U+{:04X})", encode_utf8(std::u32string(1, c)), static_cast<uint32_t>(c));
}

Tokenizer Tokenizer::bytes() { return {}; }

Tokenizer Tokenizer::chars(std::u32string_view text, int64_t min_count) {
  std::vector<int64_t> counts(0x110000, 0);
  for (char32_t c : text) ++counts[c];
  Tokenizer t;
  t.is_bytes_ = false;
  for (char32_t c = 0; c < counts.size(); ++c) {
    if (counts[c] >= std::max<int64_t>(min_count, 1)) t.alphabet_ += c;
  }
  PF_CHECK(
      !t.alphabet_.empty(), Value,
      "tokenizer: no character is frequent enough to be learned; got a text of {} characters; expected one that occurs "
      "at least {} times",
      text.size(), std::max<int64_t>(min_count, 1));
  PF_CHECK(t.vocabulary() <= kMaxVocabulary, Value,
           "tokenizer: too many different characters; got {}; expected at most {}; use the bytes tokenizer",
           t.vocabulary(), kMaxVocabulary);
  return t;
}

Tokenizer Tokenizer::from_json(const std::string& json) {
  try {
    const nlohmann::json j = nlohmann::json::parse(json);
    const std::string kind = j.at("kind");
    if (kind == "bytes") return bytes();
    PF_CHECK(kind == "chars", Value, "tokenizer: there is no such kind; got '{}'; expected 'chars' or 'bytes'", kind);
    Tokenizer t;
    t.is_bytes_ = false;
    t.alphabet_ = decode_utf8("tokenizer", j.at("alphabet").get<std::string>());
    PF_CHECK(
        !t.alphabet_.empty() && t.vocabulary() <= kMaxVocabulary &&
            std::is_sorted(t.alphabet_.begin(), t.alphabet_.end()) &&
            std::adjacent_find(t.alphabet_.begin(), t.alphabet_.end()) == t.alphabet_.end(),
        Value,
        "tokenizer: the alphabet is not valid; got {} characters; expected 1 to {} different ones in ascending order",
        t.vocabulary(), kMaxVocabulary);
    return t;
  } catch (const nlohmann::json::exception&) {
    PF_FAIL(Value, "tokenizer: its description is not valid; got {}; expected kind and alphabet", json.substr(0, 80));
  }
}

std::string Tokenizer::to_json() const {
  nlohmann::json j;
  j["kind"] = is_bytes_ ? "bytes" : "chars";
  if (!is_bytes_) j["alphabet"] = encode_utf8(alphabet_);
  return j.dump();
}

std::vector<Token> Tokenizer::encode_lossy(std::u32string_view text, int64_t& dropped) const {
  dropped = 0;
  std::vector<Token> out;
  out.reserve(text.size());
  // Indexed directly for the basic plane, which has nearly all characters of texts.
  std::vector<int32_t> table(0x10000, -1);
  std::map<char32_t, int32_t> rest;
  for (size_t i = 0; i < alphabet_.size(); ++i) {
    if (alphabet_[i] < table.size()) table[alphabet_[i]] = static_cast<int32_t>(i);
    else rest[alphabet_[i]] = static_cast<int32_t>(i);
  }
  for (char32_t c : text) {
    int32_t id = -1;
    if (c < table.size()) {
      id = table[c];
    } else if (const auto it = rest.find(c); it != rest.end()) {
      id = it->second;
    }
    if (id < 0) ++dropped;
    else out.push_back(static_cast<Token>(id));
  }
  return out;
}

std::vector<Token> Tokenizer::encode(std::string_view text) const {
  if (is_bytes_) {
    std::vector<Token> out;
    for (char c : text) out.push_back(static_cast<unsigned char>(c));
    return out;
  }
  const std::u32string points = decode_utf8("encode", text);
  int64_t dropped = 0;
  std::vector<Token> out = encode_lossy(points, dropped);
  if (dropped > 0) {
    std::set<char32_t> missing;
    for (char32_t c : points) {
      if (!std::binary_search(alphabet_.begin(), alphabet_.end(), c)) missing.insert(c);
    }
    std::string names;
    for (char32_t c : missing) names += (names.empty() ? "" : ", ") + describe_char(c);
    PF_FAIL(Value,
            "encode: the vocabulary lacks characters of the text; got {}; expected only the {} characters of the "
            "training text",
            names, vocabulary());
  }
  return out;
}

std::string Tokenizer::decode(Token t) const {
  PF_CHECK(t < vocabulary(), Index, "decode: token out of range; got {}; expected below {}", t, vocabulary());
  if (is_bytes_) return std::string(1, static_cast<char>(static_cast<unsigned char>(t)));
  std::string out;
  append_utf8(out, alphabet_[t]);
  return out;
}

std::string Tokenizer::decode(const std::vector<Token>& tokens) const {
  std::string out;
  for (Token t : tokens) out += decode(t);
  return out;
}

std::string Utf8Stream::push(std::string_view bytes) {
  pending_ += bytes;
  std::string out;
  size_t at = 0;
  while (at < pending_.size()) {
    char32_t c = 0;
    const int n = read_char(pending_, at, c);
    if (n == 0) break;
    if (n < 0) {
      out += kReplacement;
      ++at;
    } else {
      out.append(pending_, at, static_cast<size_t>(n));
      at += static_cast<size_t>(n);
    }
  }
  pending_.erase(0, at);
  return out;
}

std::string Utf8Stream::finish() {
  const bool left = !pending_.empty();
  pending_.clear();
  return left ? kReplacement : "";
}

}  // namespace pyflame::data
