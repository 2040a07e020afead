// See gpu_arch.h.
#include "pyflame/base/gpu_arch.h"
