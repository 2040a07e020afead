// What tensors, ops and the recorder ask of layers above them. This table is the only way upward, and tools/lint/definitions.py knows no
// other. runtime/runtime_hooks.cpp defines it as a constant: it is complete before any static object is made, and a program that lacks
// it does not link.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "pyflame/tensor/tensor.h"

namespace pyflame {

class Backend;
struct Window;
enum class CutReason : uint8_t;

// One way to compute something, as a backend's own search has found it.
struct FoundEntry {
  std::string name;
  double us = 0;
  std::string wrong = {};  // why it must not be used; empty: it computes the right result
};

struct RuntimeHooks {
  // The bytes of storages (runtime/allocator.h).
  Ref<Storage> (*allocate_storage)(Device device, size_t nbytes);
  void (*free_data)(Storage& s);
  void (*copy_from_host)(Storage& to, const void* from, size_t nbytes);
  void (*copy_to_host)(void* to, const Storage& from, size_t offset, size_t nbytes);
  bool (*copy_between)(Storage& to, const Storage& from, size_t offset, size_t nbytes);

  // Reads of values: s has its bytes and nothing is pending on it, or its failure is raised (runtime/runtime_hooks.cpp).
  void (*complete)(Storage& s);
  void (*check_read)(const Tensor& x);  // it has its bytes, and its values are about to be read
  Tensor (*copy_to_cpu)(const Tensor& x);

  void (*fix_layout)(const Tensor& x);              // record/emit.h
  void (*remake_view_history)(const Tensor& view);  // ops/helpers.h

  // Windows (runtime/executor.h) and who runs them (runtime/register_backends.cpp).
  void (*execute_window)(Window& w, CutReason reason) noexcept;
  void (*wait_for_devices)();
  void (*raise_pending_error)();
  void (*forget_pending_error)(const Poison* p);
  const Backend* (*find_backend)(DeviceType type);

  // What a backend's own search has found, in the file of measurements (runtime/searches.cpp). `what` stands in the place of the op.
  std::optional<std::string> (*recall_search)(Device device, const std::string& what, const std::string& problem);
  void (*keep_search)(Device device, const std::string& what, const std::string& problem,
                      const std::vector<FoundEntry>& found);
};

extern const RuntimeHooks runtime_hooks;

}  // namespace pyflame
