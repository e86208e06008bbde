// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <unordered_set>
#include <vector>

#include "alloc/memory.hpp"
#include "spill/device_swap_out.hpp"
#include "spill/standstill.hpp"

namespace cuvmm {

enum class Strict : std::uint8_t { No, Yes };  // Yes: refuse where some memory cannot leave
enum class Partly : std::uint8_t { No, Yes };  // Yes: go on with a part of it on the host

// What a pause or a resume has done.
struct PauseReport {
  Size moved = 0;
  Size stayed = 0;       // cannot leave, or has not come back to its device
  const char* why = "";  // it stayed
  std::uint64_t took_us = 0;
  std::uint64_t held_us = 0;  // of that, with the program standing still
  PauseTimes times;
};

// As others are told it, who have the same figures by the same names.
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

// Takes a process off its devices and puts it back. While it is paused its calls wait before they
// begin, what it held lies in pinned memory of the host, and its addresses are kept without memory
// behind them. A chunk is given back only once its contents are copied, and those are kept until
// all is back; so wherever a failure stops it, nothing is lost, and it can be asked again.
//
// One call at a time. Not from a thread that holds locks of ours, nor while it is in a call of the
// program's.
class Pauser {
 public:
  explicit Pauser(ProgramParts program, Size stock_piece = 128 * MiB)
      : program_(std::move(program)),
        stock_(program_.driver, stock_piece, program_.memory.host_budget()),
        host_(program_.driver) {}
  ~Pauser();
  Pauser(const Pauser&) = delete;
  Pauser& operator=(const Pauser&) = delete;

  // TimedOut where calls and work under way are not done in time, OutOfMemory where the host has no
  // room: then the program goes on as if nothing had been asked. So it does after a failure, unless
  // what has left cannot be brought back: then it is paused, and can be resumed. Nothing is done
  // where it is paused already.
  // `is_wanted` is asked while work under way is waited for; where it is not, that ends as one that
  // came too late.
  Result<PauseReport> pause(Duration timeout, Strict strict,
                            const StillWanted& is_wanted = &always_wanted);
  // OutOfMemory where the devices have no room now: then it stays paused, and may be asked again,
  // or asked to go on with a part of its memory on the host.
  Result<PauseReport> resume(Partly partly);

  bool is_paused() const { return is_paused_; }
  // What is away, and what came back to the host only.
  Size paused_bytes() const { return away_bytes() + on_host_bytes(); }

  // Pins ahead, or gives back what nobody has used for `idle`, a piece at a time: so that `ahead`
  // bytes are ready, but no more than there are on the devices. Whether there is more to do.
  bool look_after_stock(Size ahead, Duration idle);
  Size ready_bytes() const { return stock_.pinned_bytes(); }

 private:
  void find_host();
  Result<void> check_room_on_host(Size bytes) const;
  Result<void> take_all_out(PauseReport& report, Strict strict);
  Result<void> put_all_back(PauseReport& report, Partly partly);
  void list_what_leaves(PauseReport& report);
  void end_eviction();
  Size away_bytes() const;
  Size on_host_bytes() const { return host_.counters(Location::host(node_)).physical_in_use; }
  Size expected_bytes() const;

  const ProgramParts program_;
  HostStock stock_;
  std::uint64_t stock_used_at_ = 0;
  ChunkStore host_;  // chunks that are mapped where the device has no room
  std::unordered_set<CUmemGenericAllocationHandle> ours_;  // of those
  int node_ = 0;
  bool has_host_ = false;
  bool can_map_host_ = false;
  std::vector<std::unique_ptr<DeviceSwapOut>> removals_;  // a device each
  bool is_paused_ = false;
  PauseReport paused_;
};

// What the host can give without taking it from others, as the system says.
Size available_host_memory();

}  // namespace cuvmm
