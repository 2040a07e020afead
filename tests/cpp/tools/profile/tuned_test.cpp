// Tuning files line by line: what is read from them, and what is said of lines that cannot be read.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "pyflame/base/gpu_arch.h"
#include "tools/profile/tuned_read.h"

namespace pyflame::tools::profile {
namespace {

TunedFile read(const std::string& text, const std::string& name = "file.csv") {
  const std::string format = tuned_format(text, name);
  EXPECT_FALSE(format.empty()) << text;
  return read_tuned_text(format, text, name);
}

TEST(Tuned, TunableOpRowsOfEveryAge) {
  const TunedFile file = read(
      "Validator,PT_VERSION,2.6.0\n"
      "Validator,GCN_ARCH_NAME,gfx942:sramecc+:xnack-\n"
      "GemmTunableOp_float_NT,nt_25088_4096_64,Gemm_Hipblaslt_1219,1.262\n"
      "GemmTunableOp_BFloat16_TN,tn_4096_512_1024_ld_1024_1024_4096,Gemm_Rocblas_-1234,0.0431,blas\n"
      "GemmStridedBatchedTunableOp_Half_NN,nn_64_32_16_B_8_ld_64_16_64,Default\n"
      "ScaledGemmTunableOp_Float8_e4m3fnuz_Float8_e5m2fnuz_BFloat16_TN,tn_16_32_64_ld_64_64_16_rw_1_bias_None,Default,"
      "0.5\n"
      "GemmAndBiasTunableOp_c10::complex<float>_TN,tn_2_3_4_ld_4_4_2,Default,0.5\n");
  ASSERT_TRUE(file.problems.empty()) << file.problems[0].second;
  ASSERT_EQ(file.out.entries.size(), 5u);
  EXPECT_EQ(file.out.gfx, "gfx942");
  EXPECT_EQ(file.out.validators.size(), 2u);
  const auto& e = file.out.entries;
  EXPECT_EQ(e[0].problem, "GEMM 25088x4096x64 NT f32");
  EXPECT_EQ(e[0].choice, "Gemm_Hipblaslt_1219");
  EXPECT_DOUBLE_EQ(e[0].us, 1262);
  EXPECT_DOUBLE_EQ(e[0].flops, 2.0 * 25088 * 4096 * 64);
  EXPECT_DOUBLE_EQ(e[0].bytes, 4.0 * (25088.0 * 64 + 4096.0 * 64 + 25088.0 * 4096));
  EXPECT_EQ(e[0].line, 3);
  EXPECT_EQ(e[1].choice, "Gemm_Rocblas_-1234");
  EXPECT_EQ(e[2].problem, "GEMM 64x32x16 NN, batch 8 f16");
  EXPECT_DOUBLE_EQ(e[2].flops, 2.0 * 64 * 32 * 16 * 8);
  EXPECT_LE(e[2].us, 0);
  EXPECT_EQ(e[3].dtype, "fp8 e4m3fnuz x fp8 e5m2fnuz -> bf16");
  EXPECT_DOUBLE_EQ(e[3].bytes, 16 * 64 + 64 * 32 + 16 * 32 * 2);
  EXPECT_NE(e[4].problem.find("bias"), std::string::npos);
  EXPECT_EQ(e[4].dtype, "c64");
}

TEST(Tuned, UntunedFilesListProblemsOnly) {
  const TunedFile file = read("GemmTunableOp_float_NN,nn_8_9_10_ld_8_10_8\n");
  ASSERT_EQ(file.out.entries.size(), 1u);
  EXPECT_TRUE(file.out.entries[0].choice.empty());
  EXPECT_TRUE(file.problems.empty());
}

TEST(Tuned, TunableOpKeepsWhatItCanRead) {
  const TunedFile file = read(
      "Validator,PT_VERSION\n"
      "GemmTunableOp_float_NT,nt_1_2,Default,0.5\n"
      "GemmTunableOp_float_XY,nt_1_2_3,Default,0.5\n"
      "GemmTunableOp_quux_NT,nt_1_2_3,Default,0.5\n"
      "GemmTunableOp_float_NT,nt_-1_2_3,Default,0.5\n"
      "GemmTunableOp_float_NT,nt_1_2_3,Default,soon\n"
      "GemmTunableOp_float_NT,nt_1_2_1e999,Default,0.5\n"
      "GemmTunableOp_float_NT,nt_1_2_3,a,0.5,c,d\n");
  ASSERT_EQ(file.out.entries.size(), 1u);
  EXPECT_EQ(file.out.entries[0].line, 6);
  EXPECT_EQ(file.problems.size(), 9u);  // a line each, the time of line 6, and no validators
}

TEST(Tuned, MiopenFindDb) {
  const TunedFile file = read(
      "64-56-56-1x1-256-56-56-32-0x0-1x1-1x1-0-NCHW-FP16-F=ConvSlow:0.5,10,miopenConvolutionFwdAlgoGEMM;ConvFast:0.045,"
      "0,miopenConvolutionFwdAlgoDirect\n"
      "256-28-28-3x3-128-56-56-16-1x1-2x2-1x1-0-NHWC-NHWC-NHWC-BF16-B_g2=Naive:7,0,miopenConvolutionBwdDataAlgoDirect\n"
      "16-8-32-32-3x3x3-32-8-32-32-4-1x1x1-1x1x1-1x1x1-0-NCDHW-FP32-F=S:1,0,miopenConvolutionFwdAlgoGEMM\n"
      "8-4-4-1x1-8-4-4-2-0x0-1x1-1x1-0-NCHW-FP32-W=miopenConvolutionBwdWeightsAlgoGEMM:GemmWrw,0.25,0,"
      "miopenConvolutionBwdWeightsAlgoGEMM,unused\n",
      "gfx90a6e.HIP.3_2_0.ufdb.txt");
  ASSERT_TRUE(file.problems.empty()) << file.problems[0].second;
  ASSERT_EQ(file.out.entries.size(), 4u);
  EXPECT_EQ(file.out.gfx, "gfx90a");
  EXPECT_EQ(file.out.cus, 110);
  const auto& e = file.out.entries;
  EXPECT_EQ(e[0].choice, "ConvFast");
  EXPECT_DOUBLE_EQ(e[0].us, 45);
  ASSERT_EQ(e[0].others.size(), 1u);
  EXPECT_EQ(e[0].others[0].first, "ConvSlow");
  EXPECT_DOUBLE_EQ(e[0].flops, 2.0 * 32 * 256 * 56 * 56 * 64);
  EXPECT_DOUBLE_EQ(e[0].bytes, 2.0 * (32.0 * 64 * 56 * 56 + 32.0 * 256 * 56 * 56 + 64 * 256));
  // Of a backward problem "In" is the gradient of the output: y is 256 x 28 x 28, x is 128 x 56 x 56.
  EXPECT_DOUBLE_EQ(e[1].flops, 2.0 * 16 * 256 * 28 * 28 * 128 * 9 / 2);
  EXPECT_EQ(e[1].dtype, "bf16");
  EXPECT_DOUBLE_EQ(e[2].flops, 2.0 * 4 * 32 * 8 * 32 * 32 * 16 * 27);
  EXPECT_EQ(e[3].choice, "GemmWrw");
  EXPECT_DOUBLE_EQ(e[3].us, 250);
}

TEST(Tuned, MiopenPerfDbText) {
  const std::string line = "64-56-56-1x1-256-56-56-32-0x0-1x1-1x1-0-NCHW-FP16-F=ConvAsm1x1U:1,8,2,64,2,4,1,4;Other:3\n";
  const TunedFile file = read(line + "nonsense\n64-56=x:1\n", "gfx942130.HIP.udb.txt");
  ASSERT_EQ(file.out.entries.size(), 1u);
  EXPECT_EQ(file.out.entries[0].choice, "ConvAsm1x1U (1,8,2,64,2,4,1,4)");
  EXPECT_LE(file.out.entries[0].us, 0);
  EXPECT_EQ(file.problems.size(), 2u);
  EXPECT_EQ(file.problems[0].first, "line 2");
}

TEST(Tuned, NamesOfMiopenDatabases) {
  const std::tuple<const char*, const char*, int> cases[] = {{"gfx90a68.HIP.fdb.txt", "gfx90a", 104},
                                                             {"gfx942130.db", "gfx942", 304},
                                                             {"gfx942e4.db.txt", "gfx942", 228},
                                                             {"gfx950100.fdb.txt", "gfx950", 256},
                                                             {"gfx1030_36.db", "gfx1030", 72},
                                                             {"gfx1100_48.ufdb.txt", "gfx1100", 96},
                                                             {"gfx110136.db.txt", "gfx1101", 54},
                                                             {"gfx906_nosramecc_60.db", "gfx906", 60},
                                                             {"gfx908_sramecc_xnack78.db", "gfx908", 120},
                                                             {"/a/gfx120020.db.txt", "gfx1200", 32},
                                                             {"gfx942.db", "gfx942", 0},
                                                             {"gfx942zz.db", "gfx942", 0},
                                                             {"gfx942ffffffffffff.db", "gfx942", 0},
                                                             {"results.csv", "", 0},
                                                             {"gfx90a68_1.1.0.udb", "gfx90a", 104},
                                                             {"gfx1030_36_1.1.0.udb", "gfx1030", 72},
                                                             {"gfx9999_4.db", "", 0}};
  for (const auto& [name, gfx, cus] : cases) {
    EXPECT_EQ(miopen_device(name).first, gfx) << name;
    EXPECT_EQ(miopen_device(name).second, cus) << name;
  }
}

TEST(Tuned, BenchLinesAreCountedByProblem) {
  const TunedFile file = read(
      "some log line\n"
      "hipblaslt-bench --api_method c -m 1024 -n 512 -k 256 --lda 1024 --transA T --transB N --batch_count 4 "
      "--bias_vector --bias_source d --a_type f16_r "
      "--b_type f16_r --c_type f16_r --d_type f32_r --alpha -1.0 --activation_type gelu\n"
      "./rocblas-bench -f gemm_ex --transposeA N --transposeB T -m 2048 -n 512 -k 4096 --alpha 1 --a_type bf16_r "
      "--b_type bf16_r --d_type bf16_r --solution_index 0\n"
      "./rocblas-bench -f gemm_ex --transposeA N --transposeB T -m 2048 -n 512 -k 4096 --alpha 1 --a_type bf16_r "
      "--b_type bf16_r --d_type bf16_r --solution_index 0\n"
      "./rocblas-bench -f axpy -n 12\n"
      "- { rocblas_function: \"rocblas_gemm_ex\", transA: 'N', transB: 'N', M: 8, N: 16, K: 32, a_type: f32_r, b_type: "
      "f32_r, d_type: f32_r, call_count: 12 }\n"
      "MIOpen(HIP): Command [LogCmdConvolution] ./bin/MIOpenDriver convbfp16 -n 32 -c 64 -H 56 -W 56 -k 256 -y 3 -x 3 "
      "-p 1 -q 1 -u 2 -v 2 -l 1 -j 1 -m conv -g 1 -F 4 -t 1\n",
      "log.txt");
  ASSERT_EQ(file.out.entries.size(), 4u);
  const auto& e = file.out.entries;
  EXPECT_EQ(e[0].problem, "GEMM 1024x512x256 TN, batch 4 f16 -> f32, bias, gelu");
  EXPECT_EQ(e[1].calls, 2);
  EXPECT_EQ(e[1].problem, "GEMM 2048x512x4096 NT bf16");
  EXPECT_EQ(e[2].calls, 12);
  EXPECT_DOUBLE_EQ(e[2].flops, 2 * 8 * 16 * 32);
  EXPECT_EQ(e[3].kind, "conv");
  EXPECT_DOUBLE_EQ(e[3].flops, 2.0 * 32 * 256 * 28 * 28 * 64 * 9);
  ASSERT_EQ(file.problems.size(), 1u);
  EXPECT_NE(file.problems[0].second.find("2 lines"), std::string::npos);
}

TEST(Tuned, TablesByTheirHeader) {
  const TunedFile bench = read(
      "[0]:transA,transB,grouped_gemm,batch_count,m,n,k,a_type,b_type,d_type,hipblaslt-Gflops,us\n"
      "    N,T,0,2,64,32,16,bf16_r,bf16_r,bf16_r,100.0,12.5\n");
  ASSERT_EQ(bench.out.entries.size(), 1u);
  EXPECT_EQ(bench.out.entries[0].problem, "GEMM 64x32x16 NT, batch 2 bf16");
  EXPECT_DOUBLE_EQ(bench.out.entries[0].us, 12.5);
  const TunedFile aiter = read(
      "gfx,cu_num,M,N,K,bias,dtype,outdtype,scaleAB,bpreshuffle,libtype,solidx,splitK,us,kernelName,err_ratio,tflops,"
      "bw\n"
      "gfx950,256,1,2880,4096,False,torch.bfloat16,torch.bfloat16,False,False,asm,1,2,9.5,,0.0,1,1\n"
      "gfx950,256,2,2880,4096,False,torch.bfloat16,torch.float32,False,False,hipblaslt,77,0,9.5,kernel,0.3,1,1\n"
      "gfx950,256,two,2880\n");
  ASSERT_EQ(aiter.out.entries.size(), 2u);
  EXPECT_EQ(aiter.out.gfx, "gfx950");
  EXPECT_EQ(aiter.out.entries[0].choice, "asm solution 1");
  EXPECT_TRUE(aiter.out.entries[0].stale.empty());
  EXPECT_EQ(aiter.out.entries[1].choice, "kernel");
  EXPECT_NE(aiter.out.entries[1].stale.find("30.0 %"), std::string::npos);
  EXPECT_EQ(aiter.problems.size(), 1u);
  const TunedFile override_file = read(
      "Git Version: "
      "dabb6df2b9\ntransA,transB,batch_count,m,n,k,a_type,b_type,c_type,compute_type,solution_index,solution_name\nN,N,"
      "1,8,8,8,f32_r,f32_r,f32_r,f32_r,42,Cijk\n");
  ASSERT_EQ(override_file.out.entries.size(), 1u);
  EXPECT_EQ(override_file.out.entries[0].choice, "Cijk");
}

TEST(Tuned, WhatWasNotMeasuredDidNotWin) {
  const TunedFile file = read(
      "GemmTunableOp_tf32_NT,nt_8_16_32_ld_8_16_8,Gemm_Hipblaslt_7,0.5\n"
      "GemmTunableOp_float_NT,nt_8_16_32_ld_8_16_8,Default,0\n"
      "GemmTunableOp_float_NT,nt_8_16_64_ld_8_16_8,Default,inf\n"
      "GemmTunableOp_float_NT,nt_8_16_96_ld_8_16_8,Default,0.25\n");
  ASSERT_EQ(file.out.entries.size(), 4u);
  EXPECT_EQ(file.out.entries[0].dtype, "tf32");
  ASSERT_EQ(file.problems.size(), 1u) << "Validator lines are missing, and nothing else";
  const std::vector<std::string> formats = {"TunableOp results"};
  std::string said;
  for (const Finding& f : tuned_advice(file.out, tuned_rows(file.out, nullptr), formats)) said += f.what + "\n";
  EXPECT_NE(said.find("The default kernel won for 1 of 4 problems"), std::string::npos) << said;
  EXPECT_NE(said.find("2 of 4 rows have a choice and no time"), std::string::npos) << said;
}

TEST(Tuned, AiterTablesOfProducts) {
  const TunedFile blocks = read(
      "gfx,cu_num,M,N,K,kernelId,splitK,us,kernelName,tflops,bw,errRatio\n"
      "gfx950,256,16,512,4096,3,0,8.0,f4gemm_bf16_per1x32Fp4_32x128,1,1,0.0\n"
      "gfx1250,256,16,512,4096,3,0,1.0,f4gemm_bf16_per1x32Fp4_32x128,1,1,0.0\n",
      "my_a4w4_blockscale_tuned_gemm.csv");
  ASSERT_EQ(blocks.out.entries.size(), 2u);
  EXPECT_EQ(blocks.out.entries[0].problem, "GEMM 16x512x4096 fp4 -> bf16");
  EXPECT_DOUBLE_EQ(blocks.out.entries[0].bytes, 0.5 * (16 * 4096 + 512 * 4096) + 2 * 16 * 512);
  const nlohmann::json rows = tuned_rows(blocks.out, nullptr);
  EXPECT_EQ(rows[0]["product"], "AMD Instinct MI350X") << "each row has its own device";
  EXPECT_NEAR(rows[0]["roofline"]["of_peak"].get<double>(), blocks.out.entries[0].bytes / 8e-6 / 8e12, 1e-6);
  EXPECT_TRUE(rows[1]["product"].is_null());
  const TunedFile rowwise = read(
      "gfx,cu_num,B,M,N,K,q_dtype_w,kernelId,splitK,us,kernelName,tflops,bw,errRatio\n"
      "gfx942,304,4,64,512,4096,torch.int8,3,0,8.0,a8w8_rowwise_1,1,1,0.0\n",
      "a8w8_tuned_gemm.csv");
  EXPECT_EQ(rowwise.out.entries.at(0).problem, "GEMM 64x512x4096, batch 4 i8 -> bf16");
  EXPECT_TRUE(tuned_rows(rowwise.out, nullptr)[0]["roofline"].contains("of_peak"));
  EXPECT_EQ(tuned_format("M,N,K\n1,2,3\n", "a8w8_untuned_gemm.csv"), "aiter untuned list");
  EXPECT_EQ(read("M,N,K\n1, 2, 3\n", "x_a8w8_blockscale_untuned.csv").out.entries.at(0).problem,
            "GEMM 1x2x3 fp8 -> bf16");
}

TEST(Tuned, AiterTablesOfExperts) {
  const std::string problem =
      "token,model_dim,inter_dim,expert,topk,act_type,dtype,q_dtype_a,q_dtype_w,q_type,use_g1u1,doweight_stage1";
  const std::string what =
      "1,4096,512,64,8,ActivationType.Silu,torch.bfloat16,torch.float8_e4m3fnuz,torch.float8_e4m3fnuz,"
      "QuantType.per_Token,1,0";
  const std::string tuned =
      "cu_num," + problem + ",block_m,ksplit,us1,kernelName1,err1,us2,kernelName2,err2,us,run_1stage,tflops,bw,_tag\n";
  EXPECT_EQ(tuned_format(problem + "\n", "u.csv"), "aiter untuned fMoE list");
  EXPECT_EQ(tuned_format(tuned, "t.csv"), "aiter fMoE table");
  const TunedFile file = read(tuned + "304," + what + ",32,0,10,first,2.0%,5,second,40.0%,15,0,1,1,\n", "t.csv");
  ASSERT_EQ(file.out.entries.size(), 1u);
  const TunedEntry& e = file.out.entries[0];
  EXPECT_EQ(e.problem, "fMoE 1 tokens, 4096x512, 8 of 64 experts, silu, per_token fp8 e4m3fnuz -> bf16");
  EXPECT_EQ(e.choice, "first + second");
  EXPECT_DOUBLE_EQ(e.flops, 2.0 * 3 * 8 * 4096 * 512);
  EXPECT_NEAR(e.bytes, 8.0 * 3 * 4096 * 512 + 4096 * 3, 1) << "one token uses 8 experts";
  EXPECT_DOUBLE_EQ(e.us, 15);
  EXPECT_NE(e.stale.find("40.0 %"), std::string::npos);
  // Only the number of compute units is known.
  EXPECT_EQ(tuned_rows(file.out, nullptr)[0]["product"], "AMD Instinct MI300X");
}

TEST(Tuned, MostToWinComesFirst) {
  TunedFiles files;
  files.gfx = "gfx942";
  for (const double us : {-1.0, 850.0, 3000.0}) {
    files.entries.push_back(detail::gemm_entry(8192, 8192, 8192, 1, "TN", {"bf16_r"}));
    files.entries.back().us = us;
  }
  // Long, but as fast as it can be
  files.entries.push_back(detail::gemm_entry(65536, 8192, 8192, 1, "TN", {"bf16_r"}));
  files.entries.back().us = files.entries.back().flops / find_gpu_product("gfx942")->bf16_tflops * 1e-6;
  const nlohmann::json rows = tuned_rows(files, nullptr);
  EXPECT_EQ(rows[0]["us"], 3000);
  EXPECT_EQ(rows[1]["us"], 850);
  EXPECT_TRUE(rows[3]["us"].is_null());
}

TEST(Tuned, TimesThatCannotBe) {
  TunedFiles files;
  files.gfx = "gfx942";
  files.entries = {detail::gemm_entry(8192, 8192, 8192, 1, "TN", {"bf16_r"})};
  files.entries[0].us = 100;
  std::string said;
  for (const Finding& f : tuned_advice(files, tuned_rows(files, nullptr), {"aiter table"})) said += f.what;
  EXPECT_NE(said.find("faster than arithmetic"), std::string::npos) << said;
}

TEST(Tuned, OtherFilesAreNotTaken) {
  for (const char* text :
       {"", "hello\n", "{\"traceEvents\":[]}", "a,b,c\n1,2,3\n", "key=value\n", "Kind,Agent_Id,Queue_Id\n", "\0\0\0"})
    EXPECT_EQ(tuned_format(text, "file.txt"), "") << text;
}

TEST(Tuned, RowsKnowTheirDistanceFromTheRoof) {
  const GpuProduct* product = find_gpu_product("gfx942", "MI300X");
  ASSERT_NE(product, nullptr);
  TunedFiles files;
  files.entries = {detail::gemm_entry(8192, 8192, 8192, 1, "TN", {"bf16_r", "bf16_r", "bf16_r"}),
                   detail::gemm_entry(1, 8192, 8192, 1, "TN", {"bf16_r"}),
                   detail::gemm_entry(8, 8, 8, 1, "TN", {"bf16_r"}), detail::gemm_entry(8, 8, 8, 1, "TN", {"bf16_r"})};
  files.entries[0].us = 2 * files.entries[0].flops / product->bf16_tflops * 1e-6;  // twice the floor
  files.entries[1].us = 100;
  files.entries[2].us = 5;
  const nlohmann::json rows = tuned_rows(files, product);
  EXPECT_NEAR(rows[0]["roofline"]["of_peak"].get<double>(), 0.5, 1e-9);
  EXPECT_EQ(rows[0]["roofline"]["bound"], "compute");
  EXPECT_EQ(rows[1]["roofline"]["bound"], "memory");
  EXPECT_EQ(rows[2]["roofline"]["bound"], "latency");
  EXPECT_TRUE(rows[3]["us"].is_null());
  EXPECT_TRUE(rows[3]["roofline"].is_null());
  bool told = false;
  for (const Finding& a : tuned_advice(files, rows, {"bench log"}))
    told |= a.what.find("less than 40 %") != std::string::npos;
  EXPECT_TRUE(told);
}

}  // namespace
}  // namespace pyflame::tools::profile
