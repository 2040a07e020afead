// Why the calling thread needs its window computed, as a text for pf.explain: "item()", "the end of backward()".
#pragma once

namespace pyflame {

// While it exists, cuts by this thread have this cause. The outermost one counts: it is what the user called. The text
// must live as long as the process.
class CutCause {
 public:
  explicit CutCause(const char* what) : outermost_(!current()) {
    if (outermost_) current() = what;
  }
  ~CutCause() {
    if (outermost_) current() = nullptr;
  }
  CutCause(const CutCause&) = delete;
  CutCause& operator=(const CutCause&) = delete;

  // null: unknown
  static const char*& current() {
    thread_local const char* what = nullptr;
    return what;
  }

 private:
  bool outermost_;
};

}  // namespace pyflame
