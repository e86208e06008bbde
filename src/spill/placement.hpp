// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <span>

#include "alloc/program_eviction.hpp"
#include "spill/better_places.hpp"
#include "spill/migration.hpp"
#include "spill/quiesce.hpp"

namespace cuvmm {

// Decides which memory lies on a device if not all of it fits: the memory that is in use. Avoids
// moving memory back and forth: it moves a limited number of bytes a second, and ever less often if
// moving did not help.
class Placement {
 public:
  Placement(ProgramParts program, LastUses& uses) : program_(std::move(program)), uses_(uses) {}
  Placement(const Placement&) = delete;
  Placement& operator=(const Placement&) = delete;

  // Examines the device; takes a few milliseconds at most unless it moves something.
  //
  // Attention::Uses: the times of uses must be recorded from now on.
  enum class Attention : std::uint8_t { None, Uses };
  Attention step(DeviceMemory& device, std::uint64_t now);
  // Holds the program still and moves the chunks. Returns the bytes moved. Waits at most
  // `for_calls` for calls of the program that do not return.
  Result<Migration::Moved> change(DeviceMemory& device, const BetterPlaces& places,
                                  std::uint64_t for_calls = usual_for_calls,
                                  std::uint64_t for_work = usual_for_work);

  // Device memory that could move elsewhere without slowing the program, as of the last look:
  // unused for some seconds, and not of a program whose work cannot be seen (a graph's). Computed
  // only if the device's memory is leased.
  Size cold(const DeviceMemory& device) const;
  // Moves up to `wanted` bytes of it out. Waits at most `within` for calls and work in flight.
  // Returns the bytes moved.
  Result<Size> move_out(DeviceMemory& device, Size wanted, Duration within);

  // Moves the chunks in these ranges to the device, where they are not yet, and the least
  // recently used ones out for them. Waits at most `within` for calls and work in flight. Returns
  // whether all of them are there.
  bool move_near(DeviceMemory& device, std::span<const AddressRange> ranges, Duration within);

  // The program is held still because the driver refuses to map moved memory. Each look tries
  // again.
  bool is_stuck() const { return stuck_ != nullptr; }

  // Any thread may read it.
  struct Tally {
    std::atomic<Size> in{0};   // moved to the device so far
    std::atomic<Size> out{0};  // moved away from it
    std::atomic<Size> hot{0};  // spilled, and in use at the last looks
  };
  const Tally& tally(int ordinal) const { return tallies_[static_cast<std::size_t>(ordinal)]; }

 private:
  static constexpr std::uint64_t usual_for_calls = 5'000'000;
  static constexpr std::uint64_t usual_for_work = 500'000'000;  // the device works meanwhile

  struct Seen {
    std::uint64_t looked_at = 0;
    Size allowance = 0;  // bytes that may be moved
    std::uint64_t not_before = 0;
    std::uint64_t patience = 0;  // delay after the next move that does not help
    std::uint64_t rest = 0;      // delay after the next failure to hold the program still
    Size covered = 0;            // its memory when its addresses were last covered
    Size held_near = 0;  // whole chunks of ours on the device that hold memory of the program
    Stays stays;
    // Spilled memory in use between looks, smoothed.
    Size used_far = 0;
    Size used_far_before = 0;     // at the last move
    std::uint64_t assess_at = 0;  // when to assess that move; 0: done
    Size cold = 0;
    std::uint64_t cold_at = 0;  // when that was computed
  };

  static void refill_allowance(Seen& seen, std::uint64_t now);
  static void assess_last_move(Seen& seen, std::uint64_t now);
  std::vector<HeldChunk> take_stock(Seen& seen, const DeviceMemory& device);
  void join_unnamed(std::vector<HeldChunk>& held, std::size_t first) const;
  void begin_moving(const DeviceMemory& device, const BetterPlaces& places, EvictionSet& evicted);
  BetterPlaces find_cold(Seen& seen, DeviceMemory& device, Size wanted);
  // Which memory of the device counts as free.
  enum class Room : std::uint8_t { WithinLimit, Ready, InStore };
  Result<bool> bring_near(DeviceMemory& device, std::span<const AddressRange> ranges, Room room,
                          std::uint64_t until);
  static Size ready_near(const Seen& seen, const DeviceMemory& device);
  Size not_taken(const DeviceMemory& device) const;
  Size free_near(const Seen& seen, const DeviceMemory& device, Room room) const;
  Size room_near(const Seen& seen, const DeviceMemory& device) const;
  static Result<void> make_ready(DeviceMemory& device, const BetterPlaces& places);
  bool restore();

  const ProgramParts program_;
  LastUses& uses_;
  std::map<int, Seen> seen_;  // by device
  std::array<Tally, AccessSet::most_devices> tallies_{};
  std::unique_ptr<ProgramEviction> programs_;  // of the last change
  std::unique_ptr<Migration> stuck_;           // uses it
};

}  // namespace cuvmm
