// The dtype of floating results whose inputs name none: of zeros(), of numbers that meet integers, of integers divided.
#pragma once
#include "pyflame/tensor/dtype.h"

namespace pyflame {

DType default_dtype();            // float32 unless set
void set_default_dtype(DType d);  // a floating dtype; TypeError otherwise. For all threads

}  // namespace pyflame
