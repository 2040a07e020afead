// What an executable can be besides, if something else computes while its kernels are being compiled.
#pragma once

namespace pyflame {

class HasStandIn {
 public:
  virtual ~HasStandIn() = default;
  // From now on a run waits for the compiler instead, so that it can be timed.
  virtual void end_stand_in() = 0;
};

}  // namespace pyflame
