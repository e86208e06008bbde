// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <optional>
#include <unordered_map>

#include "alloc/served_devices.hpp"

namespace cuvmm {

// Device memory that the program has taken from the driver natively, by name. It counts against the
// limit; without a limit nothing is counted. Chunks count in another way (NativeCharge).
// Thread-safe.
class NativeMemory {
 public:
  enum class Kind : std::uint8_t { Address, Array };
  struct Name {
    Kind kind;
    std::uint64_t number;
    bool operator==(const Name&) const = default;
  };
  struct Taken {
    int device;
    Size size;
    // The context that the memory ends with; nullptr: none.
    CUcontext context = nullptr;
  };

  // All must outlive this object.
  NativeMemory(const Driver& driver, const MemorySettings& settings, ServedDevices& devices);

  bool counts() const { return counts_; }
  // Whether a limit or the node service bounds the chunks that the program creates.
  bool bounds_chunks() const { return bounds_chunks_; }
  // Memory of the current context.
  void took(const Name& name, Size size);
  void took(const Name& name, const Taken& taken);
  // Memory of a pool, which may be another device's or the host's, whatever context is current.
  // Host memory does not count.
  void took_from_pool(CUdeviceptr address, Size size);
  // Call before the driver frees the memory, since the name may be reused right after. Returns what
  // no longer counts.
  std::optional<Taken> gives_back(const Name& name);

  // The driver has freed the context's memory. Memory of pools stays.
  void context_ended(CUcontext context);
  // The memory of a green context belongs to its device's primary context, and ends with that.
  void belongs_to(CUcontext green, CUcontext primary);

 private:
  struct NameHash {
    std::size_t operator()(const Name& name) const noexcept {
      return (name.number ^ (std::uint64_t{static_cast<std::uint8_t>(name.kind)} << 60)) *
             0x9E3779B97F4A7C15u;
    }
  };
  void remember(const Name& name, const Taken& taken);
  std::optional<Taken> forget(const Name& name);

  const Driver& driver_;
  ServedDevices& devices_;
  const bool counts_;
  const bool bounds_chunks_;
  std::atomic<std::size_t> count_{0};

  Lock lock_{LockOrder::Devices};  // guards what follows
  std::unordered_map<Name, Taken, NameHash> taken_;
};

}  // namespace cuvmm
