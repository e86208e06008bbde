// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>
#include <unordered_set>
#include <vector>

#include "alloc/program_eviction.hpp"
#include "spill/device_swap_out.hpp"
#include "spill/quiesce.hpp"

namespace cuvmm {

enum class Strict : std::uint8_t { No, Yes };  // Yes: refuse if some memory cannot leave
enum class Partly : std::uint8_t { No, Yes };  // Yes: continue with some memory on the host

// The result of a pause or a resume.
struct PauseReport {
  Size moved = 0;
  Size stayed = 0;       // could not leave, or has not come back to its device
  const char* why = "";  // why it stayed
  std::uint64_t took_us = 0;
  std::uint64_t held_us = 0;  // of took_us: while the program stood still
  PauseTimes times;
};

// Callbacks by which the caller of a pause can cancel it and follow its progress.
struct PauseWatch {
  // Polled throughout; once it returns false, the pause ends as if it had timed out.
  StillWanted is_wanted = &always_wanted;
  // Asked once the program stands still; if it returns false, the pause ends in the same way.
  StillWanted may_move = &always_wanted;
  // Called each time some memory has been released.
  std::function<void()> has_released = [] {};
  // Whether the program may continue with some memory on the host if the pause fails once others
  // have taken what it had released. No: it stays paused, and the caller resumes it.
  Partly undo = Partly::Yes;
};

// Copies the figures into a structure that has them under the same names.
template <class Told>
void copy_figures(const PauseReport& report, Told& told) {
  told.moved = report.moved;
  told.stayed = report.stayed;
  told.took_us = report.took_us;
  told.held_us = report.held_us;
  told.drain_us = report.times.drain_us;
  told.host_us = report.times.host_us;
  told.copies_us = report.times.copies_us;
  told.maps_us = report.times.maps_us;
  told.chunks_us = report.times.chunks_us;
}

// Swaps a process out of its devices and back in. While it is paused, its calls block on entry, its
// memory lies in host memory, and its addresses are kept without memory behind them. A chunk
// is released only once its contents have been copied, and the copies are kept until everything is
// back; so wherever a failure stops it, nothing is lost, and it can be asked again.
//
// One call at a time. Must not be called by a thread that holds locks of ours or is inside one of
// the program's calls.
class Pauser {
 public:
  struct HostSizes {
    Size piece = 128 * MiB;  // pinned at once
    Size ring = 64 * MiB;    // to copy through into memory that is not pinned
  };
  explicit Pauser(ProgramParts program) : Pauser(std::move(program), HostSizes{}) {}
  Pauser(ProgramParts program, const HostSizes& sizes)
      : program_(std::move(program)),
        stock_(program_.driver, sizes.piece, program_.memory.host_budget()),
        ring_size_(sizes.ring),
        ring_(program_.driver, sizes.ring, program_.memory.host_budget()),
        host_(program_.driver) {}
  ~Pauser();
  Pauser(const Pauser&) = delete;
  Pauser& operator=(const Pauser&) = delete;

  // TimedOut if calls and work in flight do not finish in time; OutOfMemory if the host has no
  // room. In both cases the program goes on as if nothing had been requested. It also does after
  // other failures, with memory for which its device has no room any longer on the host, unless
  // evicted memory cannot be restored: then the process is left paused. Does nothing if it is
  // already paused. If an earlier pause left it so, first resumes it.
  Result<PauseReport> pause(Duration timeout, Strict strict, const PauseWatch& watch = {});
  // OutOfMemory if the devices have no room now. The process then stays paused; the caller may try
  // again, or ask to continue with some of the memory on the host.
  Result<PauseReport> resume(Partly partly);
  // After that answer, waits until `until`, or until `is_wanted` returns false, for other programs
  // of the node service to make room. Returns whether another attempt may succeed.
  bool wait_for_room(std::uint64_t until, const StillWanted& is_wanted);

  // While paused: brings memory back, in order, as far as the devices' leases have room for it. The
  // resume does the rest. If the driver refuses something, it stays away.
  void return_ahead();
  // Takes off the devices again what return_ahead() has brought back.
  void leave_again();

  bool is_paused() const { return is_paused_; }
  // Paused by a pause that failed. Its caller may not know, so it should be resumed as soon as
  // possible.
  bool is_left_paused() const { return has_failed_ && undo_ == Partly::Yes; }
  const ProgramParts& program() const { return program_; }
  // Memory that is swapped out, and memory that came back only as far as the host.
  Size paused_bytes() const { return away_bytes() + on_host_bytes(); }
  Size on_host_bytes() const { return host_.counters(Location::host(node_)).physical_in_use; }
  // Whether memory ever came back only as far as the host. Can be called at any time.
  bool has_left_on_host() const { return has_left_on_host_.load(std::memory_order_relaxed); }
  // Of the last pause: memory that could not leave.
  Size stayed_bytes() const { return paused_.stayed; }

  // Keeps `ahead` bytes of host memory pinned, but no more than the devices hold: each call pins a
  // piece, or gives back a piece if the memory has been unused for `idle`. Also gives back host
  // memory that the program has used in place of a device's and freed. True if there is more to do.
  bool look_after_stock(Size ahead, Duration idle);
  // Pins one more piece of the host memory that holds a paused program's contents, so that the
  // resume and the next pause copy without the ring. True if there is more to do.
  bool pin_more();
  // Pinned host memory.
  Size ready_bytes() const { return stock_.pinned_bytes() + ring_.pinned_bytes(); }

 private:
  void find_host();
  Result<void> check_room_on_host(Size bytes) const;
  HostSide host_side();
  Result<void> take_all_out(PauseReport& report, Strict strict, const PauseWatch& watch);
  Result<void> put_all_back(PauseReport& report, Partly partly);
  Result<void> put_each_back(PauseReport& report, Partly partly);
  Result<void> put_back_after_failure(Partly partly);
  void list_what_leaves(PauseReport& report);
  void end_eviction();
  bool trim_host(Size down_to);
  Size away_bytes() const;
  Size expected_bytes() const;
  AccessSet devices() const;      // with memory that may leave
  int first_device() const;       // of them; -1: none
  CUcontext any_context() const;  // on one of them; nullptr: none
  void note_what_is_held();
  void list_programs_chunks(int ordinal, CUcontext context, EvictionSet& evicted);

  const ProgramParts program_;
  HostStock stock_;
  const Size ring_size_;
  HostStock ring_;  // one piece, pinned
  std::uint64_t stock_used_at_ = 0;
  ChunkStore host_;  // host chunks mapped when the device has no room
  std::unordered_set<CUmemGenericAllocationHandle> ours_;  // chunks of host_
  std::atomic<bool> has_left_on_host_{false};
  int node_ = 0;
  bool has_host_ = false;
  bool can_map_host_ = false;
  std::vector<std::unique_ptr<ProgramEviction>> programs_;  // of its own chunks, one per device
  std::vector<std::unique_ptr<DeviceSwapOut>> removals_;    // one per device
  // What each device's budget held when the pause began. That much may return, whichever device's
  // memory had been spilled there, and even beyond a limit that has been lowered since.
  std::vector<std::pair<LocalBudget*, Size>> held_before_;
  bool is_paused_ = false;
  bool has_failed_ = false;  // the pause that left it paused
  Partly undo_ = Partly::Yes;
  PauseReport paused_;
  PauseReport ahead_;  // the time that return_ahead() has taken, for the report of the resume
};

}  // namespace cuvmm
