#include "tools/inspect/decompress.h"

#include <bzlib.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <memory>

namespace pyflame::tools::inspect {

namespace {

// The result of one step of a decoder.
struct Step {
  size_t read = 0, written = 0;
  bool done = false;
  std::string error;
};

constexpr size_t kChunk = size_t{1} << 30;  // the counters of the decoders have 32 bits

class Zlib {
 public:
  Zlib() { inflateInit(&z_); }
  ~Zlib() { inflateEnd(&z_); }
  Step step(Bytes in, std::span<uint8_t> out) {
    z_.next_in = const_cast<Bytef*>(in.data());
    z_.avail_in = static_cast<uInt>(std::min(in.size(), kChunk));
    z_.next_out = out.data();
    z_.avail_out = static_cast<uInt>(std::min(out.size(), kChunk));
    const uInt in_before = z_.avail_in, out_before = z_.avail_out;
    const int rc = inflate(&z_, Z_NO_FLUSH);
    Step s{in_before - z_.avail_in, out_before - z_.avail_out, rc == Z_STREAM_END, {}};
    if (rc != Z_OK && rc != Z_STREAM_END && rc != Z_BUF_ERROR) s.error = z_.msg ? z_.msg : "the data is damaged";
    return s;
  }

 private:
  z_stream z_{};
};

class Bzip2 {
 public:
  Bzip2() { BZ2_bzDecompressInit(&z_, 0, 0); }
  ~Bzip2() { BZ2_bzDecompressEnd(&z_); }
  Step step(Bytes in, std::span<uint8_t> out) {
    z_.next_in = const_cast<char*>(reinterpret_cast<const char*>(in.data()));
    z_.avail_in = static_cast<unsigned>(std::min(in.size(), kChunk));
    z_.next_out = reinterpret_cast<char*>(out.data());
    z_.avail_out = static_cast<unsigned>(std::min(out.size(), kChunk));
    const unsigned in_before = z_.avail_in, out_before = z_.avail_out;
    const int rc = BZ2_bzDecompress(&z_);
    Step s{in_before - z_.avail_in, out_before - z_.avail_out, rc == BZ_STREAM_END, {}};
    if (rc != BZ_OK && rc != BZ_STREAM_END) s.error = fmt::format("the data is damaged (bzip2 error {})", rc);
    return s;
  }

 private:
  bz_stream z_{};
};

class Zstd {
 public:
  // clang uses windows of up to 2 GiB for large bundles.
  Zstd() { ZSTD_DCtx_setParameter(z_.get(), ZSTD_d_windowLogMax, 31); }
  Step step(Bytes in, std::span<uint8_t> out) {
    ZSTD_inBuffer i{in.data(), in.size(), 0};
    ZSTD_outBuffer o{out.data(), out.size(), 0};
    const size_t rc = ZSTD_decompressStream(z_.get(), &o, &i);
    Step s{i.pos, o.pos, rc == 0, {}};
    if (ZSTD_isError(rc)) s.error = ZSTD_getErrorName(rc);
    return s;
  }

 private:
  std::unique_ptr<ZSTD_DCtx, decltype(&ZSTD_freeDCtx)> z_{ZSTD_createDCtx(), &ZSTD_freeDCtx};
};

template <class Decoder>
void run(Bytes input, std::span<uint8_t> out, Decompressed& result, size_t& written) {
  Decoder decoder;
  uint8_t beyond = 0;  // one byte more than announced, to notice an output that is too long
  while (true) {
    const bool full = written == out.size();
    const Step s =
        decoder.step(input.subspan(result.consumed), full ? std::span<uint8_t>(&beyond, 1) : out.subspan(written));
    result.consumed += s.read;
    if (full && s.written > 0) {
      result.problem = fmt::format("it decompresses to more than the {} bytes that it announces", out.size());
      return;
    }
    written += s.written;
    if (!s.error.empty()) {
      result.problem = fmt::format("{} after {} of {} bytes", s.error, written, out.size());
      return;
    }
    if (s.done) break;
    if (s.read == 0 && s.written == 0) {
      result.problem = fmt::format("the compressed data ends early, after {} of {} bytes", written, out.size());
      return;
    }
  }
  if (written < out.size())
    result.problem = fmt::format("it decompresses to {} bytes, but announces {}", written, out.size());
}

}  // namespace

Decompressed decompress(Compression method, Bytes input, uint64_t announced_size) {
  Decompressed result;
  if (announced_size == 0) return result;
  const uint64_t most = std::min(kMostOutput, std::max(kAlwaysAllowed, input.size() * kMostRatio));
  if (announced_size > most) {
    result.problem = fmt::format("it announces {} bytes from {}, but at most {} are decompressed", announced_size,
                                 input.size(), most);
    return result;
  }
  // Pages of the buffer use memory only when they are written, so a false announcement costs nothing.
  const auto size = static_cast<size_t>(announced_size);
  void* at = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) {
    result.problem = fmt::format("there is no memory for {} bytes", announced_size);
    return result;
  }
  const std::shared_ptr<const void> owner(at, [size](void* p) { ::munmap(p, size); });
  const std::span<uint8_t> out(static_cast<uint8_t*>(at), size);
  size_t written = 0;
  switch (method) {
    case Compression::zlib: run<Zlib>(input, out, result, written); break;
    case Compression::zstd: run<Zstd>(input, out, result, written); break;
    case Compression::bzip2: run<Bzip2>(input, out, result, written); break;
  }
  result.data = {Bytes(out.data(), written), owner};
  return result;
}

}  // namespace pyflame::tools::inspect
