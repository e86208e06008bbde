// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <utility>

#include "base/interprocess_memory.hpp"
#include "vmm/kept_file.hpp"

namespace cuvmm {

struct ChunkRecord;

// Where a chunk goes when its last reference is dropped.
class ChunkHome {
 public:
  virtual void come_home(ChunkRecord* record) = 0;
  virtual void was_exported(const ChunkRecord& record) = 0;

 protected:
  ~ChunkHome() = default;
};

// A chunk and its reference count. Created by a ChunkHome, or without a home by ChunkRef::adopt.
struct ChunkRecord {
  ChunkRecord(Chunk&& owned, ChunkHome* where_from)
      : chunk(std::move(owned)),
        home(where_from),
        is_counted(chunk.imported() && InterprocessMemory::add()) {}
  ~ChunkRecord() {
    if (is_counted) InterprocessMemory::remove();
  }
  ChunkRecord(const ChunkRecord&) = delete;
  ChunkRecord& operator=(const ChunkRecord&) = delete;

  // The descriptor first: it keeps the memory allocated.
  Result<void> release_chunk() {
    file.close();
    return chunk.release();
  }

  Chunk chunk;
  ChunkHome* const home;
  std::atomic<std::uint32_t> references{1};
  // Never reset: the driver does not report when other processes stop holding the memory.
  std::atomic<bool> exported{false};
  bool is_counted;  // in InterprocessMemory
  KeptFile file;    // destroyed before the chunk
};

// A counted pointer to a chunk. A chunk may be mapped at several addresses and has no single owner:
// every mapping of it holds a ChunkRef, and so does the caller that took it from a store. When the
// last one goes, the chunk returns to its store as a free chunk, or is released if it has no store.
class ChunkRef {
 public:
  ChunkRef() = default;
  static ChunkRef adopt(Chunk chunk) {
    return ChunkRef{new ChunkRecord{std::move(chunk), nullptr}};
  }
  // Adopts one reference that is already counted.
  static ChunkRef taking(ChunkRecord* record) { return ChunkRef{record}; }

  ChunkRef(const ChunkRef& other) : record_(other.record_) {
    if (record_ != nullptr) record_->references.fetch_add(1, std::memory_order_relaxed);
  }
  ChunkRef(ChunkRef&& other) noexcept : record_(std::exchange(other.record_, nullptr)) {}
  ChunkRef& operator=(ChunkRef other) noexcept {
    std::swap(record_, other.record_);
    return *this;
  }
  ~ChunkRef() {
    if (record_ != nullptr) release(record_);
  }

  explicit operator bool() const { return record_ != nullptr; }
  const Chunk& operator*() const { return record_->chunk; }
  const Chunk* operator->() const { return &record_->chunk; }
  friend bool operator==(const ChunkRef& a, const ChunkRef& b) { return a.record_ == b.record_; }
  friend bool operator<(const ChunkRef& a, const ChunkRef& b) {
    return std::less<ChunkRecord*>{}(a.record_, b.record_);
  }

  // Whether this is the only reference. Stays true until this reference is copied.
  bool is_sole() const { return record_->references.load(std::memory_order_acquire) == 1; }
  bool exported() const { return record_->exported.load(std::memory_order_acquire); }

  // See Chunk::export_fd().
  Result<Fd> export_fd() const {
    if (!mark_exported()) return is_off_its_devices();
    return record_->chunk.export_fd();
  }
  // The same descriptor each time, if there is room to keep it; valid while this reference lives.
  Result<SentFile> file_to_send() const {
    if (!mark_exported()) return is_off_its_devices();
    return record_->file.of(record_->chunk);
  }
  // Exports the chunk before anyone asks for it, if its descriptor can be kept. If the driver
  // refuses, file_to_send() tries again.
  void prepare_to_send() const {
    if (mark_exported()) static_cast<void>(record_->file.keep(record_->chunk));
  }
  // Others may hold the chunk from now on, for as long as they like. When the last reference here
  // goes, it is released and never reused. False while the process is off its devices.
  bool mark_exported() const {
    if (exported()) return true;
    if (!InterprocessMemory::add()) return false;
    if (record_->exported.exchange(true, std::memory_order_acq_rel)) {
      InterprocessMemory::remove();  // another thread was first
      return true;
    }
    if (std::exchange(record_->is_counted, true)) InterprocessMemory::remove();  // an imported one
    if (record_->home != nullptr) record_->home->was_exported(*record_);
    return true;
  }

 private:
  explicit ChunkRef(ChunkRecord* record) : record_(record) {}

  static Error is_off_its_devices() {
    return Error::invalid("export chunk", "the process is off its devices");
  }

  static void release(ChunkRecord* record) {
    if (record->references.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    if (record->home != nullptr) {
      record->home->come_home(record);
    } else {
      delete record;
    }
  }

  ChunkRecord* record_ = nullptr;
};

}  // namespace cuvmm
