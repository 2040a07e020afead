// The argument of the kernels in kernels/grid/sample.h, which the host fills in.
#pragma once

#ifndef PF_ON_DEVICE  // a kernel is compiled as one text
#include "pyflame/kernels/device/view.h"
#endif

namespace pf {

// Images of up to three dims; a place is numbered among those of all images.
struct GridShape {
  i64 images = 0, channels = 0, places = 0, elements = 0;  // places and elements: of an image
  i64 size[3] = {1, 1, 1};
  i64 image = 0, channel = 0, step[3] = {0, 0, 0};  // strides of the images that are read
  i64 grid_step = 1;                                // from x to y
  i64 to_channel = 0, to_step = 1;  // of the result: from one channel to the next; of the grid's gradient
  i64 each = 1, parts = 1;          // channels of a thread, and how many threads share a place
  int padding = 0, align = 0;
  View grid, to, from;  // where places are in the grid, in the result, and in a gradient that is read
  i64 from_channel = 0;
};
static_assert(sizeof(GridShape) == 152 + 3 * 136);

}  // namespace pf
