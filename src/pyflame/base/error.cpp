#include "pyflame/base/error.h"

namespace pyflame {

void fail(ErrorKind kind, std::string message) { throw Error(kind, std::move(message)); }

}  // namespace pyflame
