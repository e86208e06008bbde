// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

#include "base/fd.hpp"
#include "sim/shared_file.hpp"

namespace cuvmm::sim {

// The progress of an event that several processes share: how often it was recorded, and its latest
// record that was reached. Any of the processes may record it.
class SharedRecord {
 public:
  // Return nullptr if the system has no memory.
  static std::shared_ptr<SharedRecord> create();
  static std::shared_ptr<SharedRecord> open(const SharedFile& shared);
  ~SharedRecord();
  SharedRecord(const SharedRecord&) = delete;
  SharedRecord& operator=(const SharedRecord&) = delete;

  // Lets other processes of the same user open it.
  std::optional<SharedFile> file() const;

  std::uint64_t begin() { return ++counts_->recorded; }
  void reach(std::uint64_t record);

  std::uint64_t last() const { return counts_->recorded.load(); }
  bool is_reached(std::uint64_t record) const { return counts_->reached.load() >= record; }
  void wait_for(std::uint64_t record) const;

 private:
  struct Counts {
    std::atomic<std::uint64_t> recorded{0};
    std::atomic<std::uint64_t> reached{0};
  };
  static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

  SharedRecord(Fd file, Counts* counts) : file_(std::move(file)), counts_(counts) {}
  static std::shared_ptr<SharedRecord> map(Fd file);

  Fd file_;
  Counts* const counts_;
};

}  // namespace cuvmm::sim
