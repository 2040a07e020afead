// What every use of oneDNN's primitives needs: the engine of the CPU, and a stream of the calling thread.
#pragma once
#include <oneapi/dnnl/dnnl.hpp>

namespace pyflame::cpu::dnn {

inline const dnnl::engine& engine() {
  static const auto* e =
      new dnnl::engine(dnnl::engine::kind::cpu, 0);  // leaked: threads may outlive static destruction
  return *e;
}
inline dnnl::stream& stream() {
  thread_local dnnl::stream s(engine());
  return s;
}

}  // namespace pyflame::cpu::dnn
