// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>

#include "spill/better_places.hpp"
#include "spill/exchange.hpp"
#include "spill/standstill.hpp"

namespace cuvmm {

// Which memory lies on a device and which elsewhere, where not all of it can: what is used, on the
// device. Nothing is moved where it would be moved back and forth: so many bytes a second at the
// most, and ever more seldom where it was of no use.
class Placement {
 public:
  Placement(Surroundings program, LastUses& uses) : program_(std::move(program)), uses_(uses) {}
  Placement(const Placement&) = delete;
  Placement& operator=(const Placement&) = delete;

  // A look at that device, for some milliseconds at the most unless something is moved.
  // Uses: from now on it counts what is used when.
  enum class Attention : std::uint8_t { None, Uses };
  Attention look_after(DeviceMemory& device, std::uint64_t now);
  // Holds the program still and moves them. What was moved.
  // For calls that do not return the program's others wait so long.
  Result<Exchange::Moved> change(DeviceMemory& device, const BetterPlaces& places,
                                 std::uint64_t for_calls = usual_for_calls);

  // The program stands still, since the driver would not take back what was moved. It is asked
  // again at each look.
  bool is_stuck() const { return stuck_ != nullptr; }

 private:
  static constexpr std::uint64_t usual_for_calls = 5'000'000;

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
  };

  static void earn(Seen& seen, std::uint64_t now);
  static void judge(Seen& seen, std::uint64_t now);
  std::vector<HeldChunk> take_stock(Seen& seen, const DeviceMemory& device);
  Size room_near(DeviceMemory& device) const;
  static void make_ready(DeviceMemory& device, const BetterPlaces& places);
  bool mend();

  const Surroundings program_;
  LastUses& uses_;
  std::map<int, Seen> seen_;  // by device
  std::unique_ptr<Exchange> stuck_;
};

}  // namespace cuvmm
