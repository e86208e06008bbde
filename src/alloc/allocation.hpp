// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

#include "base/size.hpp"
#include "driver/cuda.hpp"

namespace cuvmm {

class ContextMemory;
class PoolMemory;

enum class Served : std::uint8_t {
  StreamOrdered,  // from an arena of a pool
  Small,          // blocking memory too small for a window
  Window,         // blocking memory with address granules of its own
  Imported,       // memory of another process, mapped here
};

// Reasons why an allocation must not move, one bit each.
namespace pin {
inline constexpr std::uint8_t exported = 0x01;
inline constexpr std::uint8_t legacy_ipc = 0x02;
inline constexpr std::uint8_t dma_buf = 0x04;
inline constexpr std::uint8_t sync_memops = 0x08;
inline constexpr std::uint8_t peer_tokens = 0x10;
inline constexpr std::uint8_t multicast = 0x20;
}  // namespace pin
// Pins under which others may hold the memory after it has been freed.
inline constexpr std::uint8_t held_by_others =
    pin::exported | pin::legacy_ipc | pin::dma_buf | pin::multicast | pin::peer_tokens;
// Of these, those for which no descriptor of the chunk was made.
inline constexpr std::uint8_t held_by_devices = pin::dma_buf | pin::multicast | pin::peer_tokens;

// The owner of an allocation: a context, a pool, or the context that imported it.
// AllocationFacts::served tells which.
class AllocationOwner {
 public:
  AllocationOwner() = default;
  AllocationOwner(ContextMemory* blocking) : is_(blocking) {}
  AllocationOwner(PoolMemory* ordered) : is_(ordered) {}
  AllocationOwner(CUcontext importer) : is_(importer) {}
  friend bool operator==(const AllocationOwner&, const AllocationOwner&) = default;

 private:
  friend struct AllocationFacts;
  void* is_ = nullptr;
};

// A consistent snapshot of an allocation.
struct AllocationFacts {
  CUdeviceptr address = 0;
  Size granted = 0;
  Size asked = 0;
  std::uint64_t buffer_id = 0;  // never reused in this process
  AllocationOwner owner;
  Served served = Served::StreamOrdered;
  std::uint8_t pins = 0;
  std::int16_t device = 0;
  std::uint32_t version = 0;  // of the record, when this was read

  bool contains(CUdeviceptr at) const { return at >= address && at - address < granted; }

  bool is_blocking() const { return served == Served::Small || served == Served::Window; }
  // Each is nullptr for memory of another kind: blocking, stream-ordered, imported.
  ContextMemory* context_memory() const {
    return is_blocking() ? static_cast<ContextMemory*>(owner.is_) : nullptr;
  }
  PoolMemory* pool_memory() const {
    return served == Served::StreamOrdered ? static_cast<PoolMemory*>(owner.is_) : nullptr;
  }
  CUcontext importer() const {
    return served == Served::Imported ? static_cast<CUcontext>(owner.is_) : nullptr;
  }
};

// The record of memory that the program holds. The allocator that cuts it (an arena, the windows)
// derives its own record from this one, places it and hands it out; the AllocationMap finds it.
// Readers hold no lock: they take a copy, and the version tells whether the copy is consistent. So
// a record must stay readable as a record after its allocation is gone (RecordPool).
class Allocation {
 public:
  CUdeviceptr address() const { return address_.load(std::memory_order_acquire); }
  Size granted() const { return granted_.load(std::memory_order_acquire); }
  Size asked() const { return asked_.load(std::memory_order_acquire); }
  CUdeviceptr end() const { return address() + granted(); }

  // The record no longer describes memory. Call before giving the record back, so that a lookup
  // does not mistake it for the next allocation at that address.
  void unplace() { place(0, 0); }

  // Whether the AllocationMap has it at its current place.
  bool is_listed() const { return (marks_.load(std::memory_order_acquire) & listed) != 0; }
  void set_listed() { marks_.fetch_or(listed, std::memory_order_acq_rel); }

  struct Holding {
    Size asked;
    std::uint64_t buffer_id = 0;  // assigned by HeldAllocations
    AllocationOwner owner;
    Served served;
    std::int16_t device;
  };

  // Called by the owner, while the program does not hold it.
  void place(CUdeviceptr address, Size granted) {
    const Change change{*this};
    marks_.store(0, std::memory_order_release);
    address_.store(address, std::memory_order_release);
    granted_.store(granted, std::memory_order_release);
  }

  // The program holds it from now on.
  void hold(const Holding& holding) {
    {
      const Change change{*this};
      asked_.store(holding.asked, std::memory_order_release);
      buffer_id_.store(holding.buffer_id, std::memory_order_release);
      owner_.store(holding.owner, std::memory_order_release);
      served_.store(holding.served, std::memory_order_release);
      device_.store(holding.device, std::memory_order_release);
      marks_.fetch_and(listed, std::memory_order_acq_rel);
    }
    version_.fetch_or(held_bit, std::memory_order_acq_rel);
  }
  // The program releases the allocation that `facts` describe. Of several concurrent attempts
  // exactly one succeeds; none does if the record has changed since.
  bool try_release(const AllocationFacts& facts) {
    std::uint32_t seen = facts.version;
    return version_.compare_exchange_strong(seen, seen & ~held_bit, std::memory_order_acq_rel);
  }
  // Undoes try_release() if the allocation could not be freed. Called by the thread that released
  // it.
  void restore_held() { version_.fetch_or(held_bit, std::memory_order_acq_rel); }
  std::uint64_t holder() const {
    const auto held = facts();
    return held ? held->buffer_id : 0;
  }
  bool is_held() const { return (version_.load(std::memory_order_acquire) & held_bit) != 0; }

  std::uint8_t pins() const {
    return marks_.load(std::memory_order_acquire) & static_cast<std::uint8_t>(~listed);
  }
  bool pinned() const { return pins() != 0; }
  void add_pin(std::uint8_t why) { marks_.fetch_or(why, std::memory_order_acq_rel); }
  void drop_pin(std::uint8_t why) {
    marks_.fetch_and(static_cast<std::uint8_t>(~why), std::memory_order_acq_rel);
  }

  // nullopt if the program does not hold it, or it changed while being read.
  std::optional<AllocationFacts> facts() const {
    const std::uint32_t before = version_.load(std::memory_order_acquire);
    if ((before & held_bit) == 0) return std::nullopt;
    AllocationFacts facts{.address = address(),
                          .granted = granted(),
                          .asked = asked(),
                          .buffer_id = buffer_id_.load(std::memory_order_acquire),
                          .owner = owner_.load(std::memory_order_acquire),
                          .served = served_.load(std::memory_order_acquire),
                          .pins = pins(),
                          .device = device_.load(std::memory_order_acquire),
                          .version = before};
    if (version_.load(std::memory_order_relaxed) != before) return std::nullopt;
    return facts;
  }

 private:
  static constexpr std::uint8_t listed = 0x80;

  // A record does not change while the program holds it. So a copy is consistent if the program
  // held it before and after the read, in the same version.
  static constexpr std::uint32_t held_bit = 1;
  static constexpr std::uint32_t version_step = 2;

  // Only the owner changes the record, so no other thread advances the version.
  class Change {
   public:
    explicit Change(Allocation& changed) : version_(changed.version_) { step(); }
    ~Change() { step(); }
    Change(const Change&) = delete;
    Change& operator=(const Change&) = delete;

   private:
    void step() {
      const std::uint32_t next = version_.load(std::memory_order_relaxed) + version_step;
      version_.store(next & ~held_bit, std::memory_order_release);
    }
    std::atomic<std::uint32_t>& version_;
  };

  std::atomic<CUdeviceptr> address_{0};
  std::atomic<Size> granted_{0};
  std::atomic<Size> asked_{0};
  std::atomic<std::uint64_t> buffer_id_{0};
  std::atomic<AllocationOwner> owner_{};
  std::atomic<std::uint32_t> version_{0};
  std::atomic<std::int16_t> device_{0};
  std::atomic<Served> served_{Served::StreamOrdered};
  std::atomic<std::uint8_t> marks_{0};  // pins, and whether it is listed
};
static_assert(sizeof(Allocation) <= 48);

// A record without data of an allocator's own.
struct PlainAllocation : Allocation {
  PlainAllocation*& next_unused() { return next; }
  PlainAllocation* next = nullptr;
};

}  // namespace cuvmm
