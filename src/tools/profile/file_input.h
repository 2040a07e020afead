// Bytes of a file, plain or gzip (by content), as a stream of bounded memory, in two forms: JSON made acceptable to a strict parser,
// and lines.
#pragma once
#include <cstdint>
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
  size_t read(char* out, size_t n);                    // 0 at the end, or where the file is damaged
  double fraction() const;                             // of the file that was read
  const std::string& error() const { return error_; }  // of a damaged file; empty: none so far

 private:
  struct Gz;
  std::unique_ptr<Gz> gz_;
  int64_t size_ = 0;
  std::string error_;
};

// Profilers write JSON that is not quite JSON: inf and nan as numbers, control characters and broken UTF-8 in names. They become 0,
// a blank and '?', escapes that JSON lacks become a slash; each of the same length.
class JsonStreambuf : public std::streambuf {
 public:
  explicit JsonStreambuf(FileInput& input) : input_(input), buffer_(1 << 20) {}
  int64_t repaired() const { return repaired_; }

 protected:
  int_type underflow() override;

 private:
  size_t repair(size_t end, bool at_end);  // returns how much is ready; the rest needs the bytes that follow
  FileInput& input_;
  std::vector<char> buffer_;
  size_t filled_ = 0, ready_ = 0;
  bool in_string_ = false, escaped_ = false;
  char last_ = 0;
  int64_t repaired_ = 0;
};

class LineReader {
 public:
  explicit LineReader(const std::string& path) : input_(path), buffer_(1 << 18) {}
  // False at the end. Lines beyond a length that no format has are cut.
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
