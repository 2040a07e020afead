// The end of the process, as one path. A library registers exit handlers of its own, often at its first use, and they run before older
// handlers. A thread that is still inside of the library then works on what was taken down: it crashes or waits for ever. So the end has
// an order:
//   1. begin_exit()  Background threads take nothing new. Calls into such libraries are waited for, PYFLAME_EXIT_WAIT seconds at most.
//                    Python calls it before the interpreter is taken down.
//   2. The process ends in C: the same again, and new calls are refused. This runs before every exit handler of the process when the
//      main thread returns or calls exit(); when another thread calls exit(), it runs before the handlers that the libraries had
//      registered by the end of their first call. During that first call, exit() in another thread is not safe: handlers run in the reverse
//      order of their registration, so those that the library registers meanwhile run before any of ours.
//   3. If a call is still under way then, the other exit handlers are left out: the streams of stdio are written, and the process ends
//      with its status. A child of fork does the same when its parent was inside of a library, because its copy of the library is
//      caught in the middle of that call.
// Signals that end a process at once (SIGTERM, unless it is handled) run nothing of this, and need nothing of it.
#pragma once

namespace pyflame {

// Work that the end of the process waits for. It needs no library that may be taken down, so it may begin at any time.
class WorkUnderWay {
 public:
  WorkUnderWay();
  ~WorkUnderWay();
  WorkUnderWay(const WorkUnderWay&) = delete;
  WorkUnderWay& operator=(const WorkUnderWay&) = delete;
};

// A call into a library whose exit handlers must not run meanwhile. RuntimeError when the process already ends, unless it is part of a call
// that had begun before.
class LibraryCall {
 public:
  LibraryCall();
  ~LibraryCall();
  LibraryCall(const LibraryCall&) = delete;
  LibraryCall& operator=(const LibraryCall&) = delete;

 private:
  WorkUnderWay work_;
};

// `stop` is called once, when the end begins. It tells background threads to take nothing new, and does not wait for them. ValueError when
// PYFLAME_EXIT_WAIT is malformed.
void at_exit(void (*stop)());

// Step 1. `give_up` is asked while it waits; true ends the waiting. Any thread may call it, and more than once.
void begin_exit(bool (*give_up)() = nullptr) noexcept;

}  // namespace pyflame
