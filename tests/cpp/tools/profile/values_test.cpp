// Numbers, types and sizes as traces write them; files that are damaged or compressed; what operators have to do at least.
#include <gtest/gtest.h>
#include <zlib.h>

#include <cmath>
#include <fstream>
#include <istream>

#include "pyflame/base/error.h"
#include "support/temp_folder.h"
#include "tools/profile/file_input.h"
#include "tools/profile/roofline.h"
#include "tools/profile/text_values.h"

namespace pyflame::tools::profile {
namespace {

int64_t ns(const char* text) {
  int64_t v = -1;
  return microseconds_to_ns(text, v) ? v : -1;
}

TEST(Values, MicrosecondsAreExact) {
  EXPECT_EQ(ns("4381075906390.113"), 4381075906390113);
  EXPECT_EQ(ns("1759300074000000.001"), 1759300074000000001);
  EXPECT_EQ(ns("0.5"), 500);
  EXPECT_EQ(ns("7"), 7000);
  EXPECT_EQ(ns("-0.25"), -250);
  EXPECT_EQ(ns("1.9999999"), 1999);
  EXPECT_EQ(ns("1.5e3"), 1500000);
  for (const char* bad : {"", "x", "1e300", "99999999999999999999", "1.x", "9000000000000000000", "nan"})
    EXPECT_EQ(ns(bad), -1) << bad;
}

TEST(Values, TypesAndDirections) {
  EXPECT_EQ(type_bytes("c10::BFloat16"), 2);
  EXPECT_EQ(type_family("c10::Half"), "fp16");
  EXPECT_EQ(type_family("c10::Float8_e4m3fnuz"), "fp8");
  EXPECT_EQ(type_family("BFloat16"), "bf16");
  EXPECT_EQ(type_bytes("Scalar"), 0);
  EXPECT_EQ(direction_of("Memcpy DtoH (Device -> Pinned)"), Direction::device_to_host);
  EXPECT_EQ(host_memory_of("Memcpy DtoH (Device -> Pinned)"), HostMemory::pinned);
  EXPECT_EQ(direction_of("MEMORY_COPY_HOST_TO_DEVICE"), Direction::host_to_device);
  EXPECT_EQ(direction_of("CopyDeviceToDevice"), Direction::device_to_device);
  EXPECT_EQ(direction_of("something"), Direction::unknown);
}

Work gemm(const char* op, const char* dims, const char* types) { return work_of(op, dims, types, "", Category::gemm); }

TEST(Roofline, MatrixProducts) {
  const Work mm = gemm("aten::mm", "[[8,16],[16,32]]", R"(["c10::Half","c10::Half"])");
  EXPECT_EQ(mm.flops, 2 * 8 * 16 * 32);
  EXPECT_EQ(mm.bytes, 2 * (8 * 16 + 16 * 32 + 8 * 32));
  EXPECT_EQ(mm.dtype, "fp16");
  EXPECT_EQ(gemm("aten::addmm", "[[32],[8,16],[16,32],[],[]]", R"(["float","float","float","Scalar","Scalar"])").flops,
            2 * 8 * 16 * 32);
  EXPECT_EQ(gemm("aten::bmm", "[[4,8,16],[4,16,32]]", R"(["float","float"])").flops, 4 * 2 * 8 * 16 * 32);
  EXPECT_EQ(gemm("aten::baddbmm", "[[4,8,32],[4,8,16],[4,16,32]]", R"(["float","float","float"])").flops,
            4 * 2 * 8 * 16 * 32);
  EXPECT_EQ(gemm("aten::linear", "[[2,4,16],[32,16],[32]]", R"(["float","float","float"])").flops, 2 * 8 * 16 * 32);
  // 8 bits in, 16 bits out; two numbers of 4 bits in one element; weights with a row for each output
  const Work scaled =
      gemm("aten::_scaled_mm", "[[8,16],[16,32]]", R"(["c10::Float8_e4m3fnuz","c10::Float8_e4m3fnuz"])");
  EXPECT_EQ(scaled.bytes, 8 * 16 + 16 * 32 + 2 * 8 * 32);
  EXPECT_EQ(scaled.dtype, "fp8");
  const Work packed =
      gemm("aiter::gemm_a4w4", "[[8,16],[32,16]]", R"(["c10::Float4_e2m1fn_x2","c10::Float4_e2m1fn_x2"])");
  EXPECT_EQ(packed.flops, 2 * 8 * 32 * 32);
  EXPECT_EQ(packed.bytes, 8 * 16 + 16 * 32 + 2 * 8 * 32);
  EXPECT_EQ(packed.dtype, "fp4");
  EXPECT_EQ(gemm("aiter::gemm_a8w8_bpreshuffle", "[[8,16],[32,16]]", R"(["signed char","signed char"])").flops,
            2 * 8 * 16 * 32);
  // An elementwise kernel of the same operator does not do its work.
  EXPECT_FALSE(
      work_of("aten::addmm", "[[32],[8,16],[16,32]]", R"(["float","float","float"])", "", Category::elementwise)
          .known());
}

TEST(Roofline, Convolutions) {
  const char* types = R"(["float","float","float"])";
  const Work forward = work_of("aten::convolution", "[[8,3,64,64],[16,3,3,3],[16],[],[],[],[],[],[]]", types,
                               R"(["","","","[2, 2]","[1, 1]","[1, 1]","False","[0, 0]","1"])", Category::convolution);
  EXPECT_EQ(forward.flops, 2.0 * 8 * 16 * 32 * 32 * 3 * 3 * 3);
  // The library's operator has padding before stride.
  EXPECT_EQ(work_of("aten::miopen_convolution", "[[8,3,64,64],[16,3,3,3],[16]]", types,
                    R"(["","","","[1, 1]","[2, 2]","[1, 1]","1","False","False"])", Category::convolution)
                .flops,
            forward.flops);
  EXPECT_EQ(work_of("aten::cudnn_convolution", "[[8,3,64,64],[16,3,3,3],[],[],[]]", types,
                    R"(["","","[1, 1]","[2, 2]","[1, 1]","1"])", Category::convolution)
                .flops,
            forward.flops);
  const char* backward = "[[8,16,32,32],[8,3,64,64],[16,3,3,3],[]]";
  EXPECT_EQ(work_of("aten::convolution_backward", backward, types,
                    R"(["","","","[16]","[2, 2]","[1, 1]","[1, 1]","False","[0, 0]","1","[True, True, False]"])",
                    Category::convolution)
                .flops,
            2 * forward.flops);
  EXPECT_EQ(work_of("aten::convolution_backward", backward, types,
                    R"(["","","","[16]","[2, 2]","[1, 1]","[1, 1]","False","[0, 0]","1","[False, True, True]"])",
                    Category::convolution)
                .flops,
            forward.flops);
  EXPECT_FALSE(work_of("aten::convolution", "[[8,3,64,64],[16,3,3,3]]", types, "", Category::convolution)
                   .known());  // strides are not known
}

TEST(Roofline, Attention) {
  const char* dims = "[[2,8,256,64],[2,8,512,64],[2,8,512,64],[],[],[]]";
  const char* types = R"(["c10::BFloat16","c10::BFloat16","c10::BFloat16"])";
  const double full = 4.0 * 2 * 8 * 256 * 512 * 64;
  EXPECT_EQ(work_of("aten::_scaled_dot_product_flash_attention", dims, types, R"(["","","","0.","False","False"])",
                    Category::attention)
                .flops,
            full);
  EXPECT_EQ(work_of("aten::_scaled_dot_product_flash_attention", dims, types, R"(["","","","0.","True","False"])",
                    Category::attention)
                .flops,
            full / 2);
  // [batch, length, heads, size]
  EXPECT_EQ(work_of("aten::_flash_attention_forward", "[[2,256,8,64],[2,512,8,64],[2,512,8,64]]", types,
                    R"(["","","","","","256","512","0.","False"])", Category::attention)
                .flops,
            full);
  EXPECT_FALSE(work_of("my::attention", dims, types, "", Category::attention).known());
}

TEST(Roofline, BytesThatMove) {
  EXPECT_EQ(
      work_of("aten::add", "[[1024,1024],[1024,1024],[]]", R"(["float","float","Scalar"])", "", Category::elementwise)
          .bytes,
      3 * 4 * 1024 * 1024);
  EXPECT_EQ(work_of("aten::sum", "[[1024,1024]]", R"(["float"])", "", Category::reduction).bytes, 4 * 1024 * 1024);
  EXPECT_EQ(
      work_of("aten::copy_", "[[64,64],[64,64],[]]", R"(["c10::Half","float","Scalar"])", "", Category::memory).bytes,
      64 * 64 * 6);
  EXPECT_FALSE(work_of("_C::rotary_embedding", "[[64],[64,512],[131072,64]]", R"(["long int","float","float"])", "",
                       Category::elementwise)
                   .known())
      << "of the table only some rows are read";
}

TEST(Roofline, HostileSizes) {
  for (const char* dims : {"", "[", "[[", "]]]]", "[[1e9,2],[3]]", "[[-5,3],[3,4]]", "[[99999999999999999999,2],[2,3]]",
                           "[[9000000000,9000000000],[9000000000,9000000000]]", "[[0,0],[0,0]]", "[[],[]]"}) {
    for (Category c :
         {Category::gemm, Category::convolution, Category::attention, Category::elementwise, Category::memory}) {
      const Work w = work_of("aten::mm", dims, "[\"float", "[\"", c);
      EXPECT_TRUE(std::isfinite(w.flops) && std::isfinite(w.bytes)) << dims;
    }
  }
  work_of("aten::mm", std::string(100'000, '['), std::string(100'000, '"'), "", Category::gemm);
}

TEST(Roofline, AgainstPeaks) {
  GpuProduct p;
  p.bandwidth_gbs = 5000;
  p.bf16_tflops = 1000;
  const Roof compute = roof_of({1e12, 1e9, "bf16"}, 2000, 2000, &p);  // 500 TFLOP/s, far right of the ridge
  EXPECT_STREQ(compute.bound, "compute");
  EXPECT_NEAR(compute.of_peak, 0.5, 1e-9);
  const Roof memory = roof_of({1e6, 1e9, "bf16"}, 400, 400, &p);  // 2,500 GB/s
  EXPECT_STREQ(memory.bound, "memory");
  EXPECT_NEAR(memory.of_peak, 0.5, 1e-9);
  EXPECT_STREQ(roof_of({1e3, 1e3, "bf16"}, 5, 5, &p).bound, "latency");
  EXPECT_LT(roof_of({1e6, 1e9, "bf16"}, 400, 400, nullptr).of_peak, 0);
  EXPECT_LT(roof_of({1e6, 1e9, "fp64"}, 400, 400, &p).of_peak, 0);  // no peak known for it
  const Ceilings measured{.gbs = 5000, .tflops = {{"bf16", 1000}}, .text = {}};
  EXPECT_NEAR(roof_of({1e12, 1e9, "bf16"}, 2000, 2000, measured).of_peak, 0.5, 1e-9);
  EXPECT_LT(roof_of({1e6, 1e9, "fp64"}, 400, 400, measured).of_peak, 0);
}

std::string repaired(const std::string& path, const std::string& content, int64_t* places = nullptr) {
  std::ofstream(path, std::ios::binary) << content;
  FileInput input(path);
  JsonStreambuf buffer(input);
  std::istream stream(&buffer);
  std::string out((std::istreambuf_iterator<char>(stream)), {});
  if (places != nullptr) *places = buffer.repaired();
  return out;
}

TEST(FileInput, JsonIsMended) {
  const test::TempFolder folder;
  const std::string path = folder / "t.json";
  EXPECT_EQ(repaired(path, R"({"a": inf, "b": -nan, "c": NaN})"), R"({"a": 0  , "b": -0  , "c": 0  })");
  EXPECT_EQ(repaired(path, R"({"a": true, "b": [false,null], "c": 1e5, "d": 1.5E-3})"),
            R"({"a": true, "b": [false,null], "c": 1e5, "d": 1.5E-3})");
  EXPECT_EQ(repaired(path,
                     "{\"a\x01"
                     "b\": \"inf \\\" nan\"}"),
            "{\"a b\": \"inf \\\" nan\"}");
  EXPECT_EQ(repaired(path, "\"\xC3\xA4 \xFF \xE2\x82\""), "\"\xC3\xA4 ? ??\"");
  EXPECT_EQ(repaired(path, ""), "");
  const std::string escapes = R"(["C:\\Users\n","a\\b","\u00e4"])";
  EXPECT_EQ(repaired(path, escapes), escapes);
  EXPECT_EQ(repaired(path, "[\"C:\\Xy\"]"), "[\"C:\\/y\"]");  // an escape that JSON does not have
  int64_t places = 0;
  repaired(path, "[inf,inf]", &places);
  EXPECT_EQ(places, 2);
}

TEST(FileInput, MendingAcrossTheBuffersEdge) {
  const test::TempFolder folder;
  // The pieces straddle the edge of the buffer of 1 MiB at each offset.
  for (size_t shift = 0; shift < 8; ++shift) {
    const std::string front = "[\"" + std::string((1 << 20) - 8 + shift, 'x') + "\",";
    EXPECT_EQ(repaired(folder / "t.json", front + "inf,\"\xE2\x82\xAC\",true]"), front + "0  ,\"\xE2\x82\xAC\",true]")
        << shift;
  }
}

TEST(FileInput, LinesAndCompression) {
  const test::TempFolder folder;
  const std::string path = folder / "a.csv.gz";
  gzFile z = gzopen(path.c_str(), "wb");
  const std::string text = "one\r\ntwo\n\n" + std::string(3 << 20, 'y') + "\nlast";
  gzwrite(z, text.data(), static_cast<unsigned>(text.size()));
  gzclose(z);
  LineReader lines(path);
  std::string line;
  std::vector<size_t> lengths;
  while (lines.next(line)) lengths.push_back(line.size());
  EXPECT_EQ(lengths, (std::vector<size_t>{3, 3, 0, 1 << 20, 4}));  // a line beyond all reason is cut
  EXPECT_THROW(FileInput(folder / "none"), Error);
}

}  // namespace
}  // namespace pyflame::tools::profile
