// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <map>
#include <unordered_set>

#include "alloc/memory.hpp"
#include "alloc/relocation.hpp"

namespace cuvmm {

enum class Strict : std::uint8_t { No, Yes };  // Yes: refuse where some memory cannot leave
enum class Partly : std::uint8_t { No, Yes };  // Yes: go on with what came back

// What a pause or a resume has done.
struct PauseReport {
  Size moved = 0;
  Size stayed = 0;       // cannot leave, or has not come back
  const char* why = "";  // it stayed
  std::uint64_t took_us = 0;
  std::uint64_t held_us = 0;  // of that, with the program standing still
};

// Takes a process off its devices and puts it back. While it is paused its calls wait, and its
// memory lies on the host, under the same addresses as before; so nothing can be lost on the way:
// wherever it stops, every byte is mapped and can be used, only more slowly.
//
// One call at a time. Not from a thread that holds locks of ours, nor from the program's own while
// it is in a call.
class Pauser {
 public:
  struct Surroundings {
    const Driver& driver;
    Memory& memory;
    Gate& gate;
    // Makes the program's calls wait before they begin, and lets them go on.
    std::function<void()> hold_calls;
    std::function<void()> let_calls_go;
  };
  explicit Pauser(Surroundings around) : around_(std::move(around)), host_(around_.driver) {}
  Pauser(const Pauser&) = delete;
  Pauser& operator=(const Pauser&) = delete;

  // TimedOut where the work that runs is not done in time, OutOfMemory where the host has no room:
  // then the program goes on as if nothing had been asked. Nothing is done where it is paused
  // already.
  Result<PauseReport> pause(Duration timeout, Strict strict);
  // OutOfMemory where the devices have no room now: then it stays paused, and may be asked again,
  // or asked to go on with a part of its memory on the host.
  Result<PauseReport> resume(Duration timeout, Partly partly);

  bool is_paused() const { return is_paused_; }
  Size paused_bytes() const { return host_.counters(Location::host(node_)).physical_in_use; }

 private:
  enum class Way : std::uint8_t { Out, Back };

  Relocation relocation(Way way, Relocation::Do what) const;
  // As many as there are, and why there are no more.
  Result<void> get_ready(Way way, DeviceMemory& device, Relocation& relocation);
  Result<void> move_all(Way way, PauseReport& report);
  Result<void> move_device(Way way, DeviceMemory& device, PauseReport& report);
  Result<void> stop(std::uint64_t until);
  void go_on();
  void forget_unused();
  Result<void> find_host();
  Result<void> check_room_on_host(Size bytes) const;

  const Surroundings around_;
  ChunkStore host_;
  int node_ = 0;
  bool has_host_ = false;
  std::unordered_set<CUmemGenericAllocationHandle> ours_;  // chunks of the host that we took
  std::map<int, Relocation> prepared_;                     // by device
  bool is_paused_ = false;
  PauseReport paused_;
};

// What the host can give without taking it from others, as the system says.
Size available_host_memory();

}  // namespace cuvmm
