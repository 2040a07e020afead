// What a Group keeps of each other rank.
#pragma once
#include <atomic>
#include <deque>
#include <string>

#include "pyflame/distributed/ring.h"

namespace pyflame::distributed {

// One frame of a control socket: a letter, the number of bytes, the bytes. A wake-up is the letter alone.
struct Peer {
  int control = -1, data = -1, messages = -1;
  Ring* out = nullptr;
  Ring* in = nullptr;
  std::string received, to_send;
  std::deque<std::string> calls;     // what it said about its calls, each with the call's number first
  std::string gave_up;               // why the peer left the group
  bool left = false, ended = false;  // ended: the control socket is at its end
  bool data_ended = false;           // the data socket is, or takes nothing any more
  std::atomic<bool> cut{false};      // a message ended in the middle; a thread may send while another one receives
};

}  // namespace pyflame::distributed
