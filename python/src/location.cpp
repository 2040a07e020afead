// The line of the user's Python that called an op. Recording an op stores a code object and an instruction offset. Text
// is made only on request, and without Python, because the requesting thread (an executor that failed) may not hold the
// GIL. Code objects are kept alive forever; there are as many as the program has functions.
#include "casters.h"

// base/location.h names the provider's functions.
#include "pyflame/base/location.h"

#include <cxxabi.h>
#include <fmt/format.h>
#include <frameobject.h>
#include <unistd.h>

#include <array>
#include <mutex>
#include <unordered_map>

#include "pyflame/base/fork.h"

namespace pyflame::python {

namespace {
struct CodeInfo {
  std::string file, name;
  bool internal;  // inside the pyflame package
  bool standard;  // inside Python's standard library, such as threading.py
};
std::mutex g_mutex;
std::unordered_map<PyCodeObject*, CodeInfo> g_codes;
const AtFork g_at_fork{ForkOrder::Python, [] { g_mutex.lock(); }, [](bool) { g_mutex.unlock(); }};
std::string g_package;   // ".../pyflame/"
std::string g_standard;  // ".../lib/python3.11/"
thread_local SourceLoc t_waiting;
thread_local bool t_is_waiting = false;
// Inside our own modules: the call of the outermost one.
thread_local SourceLoc t_module;
thread_local bool t_in_module = false;

std::string text_of(PyObject* s) {
  const char* p = s ? PyUnicode_AsUTF8(s) : nullptr;
  if (!p) {
    PyErr_Clear();
    return "?";
  }
  return p;
}

bool in_standard_library(const std::string& file) {
  if (file.starts_with("<frozen ")) return true;
  if (g_standard.empty() || !file.starts_with(g_standard)) return false;
  return file.find("/site-packages/") == std::string::npos && file.find("/dist-packages/") == std::string::npos;
}

// Only with the GIL, which also protects the cached answers.
const CodeInfo& info_of(PyCodeObject* code) {
  struct Known {
    PyCodeObject* code = nullptr;
    const CodeInfo* info = nullptr;
  };
  static std::array<Known, 64> all;
  Known& known = all[reinterpret_cast<uintptr_t>(code) / sizeof(PyCodeObject) % all.size()];
  if (code == known.code) return *known.info;
  std::lock_guard lock(g_mutex);
  auto it = g_codes.find(code);
  if (it == g_codes.end()) {
    CodeInfo info{text_of(code->co_filename), "", false, false};
#if PY_VERSION_HEX >= 0x030b0000
    info.name = text_of(code->co_qualname);
#else
    info.name = text_of(code->co_name);
#endif
    info.internal =
        !g_package.empty() && info.file.starts_with(g_package) && !info.file.starts_with(g_package + "testing/");
    info.standard = in_standard_library(info.file);
    Py_INCREF(code);
    it = g_codes.emplace(code, std::move(info)).first;
  }
  known = {code, &it->second};
  return it->second;
}

int last_instruction(PyFrameObject* f) {
#if PY_VERSION_HEX >= 0x030b0000
  return PyFrame_GetLasti(f);
#elif PY_VERSION_HEX >= 0x030a0000
  return f->f_lasti * 2;
#else
  return f->f_lasti;
#endif
}

PyCodeObject* code_of(PyFrameObject* f) {  // borrowed: the frame keeps it
  PyCodeObject* c = PyFrame_GetCode(f);
  Py_DECREF(c);
  return c;
}

SourceLoc current() { return current_python_location(); }

std::string describe(const SourceLoc& loc) {
  auto* code = static_cast<PyCodeObject*>(const_cast<void*>(loc.code));
  if (!code) return "unknown place";
  std::lock_guard lock(g_mutex);
  const auto it = g_codes.find(code);
  if (it == g_codes.end()) return "unknown place";
  const std::string& f = it->second.file;
  const size_t slash = f.rfind('/');
  return fmt::format("{}:{} in {}", slash == std::string::npos ? f : f.substr(slash + 1),
                     PyCode_Addr2Line(code, loc.where), it->second.name);
}
}  // namespace

SourceLoc current_python_location() noexcept {
  if (!PyGILState_Check()) return t_is_waiting ? t_waiting : SourceLoc{};
  if (t_in_module) return t_module;
  PyFrameObject* f = PyEval_GetFrame();
  if (!f) return t_is_waiting ? t_waiting : SourceLoc{};
  // The innermost frame of the user. Without one, as in a thread of the DataLoader, the outermost one of the package.
  const CodeInfo* info = &info_of(code_of(f));
  SourceLoc found{code_of(f), last_instruction(f)};
  if (!info->internal && !info->standard) return found;
  Py_INCREF(f);
  while (f) {
    PyFrameObject* back = PyFrame_GetBack(f);
    Py_DECREF(f);
    f = back;
    if (!f) break;
    info = &info_of(code_of(f));
    if (info->standard) continue;
    found = {code_of(f), last_instruction(f)};
    if (!info->internal) {
      Py_DECREF(f);
      break;
    }
  }
  return found;
}

ModuleCode::ModuleCode(PyCodeObject* code) : site_(t_module), before_(t_in_module) {
  const bool ours = code && info_of(code).internal;
  if (ours == t_in_module) return;
  if (ours) t_module = current_python_location();
  t_in_module = ours;
}

ModuleCode::~ModuleCode() {
  t_module = site_;
  t_in_module = before_;
}

Unlocked::Unlocked() : before_(t_waiting), had_(t_is_waiting) {
  t_waiting = current_python_location();
  t_is_waiting = true;
  state_ = PyEval_SaveThread();
}

namespace {
template <class F>
void or_wait_for_ever(F take) {
  try {
    take();
  } catch (const abi::__forced_unwind&) {
    for (;;) pause();
  }
}
}  // namespace

Locked::Locked() {
  or_wait_for_ever([this] { state_ = PyGILState_Ensure(); });
}
Locked::~Locked() { PyGILState_Release(state_); }

Unlocked::~Unlocked() {
  or_wait_for_ever([this] { PyEval_RestoreThread(state_); });
  t_waiting = before_;
  t_is_waiting = had_;
  drain_dropped();
}

void install_location_provider() {
  try {
    g_package = nb::cast<std::string>(nb::module_::import_("pyflame").attr("__path__")[nb::int_(0)]) + "/";
    const auto os = nb::cast<std::string>(nb::module_::import_("os").attr("__file__"));
    g_standard = os.substr(0, os.rfind('/') + 1);
  } catch (const std::exception&) {
    PyErr_Clear();
  }
  set_location_provider(&current, &describe);
}

}  // namespace pyflame::python
