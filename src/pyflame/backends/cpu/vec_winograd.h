// Winograd's algorithm F(2x2, 3x3) for several instruction sets, on the calling thread. The best one is selected at run
// time.
//
// A tile is 2x2 results of a convolution with 3x3 taps and stride 1; it reads 4x4 pixels. With the matrices of A. Lavin
// and S. Gray, "Fast algorithms for convolutional neural networks" (2015, arXiv:1509.09308),
//   tile = A^T [ sum over inputs of (G weight G^T) * (B^T pixels B) ] A,
// the sum has 16 products for each pair of channels, where the convolution has 36. The 16 are matrix products over the
// channels, one for each of the 16 places. The gradient of the weight is the transpose of that,
//   G^T [ sum over tiles of (A gradient A^T) * (B^T pixels B) ] G,
// with 16 matrix products over the tiles.
#pragma once
#include <cstdint>

namespace pyflame::cpu::vec {

constexpr int64_t kWinogradPlaces = 16;
constexpr int64_t kWinogradTile = 2;   // rows and columns of the result
constexpr int64_t kWinogradGroup = 6;  // tiles that are multiplied together

// Tiles of one image or of several that are computed together. All counts are of elements.
struct WinogradTiles {
  int64_t height, width, inputs;   // of a channels-last image that is read
  int64_t rows, columns, outputs;  // of the result; outputs are a multiple of two vectors
  int64_t top, left;               // padding
  int64_t tiles_h, tiles_w;        // of an image
  int64_t first, count;            // the tiles; those of an image lie row by row, those of the next image after them
  // Numbers between two places of the transformed pixels, of the products and of the transformed weights.
  int64_t pixels_step, products_step, weights_step;
};

// Numbers between two places that have `count` numbers each. The places must not compete for one set of a cache.
int64_t winograd_step(int64_t count);

// weights[place][input][block] of some inputs and a block of two vectors of outputs; taps[tap][input][block] are 9
// planes of `inputs` rows.
void winograd_weights(const float* taps, int64_t inputs, float* weights, int64_t step);

// pixels[place][tile][input] of images x. `zeros` are as many zeros as an image has channels.
void winograd_pixels(const WinogradTiles& t, const float* x, const float* zeros, float* pixels);

// products[place][tile][output] = the sums over the inputs. The weights are
// [place][output / block][input][block]. The number of inputs alone sets the order of each sum.
void winograd_products(const WinogradTiles& t, const float* pixels, const float* weights, float* products);

// y = bias + the results, of images y; bias may be null. Returns whether all results are finite before the bias is added.
bool winograd_results(const WinogradTiles& t, const float* products, const float* bias, float* y);

// gradients[place][tile][output] = A g A^T of the gradient g of the images' results, with any number of outputs.
void winograd_gradients(const WinogradTiles& t, const float* g, float* gradients);

// taps[tap][i] = G^T sums G of sums[place][i], for i < count. Returns whether all results are finite.
bool winograd_weight_gradients(const float* sums, int64_t step, int64_t count, float* taps, int64_t taps_step);

}  // namespace pyflame::cpu::vec
