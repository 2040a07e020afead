// Launches the transposition kernel.
#include "pyflame/backends/gpu/libs/transpose.h"

#include "pyflame/backends/gpu/shapes/layout.h"

namespace pyflame::gpu {

Transpose::Transpose(DeviceType type, int bytes) : kernel_(type, kGroupThreads, source(bytes)) {}

void Transpose::run(int device_index, const Dims& s, const void* from, void* to, MemoryFormat format) {
  constexpr int64_t kSide = 32;
  const bool last = format == MemoryFormat::channels_last;
  const int64_t plane = s[2] * s[3], rows = last ? s[1] : plane, columns = last ? plane : s[1];
  const int64_t tiles = s[0] * ((rows + kSide - 1) / kSide) * ((columns + kSide - 1) / kSide);
  kernel_.launch(device_index, {groups_for(tiles, 1), 1, 1}, from, to, s[0], rows, columns);
}

std::string Transpose::source(int bytes) {
  const char* type = bytes == 2 ? "pf::u16" : bytes == 4 ? "pf::u32" : "pf::u64";
  return kernel_source({"conv/transpose.h"}, kGroupThreads,
                       fmt::format("(const {0}* from, {0}* to, pf::i64 batches, pf::i64 rows, pf::i64 columns) {{ "
                                   "pf::transpose<{0}, {1}>(from, to, batches, rows, columns); }}",
                                   type, kGroupThreads));
}

}  // namespace pyflame::gpu
