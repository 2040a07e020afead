// The switches of the compiler's rewrites. pyflame/rewrites.py is made of these.
#include "rewrites.h"

#include "casters.h"
#include "pyflame/compile/rewrites.h"
#include "pyflame/record/recorder.h"

namespace pyflame::python {

void bind_rewrites(nb::module_& m) {
  m.def("_rewrites", [] {
    nb::list all;
    for (const RewriteInfo& r : rewrite_table()) all.append(nb::make_tuple(r.name, r.exact, r.describe));
    return all;
  });
  m.def("_rewrite_on", [](const std::string& name) { return rewrite_on(rewrite_from_name(name)); });
  m.def("_set_rewrite", [](const std::string& name, bool on) {
    const Rewrite r = rewrite_from_name(name);
    Unlocked u;
    Recorder::current().cut(CutReason::Sync);  // what was recorded so far keeps its rewrites
    return set_rewrite(r, on);
  });
  m.def("_rewrites_fired", [] {
    nb::dict counts;
    for (const RewriteInfo& r : rewrite_table()) counts[r.name] = times_fired(rewrite_from_name(r.name));
    return counts;
  });
  m.def("_read_rewrites", [] { read_rewrites_from_environment(); });
}

}  // namespace pyflame::python
