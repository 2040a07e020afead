// Which rewrites are on, as bits (compile/rewrites.h gives them names). The bits are part of a window's key, so programs
// that were made with other rewrites are kept apart.
#pragma once
#include <atomic>
#include <cstdint>

namespace pyflame {

struct Window;

std::atomic<uint32_t>& active_rewrites();  // for windows that begin from now on
// Those whose pattern has ops of the forward and of the backward pass. While one of them is on, windows are longer.
std::atomic<uint32_t>& rewrites_of_whole_steps();
uint32_t rewrites_of(const Window& w);  // those that were on when it began; none if nothing is fused in it

}  // namespace pyflame
