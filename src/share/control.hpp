// SPDX-License-Identifier: Apache-2.0
// How a process is told from outside to pause and to resume: over a socket of its own, in the
// folder of its user alone, to those who run as that user and know the token beside it.
#pragma once

#include <array>
#include <functional>
#include <vector>

#include "base/clock.hpp"
#include "share/place.hpp"
#include "share/token.hpp"

namespace cuvmm::share {

enum class ControlWhat : std::uint32_t { Pause = 1, Resume = 2, State = 3 };

namespace control_flag {
inline constexpr std::uint32_t strict = 0x1;  // Pause: refuse where some memory cannot leave
inline constexpr std::uint32_t partly = 0x2;  // Resume: go on with what came back
}  // namespace control_flag

inline constexpr std::uint32_t control_version = 2;

struct ControlRequest {
  std::uint32_t version = control_version;
  ControlWhat what = ControlWhat::State;
  Token token;
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

// The side of the process that is told. It does nothing by itself: whoever calls serve() gives it
// the time.
class ControlSocket {
 public:
  static Result<ControlSocket> open(pid_t process);
  // Answers whoever comes, one after the other, until that time. Who is not let in gets nothing.
  void serve(const std::function<ControlAnswer(const ControlRequest&)>& answer, Deadline until);

  // Takes its files away, at the end of the process that opened it.
  void remove() const;

 private:
  ControlSocket(ListeningSocket listening, std::string token_path, const Token& token,
                pid_t process)
      : listening_(std::move(listening)),
        token_path_(std::move(token_path)),
        token_(token),
        process_(process) {}

  ListeningSocket listening_;
  std::string token_path_;
  Token token_;
  pid_t process_;
};

// The other side. NotFound where the process has no such socket.
Result<ControlAnswer> tell(pid_t process, ControlRequest request, Deadline until);

// Processes of this user that can be told.
std::vector<pid_t> controlled_processes();

}  // namespace cuvmm::share
