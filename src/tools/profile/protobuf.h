// Reads the fields of a protobuf message, which may be hostile: nothing outside of the message is read.
#pragma once
#include <cstdint>
#include <string_view>

namespace pyflame::tools::profile {

class Message {
 public:
  explicit Message(std::string_view bytes) : rest_(bytes) {}

  // Goes to the next field; false at the end, or if the message is damaged.
  bool next() {
    uint64_t key = 0;
    if (rest_.empty() || !varint(key)) return false;
    field_ = static_cast<uint32_t>(key >> 3);
    number_ = 0;
    bytes_ = {};
    switch (key & 7) {
      case 0: return varint(number_);
      case 1: return take(8);
      case 2: return varint(number_) && take(number_);
      case 5: return take(4);
      default: return damage();
    }
  }
  uint32_t field() const { return field_; }
  uint64_t number() const { return number_; }
  int64_t integer() const { return static_cast<int64_t>(number_); }
  std::string_view bytes() const { return bytes_; }  // of a text, a message or a fixed number
  bool damaged() const { return damaged_; }

 private:
  bool varint(uint64_t& value) {
    value = 0;
    for (unsigned shift = 0; shift < 64 && !rest_.empty(); shift += 7) {
      const auto byte = static_cast<unsigned char>(rest_[0]);
      rest_.remove_prefix(1);
      value |= static_cast<uint64_t>(byte & 0x7F) << shift;
      if (byte < 0x80) return true;
    }
    return damage();
  }
  bool take(uint64_t size) {
    if (size > rest_.size()) return damage();
    bytes_ = rest_.substr(0, static_cast<size_t>(size));
    rest_.remove_prefix(static_cast<size_t>(size));
    return true;
  }
  bool damage() {
    damaged_ = true;
    return false;
  }

  std::string_view rest_, bytes_;
  uint64_t number_ = 0;
  uint32_t field_ = 0;
  bool damaged_ = false;
};

}  // namespace pyflame::tools::profile
