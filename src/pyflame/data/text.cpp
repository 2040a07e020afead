#include "pyflame/data/text.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "pyflame/base/error.h"
#include "pyflame/base/philox.h"
#include "pyflame/ops/ops.h"

namespace pyflame::data {

namespace fs = std::filesystem;

namespace {

constexpr std::array kExtensions = {
    ".py",   ".pyi", ".pyx",   ".txt",  ".md",   ".rst",  ".tex",  ".c",   ".h",    ".cc",   ".cpp", ".cxx", ".hpp",
    ".hh",   ".cu",  ".hip",   ".rs",   ".go",   ".java", ".js",   ".ts",  ".jsx",  ".tsx",  ".rb",  ".php", ".pl",
    ".sh",   ".lua", ".swift", ".kt",   ".cs",   ".hs",   ".ml",   ".el",  ".lisp", ".scm",  ".r",   ".jl",  ".sql",
    ".html", ".css", ".xml",   ".json", ".yaml", ".yml",  ".toml", ".ini", ".cfg",  ".cmake"};
constexpr std::array kSkippedFolders = {"__pycache__", "site-packages", "dist-packages", "node_modules"};

template <class List>
bool contains(const List& list, const std::string& s) {
  return std::find(list.begin(), list.end(), s) != list.end();
}

// Up to `limit` bytes of the file; false when it cannot be read.
bool read_file(const fs::path& path, int64_t limit, std::string& out, bool& truncated) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return false;
  std::array<char, 1 << 16> buffer;
  while (in && static_cast<int64_t>(out.size()) < limit) {
    in.read(buffer.data(),
            std::min<int64_t>(static_cast<int64_t>(buffer.size()), limit - static_cast<int64_t>(out.size())));
    out.append(buffer.data(), static_cast<size_t>(in.gcount()));
  }
  truncated = in && in.peek() != std::ifstream::traits_type::eof();
  return !in.bad();
}

std::vector<fs::path> list_files(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code ec;
  fs::recursive_directory_iterator it(folder, fs::directory_options::skip_permission_denied, ec);
  PF_CHECK(!ec, OS, "read_text: cannot read the folder '{}': {}", folder.string(), ec.message());
  for (const fs::recursive_directory_iterator end; it != end; it.increment(ec)) {
    PF_CHECK(!ec, OS, "read_text: cannot read below '{}': {}", folder.string(), ec.message());
    const std::string name = it->path().filename().string();
    std::error_code ignored;
    if (it->is_directory(ignored)) {
      if (name.starts_with(".") || contains(kSkippedFolders, name)) it.disable_recursion_pending();
    } else if (it->is_regular_file(ignored) && !name.starts_with(".") &&
               contains(kExtensions, it->path().extension().string())) {
      files.push_back(it->path());
    }
  }
  // Sorted by the text of the relative path, so that the order does not depend on the file system.
  std::sort(files.begin(), files.end(),
            [](const fs::path& a, const fs::path& b) { return a.generic_string() < b.generic_string(); });
  return files;
}

TextSource read_folder(const std::string& path, int64_t max_bytes) {
  TextSource r;
  for (const fs::path& file : list_files(path)) {
    std::string text;
    bool cut = false;
    if (!read_file(file, max_bytes, text, cut) || text.empty() || !is_utf8(text)) {
      if (cut) {
        r.truncated = true;
        break;
      }
      ++r.skipped;
      continue;
    }
    if (cut || static_cast<int64_t>(r.text.size() + text.size()) + 1 > max_bytes) {
      r.truncated = true;
      break;
    }
    r.text += text;
    r.text += '\n';
    ++r.files;
  }
  PF_CHECK(r.files > 0, OS,
           "read_text: no text found in the folder '{}'; got {} files that are not UTF-8 text; expected "
           "source or text files such as .py or .txt",
           path, r.skipped);
  return r;
}

uint64_t fnv1a(const std::vector<Token>& tokens) {
  uint64_t h = 0xcbf29ce484222325u;
  for (Token t : tokens) h = (h ^ t) * 0x100000001b3u;
  return h;
}

}  // namespace

TextSource read_text(const std::string& path, int64_t max_bytes, bool any_bytes) {
  PF_CHECK(max_bytes > 0, Value, "read_text: the size limit must be positive; got {}", max_bytes);
  std::error_code ec;
  const fs::file_status status = fs::status(path, ec);
  PF_CHECK(fs::exists(status), OS, "read_text: '{}' does not exist; expected a text file or a folder", path);
  if (fs::is_directory(status)) return read_folder(path, max_bytes);
  TextSource r;
  r.files = 1;
  PF_CHECK(read_file(path, max_bytes, r.text, r.truncated), OS, "read_text: cannot read '{}'", path);
  PF_CHECK(!r.text.empty(), Value, "read_text: '{}' is empty; expected text", path);
  if (!any_bytes) {
    // The limit may have cut a character in two.
    while (r.truncated && !r.text.empty() && (static_cast<unsigned char>(r.text.back()) & 0xC0) == 0x80)
      r.text.pop_back();
    if (r.truncated && !r.text.empty() && static_cast<unsigned char>(r.text.back()) >= 0xC0) r.text.pop_back();
    PF_CHECK(is_utf8(r.text), Value,
             "read_text: '{}' is not valid UTF-8; expected UTF-8 text; hint: the bytes tokenizer reads any data", path);
  }
  return r;
}

std::vector<int64_t> batch_starts(uint64_t seed, Stream stream, int64_t index, int64_t batch, int64_t tokens,
                                  int64_t block) {
  const uint64_t offset = static_cast<uint64_t>(stream) + static_cast<uint64_t>(index);
  const uint64_t choices = static_cast<uint64_t>(tokens - block);
  std::vector<int64_t> starts(static_cast<size_t>(batch));
  for (int64_t row = 0; row < batch; ++row) {
    starts[static_cast<size_t>(row)] = static_cast<int64_t>(philox_element64(seed, offset, row) % choices);
  }
  return starts;
}

TokenDataset::TokenDataset(std::vector<Token> tokens, int64_t block)
    : tokens_(std::move(tokens)),
      block_(block),
      split_(static_cast<int64_t>(tokens_.size()) * 9 / 10),
      fingerprint_(fnv1a(tokens_)) {
  PF_CHECK(block > 0, Value, "dataset: block_size must be positive; got {}", block);
  PF_CHECK(
      std::min(train_tokens(), eval_tokens()) > block, Value,
      "dataset: the text is too short; got {} tokens for training and {} held out; expected more than block_size {} in "
      "each; use more text or a smaller block_size",
      train_tokens(), eval_tokens(), block);
}

TokenDataset::Rows TokenDataset::rows(uint64_t seed, Stream stream, int64_t index, int64_t batch_size) const {
  const bool train = stream == Stream::train;
  const int64_t base = train ? 0 : split_;
  const std::vector<int64_t> starts =
      batch_starts(seed, stream, index, batch_size, train ? train_tokens() : eval_tokens(), block_);
  Rows rows;
  auto& [x, y] = rows;
  x.reserve(static_cast<size_t>(batch_size * block_));
  y.reserve(x.capacity());
  for (int64_t s : starts) {
    const auto from = tokens_.begin() + base + s;
    x.insert(x.end(), from, from + block_);
    y.insert(y.end(), from + 1, from + block_ + 1);
  }
  return rows;
}

std::pair<Tensor, Tensor> TokenDataset::tensors(const Rows& rows) const {
  const Dims shape = {static_cast<int64_t>(rows.x.size()) / block_, block_};
  return {from_host(rows.x.data(), shape, DType::int64), from_host(rows.y.data(), shape, DType::int64)};
}

std::pair<Tensor, Tensor> TokenDataset::batch(uint64_t seed, Stream stream, int64_t index, int64_t batch_size) const {
  return tensors(rows(seed, stream, index, batch_size));
}

}  // namespace pyflame::data
