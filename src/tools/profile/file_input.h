// Reads a file, plain or gzip (recognised by content), as a stream with limited memory, in two forms: JSON that is
// repaired for a strict parser, and lines.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <streambuf>
#include <string>
#include <vector>

namespace pyflame::tools::profile {

class FileInput {
 public:
  explicit FileInput(const std::string& path);
  ~FileInput();
  FileInput(const FileInput&) = delete;
  FileInput& operator=(const FileInput&) = delete;
  size_t read(char* out, size_t n);                            // 0 at the end, or if the file is damaged
  double fraction() const;                                     // of the file that was read
  const std::string& error() const { return error_; }          // of a damaged file; empty: none
  void fail(std::string error) { error_ = std::move(error); }  // nothing more is read

 private:
  struct Gz;
  std::unique_ptr<Gz> gz_;
  int64_t size_ = 0, unpacked_ = 0;
  std::string error_;
};

// Profilers write JSON that is not valid: inf and nan as numbers, control characters and invalid UTF-8 in names. These
// become 0, a blank and '?'; invalid escapes become a slash. All replacements have the same length.
class JsonStreambuf : public std::streambuf {
 public:
  // `refilled` is called after each megabyte.
  explicit JsonStreambuf(FileInput& input, std::function<void()> refilled = {})
      : input_(input), refilled_(std::move(refilled)), buffer_(1 << 20) {}
  int64_t repaired() const { return repaired_; }

 protected:
  int_type underflow() override;

 private:
  size_t repair(size_t end, bool at_end);  // returns how many bytes are ready; the rest needs the following bytes
  FileInput& input_;
  std::function<void()> refilled_;
  std::vector<char> buffer_;
  size_t filled_ = 0, ready_ = 0, unquoted_ = 0;
  bool in_string_ = false, escaped_ = false;
  char last_ = 0;
  int64_t repaired_ = 0;
};

class LineReader {
 public:
  explicit LineReader(const std::string& path) : input_(path), buffer_(1 << 18) {}
  // False at the end. Lines that are longer than in any known format are cut.
  bool next(std::string& line);
  int64_t line() const { return line_; }
  double fraction() const { return input_.fraction(); }
  const std::string& error() const { return input_.error(); }

 private:
  FileInput input_;
  std::vector<char> buffer_;
  size_t at_ = 0, end_ = 0;
  int64_t line_ = 0;
};

}  // namespace pyflame::tools::profile
