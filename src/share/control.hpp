// SPDX-License-Identifier: Apache-2.0
// How a process is told from outside to pause and to resume: over a socket of its own, in the
// folder of its user alone, by those who run as that user.
#pragma once

#include <array>
#include <functional>
#include <optional>
#include <vector>

#include "base/clock.hpp"
#include "share/runtime_socket.hpp"

namespace cuvmm::share {

enum class ControlWhat : std::uint32_t { Pause = 1, Resume = 2, State = 3 };

namespace control_flag {
inline constexpr std::uint32_t strict = 0x1;  // Pause: refuse where some memory cannot leave
inline constexpr std::uint32_t partly = 0x2;  // Resume: go on with what came back
}  // namespace control_flag

inline constexpr std::uint32_t control_version = 3;

struct ControlRequest {
  std::uint32_t version = control_version;
  ControlWhat what = ControlWhat::State;
  std::uint64_t timeout_us = 0;
  std::uint32_t flags = 0;
  std::uint32_t reserved = 0;
};

enum class ControlOutcome : std::uint32_t { Done = 0, Refused = 1 };

struct ControlAnswer {
  std::uint32_t version = control_version;
  ControlOutcome outcome = ControlOutcome::Refused;
  std::uint64_t moved = 0;   // bytes
  std::uint64_t stayed = 0;  // bytes that cannot leave, or did not come back
  std::uint64_t took_us = 0;
  std::uint64_t held_us = 0;    // of that, with the program standing still
  std::uint64_t drain_us = 0;   // of took_us: until no call and no work was under way,
  std::uint64_t host_us = 0;    // until memory of the host was there and pinned,
  std::uint64_t copies_us = 0;  // until copies were done,
  std::uint64_t maps_us = 0;    // mapping and unmapping,
  std::uint64_t chunks_us = 0;  // taking memory of the devices and giving it back
  std::uint64_t ready = 0;      // bytes that the host has pinned for the next time
  std::uint32_t is_paused = 0;
  std::uint32_t reserved = 0;
  std::array<char, 256> text{};  // why it was refused, or why something stayed

  void say(const std::string& words);
};

// The receiving side. It does nothing by itself: the caller of serve() gives it
// the time.
class ControlSocket {
 public:
  // Whether what is asked for is still wanted: who asked is there, and nobody has asked for the
  // opposite. Long steps ask now and then; other peers are answered meanwhile.
  using StillWanted = std::function<bool()>;
  using Answering = std::function<ControlAnswer(const ControlRequest&, const StillWanted&)>;

  static Result<ControlSocket> open();
  // Answers peers one after the other until that time. One that is not let in gets nothing.
  void serve(const Answering& answer, Deadline until);

  // Takes its file away, at the end of the process that opened it.
  void remove() const { listening_.remove_file(); }

 private:
  struct Visitor {
    OwnFd socket;
    std::uint64_t came_us = 0;
    std::optional<ControlRequest> asks = {};  // once it has said it
  };

  explicit ControlSocket(ListeningSocket listening) : listening_(std::move(listening)) {}
  void let_in();
  void listen_to_visitors();
  void wait_for_visitors(Deadline until) const;
  bool is_still_wanted(const OwnFd& by, const Answering& answer);

  ListeningSocket listening_;
  std::vector<Visitor> visitors_;
};

// The other side. The process' number is the one it has here, in whatever namespace it runs.
// NotFound where it has no such socket.
Result<ControlAnswer> tell(pid_t process, ControlRequest request, Deadline until);

// Processes of this user that can be told from here. What the dead left is taken away.
std::vector<pid_t> controlled_processes();

}  // namespace cuvmm::share
