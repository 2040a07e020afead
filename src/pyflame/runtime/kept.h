// What a program computes from parameters and buffers alone: computed when none of them has changed from one run to the
// next, and used as long as none changes. Then a program without this part runs (compile/constants.h).
//
// A storage has not changed if it is the same one, nobody wrote to it (its version), nobody outside had a view of it meanwhile, and
// no write to it is pending. The offsets of views are no part of a program, so a value is used for the same views only. Layers
// of equal structure share a program, so values are kept for several sets of weights.
#pragma once
#include <memory>
#include <vector>

#include "pyflame/compile/constants.h"
#include "pyflame/compile/program.h"
#include "pyflame/runtime/added.h"
#include "pyflame/tensor/lasting.h"

namespace pyflame {

// The caller of all functions holds the engine's lock.
class KeptValues {
 public:
  // Null: the program computes nothing worth keeping; the notes are those of rewrites then.
  static std::shared_ptr<KeptValues> find(const Window& w, const Program& p, std::vector<RewriteNote>& notes);
  ~KeptValues();
  KeptValues(const KeptValues&) = delete;
  KeptValues& operator=(const KeptValues&) = delete;

  enum class Due { Original, Compute, Use };
  // What the window is to be run with. Compute: run first(), then take(), then rest().
  Due next(const Window& w, const Program& p);
  const Added& added() const { return added_; }
  CachedProgram& first() { return first_; }
  CachedProgram& rest() { return rest_; }
  // Keeps what first() has written to the window. False: it failed, and nothing will be kept any more.
  bool take(AddedToWindow& window, Window& w);
  void lend(AddedToWindow& window) const;
  // Frees all values. They are computed again later.
  void release();

 private:
  struct Root {
    uint64_t storage;
    uint32_t version, exposed;
    std::shared_ptr<LastingMark> mark;
  };
  struct Set {
    std::vector<Root> roots;
    std::vector<Param> params;
    std::vector<int64_t> offsets;      // of the views, in bytes
    std::vector<Ref<Storage>> values;  // empty: not computed
  };
  KeptValues(Separated s, Device device);
  bool steady(const Window& w) const;
  bool unchanged(const Set& known, const Window& w) const;
  // Whether the numbers and the views' offsets are those of the set.
  bool same_numbers(const Set& known, const Window& w) const;
  Set look(const Window& w) const;
  void compile(const Program& p);
  void count(const Set& s, int64_t sign) const;

  Device device_;
  Added added_;
  std::vector<SlotId> roots_, kept_, empty_;
  std::vector<ParamId> params_;
  std::vector<BindingId> bindings_;
  std::unique_ptr<Separated> separated_;  // until it is compiled
  CachedProgram first_, rest_;
  std::vector<Set> sets_;  // the newest first
  bool off_ = false;
};

// The bytes of all kept values on a device; they are among those of tensors.
uint64_t kept_bytes(Device device);
// Frees the kept values of all programs.
void release_kept_values();

}  // namespace pyflame
