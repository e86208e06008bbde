// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <map>
#include <memory>

#include "spill/better_places.hpp"
#include "spill/migration.hpp"
#include "spill/standstill.hpp"

namespace cuvmm {

// Which memory lies on a device and which elsewhere, where not all of it can: what is used, on the
// device. Nothing is moved where it would be moved back and forth: so many bytes a second at the
// most, and ever more seldom where it was of no use.
class Placement {
 public:
  Placement(ProgramParts program, LastUses& uses) : program_(std::move(program)), uses_(uses) {}
  Placement(const Placement&) = delete;
  Placement& operator=(const Placement&) = delete;

  // A look at that device, for some milliseconds at the most unless something is moved.
  // Uses: from now on it counts what is used when.
  enum class Attention : std::uint8_t { None, Uses };
  Attention look_after(DeviceMemory& device, std::uint64_t now);
  // Holds the program still and moves them. What was moved.
  // For calls that do not return the program's others wait so long.
  Result<Migration::Moved> change(DeviceMemory& device, const BetterPlaces& places,
                                  std::uint64_t for_calls = usual_for_calls,
                                  std::uint64_t for_work = usual_for_work);

  // Memory of the device that could lie elsewhere without being missed, as of the last look: it was
  // not used for some seconds, and is not of a program whose work cannot be seen (a graph's).
  // Looked for where the device's memory is leased.
  Size cold(const DeviceMemory& device) const;
  // Moves that much of it, if there is as much; for calls and work that are under way it waits so
  // long. Returns how much went.
  Result<Size> move_out(DeviceMemory& device, Size wanted, Duration within);

  // The program stands still, since the driver would not take back what was moved. It is asked
  // again at each look.
  bool is_stuck() const { return stuck_ != nullptr; }

  // From any thread.
  struct Tally {
    std::atomic<Size> in{0};   // moved to the device so far
    std::atomic<Size> out{0};  // moved away from it
    std::atomic<Size> hot{0};  // spilled, and used at the last looks
  };
  const Tally& tally(int ordinal) const { return tallies_[static_cast<std::size_t>(ordinal)]; }

 private:
  static constexpr std::uint64_t usual_for_calls = 5'000'000;
  static constexpr std::uint64_t usual_for_work = 500'000'000;  // it works meanwhile

  struct Seen {
    std::uint64_t looked_at = 0;
    Size allowance = 0;  // that may be moved
    std::uint64_t not_before = 0;
    std::uint64_t patience = 0;  // after the next that is of no use
    std::uint64_t rest = 0;      // after the next that the program does not stand still for
    Size covered = 0;            // memory that it had when its addresses were covered
    Stays stays;
    // Of spilled memory, that was used from look to look.
    Size used_far = 0;
    Size used_far_before = 0;    // when it was last moved
    std::uint64_t judge_at = 0;  // whether that was of use; 0: it is known
    Size cold = 0;
    std::uint64_t cold_at = 0;  // when that was found
  };

  static void earn(Seen& seen, std::uint64_t now);
  static void judge(Seen& seen, std::uint64_t now);
  std::vector<HeldChunk> take_stock(Seen& seen, const DeviceMemory& device);
  BetterPlaces find_cold(Seen& seen, DeviceMemory& device, Size wanted);
  Size room_near(DeviceMemory& device) const;
  static Result<void> make_ready(DeviceMemory& device, const BetterPlaces& places);
  bool mend();

  const ProgramParts program_;
  LastUses& uses_;
  std::map<int, Seen> seen_;  // by device
  std::array<Tally, AccessSet::most_devices> tallies_{};
  std::unique_ptr<Migration> stuck_;
};

}  // namespace cuvmm
