// Convolutions and the gradients of their weights on channels-last images, for several instruction sets, on the calling
// thread. The best one is selected at run time.
#pragma once
#include <cstdint>

namespace pyflame::cpu::vec {

// The gradient of a weight: columns of the kernel, and output channels that are computed together.
constexpr int64_t kWeightColumns = 3, kWeightOutputs = 4;

// A convolution with kernels of `taps` rows of kWeightColumns taps. All counts are of elements.
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

// to[block][image][row][column][weight_lanes()] for one image: the part of a channels-last image that begins at row
// `top` and column `left`, with zeros outside of it. `channels` numbers lie between two of its pixels.
void weight_panels(const WeightTile& t, const float* image, int64_t height, int64_t width, int64_t channels,
                   int64_t top, int64_t left, float* to);

// to[channel / kWeightOutputs][pixel][kWeightOutputs] for the pixels [begin, end) of a channels-last image of so many pixels.
void weight_outputs(const float* image, int64_t begin, int64_t end, int64_t pixels, int64_t channels, float* to);

// sums[block][output / kWeightOutputs][tap row][output % kWeightOutputs][tap column][weight_lanes()] += the products of
// outputs[image][...] with the pixels of the panels that the taps read. The tile alone sets the order of each sum.
void add_weight_sums(const WeightTile& t, const float* panels, const float* outputs, float* sums);

// Rows of a convolution's result, of one image. All counts are of elements.
struct TapTile {
  int64_t taps_h, taps_w, dilation_h, dilation_w, stride_h, stride_w;
  int64_t inputs, outputs;  // channels; those of the output are a multiple of two vectors
  int64_t rows, columns;    // of the result
  int64_t row;              // numbers between two rows of the input
};
constexpr int64_t kTapChunk = 64;  // channels of the input whose weights for a block of outputs stay in the caches

// y[row][column][outputs] = bias + the sums of weights times pixels of the input. x is the pixel that the first tap of
// the first result reads; the padding is part of x, so no tap reads outside of it. The weights are
// [outputs / block][inputs / kTapChunk][tap][input of the chunk][block] for blocks of two vectors. The tile alone sets
// the order of each sum.
void tap_rows(const TapTile& t, const float* x, const float* weight, const float* bias, float* y);

}  // namespace pyflame::cpu::vec
