// Text for language models: a file or a folder as one sequence of tokens, split 90/10 into a training part and a
// held-out part, and batches drawn by counter-based random numbers. A batch is a pure function of (seed, stream, number
// of the batch). So the data position in a checkpoint is one integer, and a resumed run gets the batches that an
// uninterrupted run would have seen.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "pyflame/data/tokenizer.h"
#include "pyflame/tensor/tensor.h"

namespace pyflame::data {

// A text, and how many files it is made of.
struct TextSource {
  std::string text;
  int64_t files = 0, skipped = 0;  // skipped: not UTF-8, or empty
  bool truncated = false;          // the size limit was reached
};

// A file: its bytes, up to max_bytes. A folder: every file below it that has the extension of a source or text file and
// is valid UTF-8, in the order of their paths, until the next one would exceed max_bytes. Hidden folders, caches and
// installed packages (site-packages, node_modules, …) are skipped. OSError if there is nothing to read; ValueError if a
// file is not UTF-8 and `any_bytes` is false.
TextSource read_text(const std::string& path, int64_t max_bytes, bool any_bytes);

// The start of each row of batch `index`: philox_element64(seed, stream_offset + index, row) mod (tokens - block).
// stream_offset is 2^63 for training and 2^63 + 2^62 for evaluation, out of reach of the global generator's offsets.
enum class Stream : uint64_t { train = uint64_t{1} << 63, eval = (uint64_t{1} << 63) + (uint64_t{1} << 62) };
std::vector<int64_t> batch_starts(uint64_t seed, Stream stream, int64_t index, int64_t batch, int64_t tokens,
                                  int64_t block);

// Tokens in two parts, of which batches are drawn.
class TokenDataset {
 public:
  // ValueError if either part is too short for one row of block + 1 tokens.
  TokenDataset(std::vector<Token> tokens, int64_t block);
  int64_t train_tokens() const { return split_; }
  int64_t eval_tokens() const { return static_cast<int64_t>(tokens_.size()) - split_; }
  uint64_t fingerprint() const { return fingerprint_; }  // a hash of all tokens; a resumed run must have the same

  // The tokens of a batch in the host's memory. A pure function, which any thread may call.
  struct Rows {
    std::vector<int64_t> x, y;
  };
  Rows rows(uint64_t seed, Stream stream, int64_t index, int64_t batch_size) const;
  // Inputs and targets (the inputs shifted by one), both int64 [batch, block].
  std::pair<Tensor, Tensor> tensors(const Rows& rows) const;
  std::pair<Tensor, Tensor> batch(uint64_t seed, Stream stream, int64_t index, int64_t batch_size) const;

 private:
  std::vector<Token> tokens_;
  int64_t block_, split_;
  uint64_t fingerprint_;
};

}  // namespace pyflame::data
