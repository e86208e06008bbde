// SPDX-License-Identifier: Apache-2.0
// The process that takes one client off its devices, or brings it back. It is separate from the
// service because the driver's functions may block for any time, because the simulated driver gives
// a process only one card, and because it must have no more rights than the client's user.
#pragma once

#include <array>

#include "base/fd.hpp"
#include "checkpoint/deep_pause.hpp"
#include "daemon/peer.hpp"

namespace cuvmm::daemon {

enum class DeepPauseWay : std::uint8_t { Off, Back };

// The helper's last packet. Before it, the helper sends share::ControlRequests to the client, which
// the service passes on, and receives a share::ControlAnswer to each.
struct HelperReport {
  checkpoint::CheckpointEnd end = checkpoint::CheckpointEnd::Unknown;
  std::uint64_t took_us = 0;
  share::LeftMemory left{};
  std::array<char, 232> why{};  // empty: it has succeeded

  void say(const std::string& words);
  bool is_done() const { return why.front() == '\0'; }
};
static_assert(sizeof(HelperReport) != sizeof(share::ControlRequest), "they are told apart by size");

struct RunningHelper {
  pid_t process = 0;
  Fd socket;
};
// Starts this program again as a helper for the client.
Result<RunningHelper> start_helper(DeepPauseWay way, const Peer& client);

// Does not return if the arguments are those of a helper.
void run_as_helper(int count, char** words);

}  // namespace cuvmm::daemon
