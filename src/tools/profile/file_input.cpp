// Reads plain and gzip files in pieces.
#include "tools/profile/file_input.h"

#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "pyflame/base/error.h"

namespace pyflame::tools::profile {

namespace {

constexpr size_t kMaxLine = 1 << 20;
// Traces become 10 to 40 times smaller. A small file that grows much more was made to exhaust its reader.
constexpr int64_t kMaxExpansion = 100, kFreeBytes = 64 << 20;
// The parser keeps a whole token, so a text or a run of blanks without end would fill the memory.
constexpr size_t kMaxUnquoted = 64 << 20;

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

// The length of a UTF-8 sequence by its first byte; 0: invalid.
size_t sequence_length(unsigned char c) {
  if (c < 0x80) return 1;
  if (c >= 0xC2 && c <= 0xDF) return 2;
  if (c >= 0xE0 && c <= 0xEF) return 3;
  if (c >= 0xF0 && c <= 0xF4) return 4;
  return 0;
}

bool valid_sequence(const char* p, size_t n) {
  const auto at = [&](size_t i) { return static_cast<unsigned char>(p[i]); };
  for (size_t i = 1; i < n; ++i)
    if ((at(i) & 0xC0) != 0x80) return false;
  if (at(0) == 0xE0 && at(1) < 0xA0) return false;  // overlong
  if (at(0) == 0xED && at(1) > 0x9F) return false;  // surrogates
  if (at(0) == 0xF0 && at(1) < 0x90) return false;
  if (at(0) == 0xF4 && at(1) > 0x8F) return false;
  return true;
}

}  // namespace

struct FileInput::Gz {
  gzFile file = nullptr;
};

FileInput::FileInput(const std::string& path) : gz_(std::make_unique<Gz>()) {
  std::error_code ec;
  size_ = static_cast<int64_t>(std::filesystem::file_size(path, ec));
  PF_CHECK(!ec, OS, "report: '{}' cannot be read: {}", path, ec.message());
  gz_->file = gzopen(path.c_str(), "rb");
  PF_CHECK(gz_->file != nullptr, OS, "report: '{}' cannot be read: {}", path, std::strerror(errno));
  gzbuffer(gz_->file, 1 << 18);
}

FileInput::~FileInput() {
  if (gz_->file != nullptr) gzclose(gz_->file);
}

size_t FileInput::read(char* out, size_t n) {
  if (!error_.empty()) return 0;
  if (unpacked_ > kFreeBytes && unpacked_ / kMaxExpansion > gzoffset(gz_->file)) {
    error_ =
        fmt::format("the compressed file grows more than {} times, as no trace does; what is beyond {} MB was not read",
                    kMaxExpansion, unpacked_ >> 20);
    return 0;
  }
  const int got = gzread(gz_->file, out, static_cast<unsigned>(n));
  unpacked_ += std::max(0, got);
  if (got >= 0 && static_cast<size_t>(got) == n) return n;
  int code = Z_OK;
  const char* text = gzerror(gz_->file, &code);
  if (code == Z_BUF_ERROR) error_ = "the compressed file ends early";
  else if (code != Z_OK && code != Z_STREAM_END) error_ = code == Z_ERRNO ? std::strerror(errno) : text;
  return got > 0 ? static_cast<size_t>(got) : 0;
}

double FileInput::fraction() const {
  const auto at = static_cast<double>(gzoffset(gz_->file));
  return size_ > 0 && at >= 0 ? std::min(1.0, at / static_cast<double>(size_)) : 0.0;
}

JsonStreambuf::int_type JsonStreambuf::underflow() {
  if (refilled_) refilled_();
  // Keeps the bytes that are not ready and reads more, until some are ready or the file ends.
  size_t got = 0;
  do {
    const size_t rest = filled_ - ready_;
    std::memmove(buffer_.data(), buffer_.data() + ready_, rest);
    got = input_.read(buffer_.data() + rest, buffer_.size() - rest);
    filled_ = rest + got;
    unquoted_ = std::memchr(buffer_.data() + rest, '"', got) == nullptr ? unquoted_ + got : 0;
    if (unquoted_ > kMaxUnquoted) input_.fail("it has a text or blanks of more than 64 MB; what follows was not read");
    ready_ = repair(filled_, got == 0);
  } while (ready_ == 0 && got > 0);
  setg(buffer_.data(), buffer_.data(), buffer_.data() + ready_);
  return ready_ == 0 ? traits_type::eof() : traits_type::to_int_type(buffer_[0]);
}

size_t JsonStreambuf::repair(size_t end, bool at_end) {
  char* b = buffer_.data();
  size_t i = 0;
  while (i < end) {
    const auto c = static_cast<unsigned char>(b[i]);
    if (c >= 0x80) {
      const size_t n = sequence_length(c);
      if (n > 0 && i + n > end && !at_end) return i;
      if (n == 0 || i + n > end || !valid_sequence(b + i, n)) {
        b[i] = '?';
        ++repaired_;
        ++i;
      } else {
        i += n;
      }
      last_ = '?';
      escaped_ = false;
      continue;
    }
    if (c < 0x20) {
      if (in_string_) ++repaired_;
      b[i] = escaped_ ? 'n' : ' ';
      escaped_ = false;
    } else if (in_string_) {
      if (escaped_) {
        escaped_ = false;
        // Paths of Windows whose backslashes were not escaped.
        if (std::string_view("\"\\/bfnrtu").find(b[i]) == std::string_view::npos) {
          b[i] = '/';
          ++repaired_;
        }
      } else if (c == '\\') escaped_ = true;
      else if (c == '"') in_string_ = false;
    } else if (c == '"') {
      in_string_ = true;
    } else if (is_letter(b[i]) && !(last_ >= '0' && last_ <= '9') && last_ != '.') {
      size_t stop = i;
      while (stop < end && is_letter(b[stop])) ++stop;
      if (stop == end && !at_end && end - i < 64) return i;
      const std::string_view word(b + i, stop - i);
      if (word != "true" && word != "false" && word != "null") {
        std::memset(b + i, ' ', word.size());
        b[i] = '0';
        ++repaired_;
      }
      i = stop;
      last_ = ' ';
      continue;
    }
    last_ = b[i];
    ++i;
  }
  return end;
}

bool LineReader::next(std::string& line) {
  line.clear();
  bool any = false;
  while (true) {
    if (at_ == end_) {
      at_ = 0;
      end_ = input_.read(buffer_.data(), buffer_.size());
      if (end_ == 0) break;
    }
    any = true;
    const char* begin = buffer_.data() + at_;
    const char* stop = static_cast<const char*>(std::memchr(begin, '\n', end_ - at_));
    const size_t n = stop == nullptr ? end_ - at_ : static_cast<size_t>(stop - begin);
    line.append(begin, std::min(n, kMaxLine - std::min(kMaxLine, line.size())));
    at_ += n;
    if (stop != nullptr) {
      ++at_;
      break;
    }
  }
  if (!any) return false;
  if (!line.empty() && line.back() == '\r') line.pop_back();
  ++line_;
  return true;
}

}  // namespace pyflame::tools::profile
