// The gradient of a convolution's weight, for several instruction sets, on the calling thread. The best one is selected at run time.
#pragma once
#include <cstdint>

namespace pyflame::cpu::vec {

// A convolution with kernels of `taps` rows of kWeightColumns taps. All counts are of elements.
constexpr int64_t kWeightColumns = 3, kWeightOutputs = 4;

struct WeightTile {
  int64_t images, blocks;             // blocks of weight_lanes() channels of the input
  int64_t taps;                       // rows of the kernel
  int64_t rows, columns;              // of the output
  int64_t stride_h, stride_w;         // pixels of the input between two outputs
  int64_t dilation_h, dilation_w;     // pixels of the input between two taps
  int64_t panel_rows, panel_columns;  // of the input, with its padding
  int64_t outputs;                    // output channels, a multiple of kWeightOutputs
  int64_t pixels;                     // between two blocks of output channels
  int64_t plane;                      // numbers between the outputs of two images
};

// Channels of the input in a block: as many as a vector has numbers.
int64_t weight_lanes();

// to[block][image][row][column][weight_lanes()] for one image: the part of a channels-last image that begins at row `top` and column `left`, with
// zeros outside of it. `channels` numbers lie between two of its pixels.
void weight_panels(const WeightTile& t, const float* image, int64_t height, int64_t width, int64_t channels,
                   int64_t top, int64_t left, float* to);

// to[channel / kWeightOutputs][pixel][kWeightOutputs] for the pixels [begin, end) of a channels-last image of so many pixels.
void weight_outputs(const float* image, int64_t begin, int64_t end, int64_t pixels, int64_t channels, float* to);

// sums[block][output / kWeightOutputs][tap row][output % kWeightOutputs][tap column][weight_lanes()] += the products of outputs[image][...] with the
// pixels of the panels that the taps read. The tile alone sets the order of each sum.
void add_weight_sums(const WeightTile& t, const float* panels, const float* outputs, float* sums);

}  // namespace pyflame::cpu::vec
