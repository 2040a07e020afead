// All algorithms of cuBLASLt: its numbered kernels, and the parts of which each can be configured.
#pragma once
#include "pyflame/backends/gpu/libs/enumerate.h"

namespace pyflame::gpu {

//   member, name after "cublasLtMatmulAlgo", parameters
#define PYFLAME_CUBLASLT_ALGORITHM_FUNCTIONS(F)                                                                        \
  F(ids, "GetIds",                                                                                                     \
    (BlasHandle handle, int compute, int scale, int a, int b, int c, int d, int wanted, int* ids, int* found))         \
  F(init, "Init", (BlasHandle handle, int compute, int scale, int a, int b, int c, int d, int id, void* algorithm))    \
  F(capability, "CapGetAttribute", (const void* algorithm, int attribute, void* value, size_t bytes, size_t* written)) \
  F(set, "ConfigSetAttribute", (void* algorithm, int attribute, const void* value, size_t bytes))                      \
  F(get, "ConfigGetAttribute", (const void* algorithm, int attribute, void* value, size_t bytes, size_t* written))     \
  F(check, "Check",                                                                                                    \
    (BlasHandle handle, BlasDesc desc, BlasDesc a, BlasDesc b, BlasDesc c, BlasDesc d, const void* algorithm,          \
     void* result))

struct CublasLtAlgorithmFunctions {
#define PYFLAME_CUBLASLT_MEMBER(member, name, parameters) int(*member) parameters = nullptr;
  PYFLAME_CUBLASLT_ALGORITHM_FUNCTIONS(PYFLAME_CUBLASLT_MEMBER)
#undef PYFLAME_CUBLASLT_MEMBER
};

// The parts of an algorithm, in the order of its name: "id=66,tile=20,stages=36,splits=1,reduction=0,swizzle=0,custom=0,inner=0,cluster=3".
// The values are the library's numbers.
struct CublasLtPart {
  const char* name;
  int attribute;
  size_t bytes;
  uint32_t otherwise;  // what it is unless it is set
};
constexpr std::array<CublasLtPart, 9> kCublasLtParts{{{"id", 0, 4, 0},
                                                      {"tile", 1, 4, 0},
                                                      {"stages", 6, 4, 0},
                                                      {"splits", 2, 4, 1},
                                                      {"reduction", 3, 4, 0},
                                                      {"swizzle", 4, 4, 0},
                                                      {"custom", 5, 4, 0},
                                                      {"inner", 7, 2, 0},
                                                      {"cluster", 8, 2, 0}}};
// alignments: of A; those of B, C and D follow.
struct CublasLtCapabilities {
  int splits = 0, swizzles = 2, tiles = 6, most_custom = 7, stages = 13, alignments = 16;
};

// Parts of a split sum are added before they are rounded to the result's type.
constexpr uint32_t kCublasLtReduceInComputeType = 2;

class CublasLtAlgorithms final : public BlasEnumeration {
 public:
  // lacking: the name of a function that is not there.
  explicit CublasLtAlgorithms(const CublasLtAlgorithmFunctions& functions, std::string lacking = "")
      : library_(functions), lacking_(std::move(lacking)) {}
  std::string lacks() const override { return lacking_; }
  std::unique_ptr<Enumeration> all(const BlasProduct& p, const std::vector<BlasResult>& recommended) const override;
  std::optional<BlasResult> find(const BlasProduct& p, const std::string& name) const override;

 private:
  using Parts = std::array<uint32_t, kCublasLtParts.size()>;
  static std::string name_of(const Parts& parts);
  static std::optional<Parts> parts_of(std::string_view name);
  Parts parts_of(const BlasResult& algorithm) const;
  std::optional<BlasResult> start(const BlasProduct& p, uint32_t id) const;
  std::optional<BlasResult> made(const BlasProduct& p, const Parts& parts) const;
  uint32_t capability(const BlasResult& algorithm, int which) const;
  std::vector<uint32_t> capabilities(const BlasResult& algorithm, int which) const;
  std::vector<Parts> variations(const BlasProduct& p, const Parts& of) const;
  // What a kernel can be combined with; each of these has at least one value.
  struct Options {
    uint32_t id = 0;
    std::vector<uint32_t> tiles, stages, splits;
    uint32_t swizzles = 1, customs = 1, clusters = 1;  // how many numbers, from 0 on
    uint64_t plain() const { return tiles.size() * stages.size(); }
    uint64_t combined() const { return plain() * (splits.size() * swizzles * customs * clusters - 1); }
    Parts at(uint64_t place)
        const;  // the plain ones, which leave all but tile and stages as they are, before the combined ones
  };
  class Combinations;
  std::vector<Options> kernels(const BlasProduct& p) const;

  CublasLtAlgorithmFunctions library_;
  std::string lacking_;
};

const BlasEnumeration* cublaslt_algorithms();

}  // namespace pyflame::gpu
