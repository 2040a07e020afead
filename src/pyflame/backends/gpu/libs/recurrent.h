// Recurrent layers by the vendors' libraries, cuDNN and MIOpen: whole sequences of one length, several layers and both directions in one call.
#pragma once
#include <array>
#include <memory>
#include <string>
#include <vector>

#include "pyflame/backends/backend.h"
#include "pyflame/backends/gpu/driver/device.h"

namespace pyflame::gpu {

// Libraries take all weights in one block. A piece is a run of bytes that a weight of the op and the block have in common.
struct WeightPiece {
  size_t weight;  // its number among the op's weights
  size_t from, to, bytes;
};

// Bytes from the block's beginning to each matrix and bias, in the library's order: of each layer and direction those for the input, then
// those for the state, one for each gate. Without biases those are not read.
struct WeightPlaces {
  std::vector<size_t> matrices, biases;
};
int64_t gates_of(RecurrentMode mode);
// `order`: which of PyTorch's gates is the library's first, second, ...
std::vector<WeightPiece> weight_pieces(const RecurrentCase& c, const WeightPlaces& places,
                                       const std::array<int64_t, 4>& order);

// The pointers of one run. Of the states the second is that of an LSTM's cells. Those from dy on belong to the gradient only.
struct RecurrentRun {
  const void* x = nullptr;
  void* y = nullptr;
  std::array<const void*, 2> first{};
  std::array<void*, 2> last{};
  const void* weights = nullptr;
  void* kept = nullptr;
  void* workspace = nullptr;
  const void* dy = nullptr;
  std::array<const void*, 2> dlast{};
  std::array<void*, 2> dfirst{};
  void* dx = nullptr;
  void* dweights = nullptr;  // zeros before the run
};

// How a library computes one case and its gradient.
class RecurrentPlan {
 public:
  virtual ~RecurrentPlan() = default;
  // Asynchronous, on the device's stream.
  virtual void forward(GpuDevice& device, const RecurrentRun& run) const = 0;
  virtual void backward(GpuDevice& device, const RecurrentRun& run) const = 0;  // changes what is kept
  size_t workspace = 0, kept = 0, weights = 0;                                  // bytes; weights: of the block
  std::vector<WeightPiece> pieces;
};

// Why the device's library does not compute these layers; nothing if it does, and then their plan.
Refusal recurrent_refuses(DeviceType type, int index, const RecurrentCase& c,
                          std::shared_ptr<const RecurrentPlan>* plan);
Refusal recurrent_refuses(const Problem& p);
std::unique_ptr<Executable> make_recurrent(const Problem& p);

}  // namespace pyflame::gpu
