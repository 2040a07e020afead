// The recorder: one window of pending ops per thread. Recording appends words to the window's key; nothing else is
// built unless the window turns out to be new. See ARCHITECTURE.md, "The window".
//
// Where a window is cut depends only on the sequence of ops:
//   sync points        a read, an escaped storage, another thread's use, synchronize(): cut at the end
//   structural marks   end of backward(), optimizer.step(): cut at the end
//   limits             ops or bytes: cut after the op with the largest content hash in the second half of the window, so that a
//                      loop body of any length is soon cut at the same op in each iteration
#pragma once
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "pyflame/backends/backend.h"
#include "pyflame/record/emit.h"
#include "pyflame/tensor/tensor.h"

namespace pyflame {

enum class CutReason : uint8_t { Sync, Mark, Limit, Escaped, OtherThread, WindowOne, Retry };
const char* cut_reason_name(CutReason r);

// A window while it is recorded; the program cache and the executor get it as well.
struct Window {
  struct Slot {
    Ref<Storage> storage;
    bool external;
    BindingId last_binding;  // the newest binding of this slot; bindings of a slot are linked by Binding::previous
  };
  struct Binding {
    SlotId slot;
    BindingId previous;
    int64_t byte_offset;
  };
  struct OpMark {  // where each op starts in the key
    uint32_t word;
    uint32_t hash;
    SourceLoc loc;
  };
  Device device;
  std::vector<uint64_t> key;
  Indexed<SlotId, Slot> slots;
  Indexed<BindingId, Binding> bindings;
  Indexed<ParamId, Param> params;
  Indexed<NodeId, OpMark> ops;
  int64_t new_bytes = 0;
  int64_t began = 0;    // events::now(), if a profile is recorded
  uint32_t thread = 0;  // the recording thread, in the profile

  bool empty() const { return ops.empty(); }
  void clear();
};

// Parses the key of a window into nodes.
Graph build_graph(const Window& w);
// Op number `op` of w as a window of its own. Storages that have their bytes by now are external to it.
Window single_op_window(const Window& w, NodeId op);

// The reads of a window that may be bound apart: those of external storages that no op writes and that are read at several
// offsets. A program in which such reads have bindings of their own is right whether or not they start at the same address.
struct ViewReads {
  uint64_t structure = 0;           // a hash of the key without the bindings of these reads
  std::vector<uint32_t> words;      // where the reads are in the key
  std::vector<BindingId> bindings;  // of each, as recorded
};
// `fixed` slots keep their bindings.
ViewReads find_view_reads(const Window& w, const Indexed<SlotId, bool>& fixed);
// Gives two of the reads one binding only if they are in one part. Reads in one part must have the same offset.
void bind_apart(Window& w, const ViewReads& reads, const std::vector<uint32_t>& parts);

// Maps storages to the slots of one window; private to recorder.cpp.
struct SlotTable;

class Recorder {
 public:
  Recorder();
  ~Recorder();
  static Recorder& current();  // the recorder of this thread

  void record(OpId op, std::span<const int64_t> attrs, std::span<const Arg> ins, std::span<TensorImpl* const> outs,
              bool outs_are_new);
  void cut(CutReason reason);
  void before_fork();
  void after_fork(bool in_child);

 private:
  void cut_locked(CutReason reason);
  void cut_at_limit();
  void run(Window& w, CutReason reason);
  void flush_others(std::span<const Arg> ins, std::span<TensorImpl* const> outs, bool outs_are_new);
  void begin(Device device);

  std::recursive_mutex mutex_;
  Window window_;
  std::unique_ptr<SlotTable> table_;
  int max_ops_, limit_ops_;
  int64_t max_bytes_, limit_bytes_;
  bool running_ = false;
  bool inherited_ = false;  // the process was forked while the window was pending
};

// Sets the greatest number of ops in a window for all threads (initially PYFLAME_WINDOW); 0: the recorder decides.
void set_window(int ops);
// Whether ops of a window with this key may be fused; otherwise each is a step of its own.
bool fuses(const std::vector<uint64_t>& key);
// Whether what this thread records from now on is fused (true at first). A change cuts its window. Returns what held before.
bool set_fusing(bool on);
// Cuts this thread's window (a structural mark).
void cut_window();
// Completes everything that any thread has recorded, and waits for all devices.
void synchronize();
// Completes all pending work on this storage, in whichever thread it was recorded; raises its poison.
void sync_storage(Storage& s);

}  // namespace pyflame
