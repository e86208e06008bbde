// SPDX-License-Identifier: Apache-2.0
// The control protocol: another process of the same user tells this one to pause or resume, over a
// socket in that user's private folder.
#pragma once

#include <unistd.h>

#include <array>
#include <functional>
#include <optional>
#include <vector>

#include "base/clock.hpp"
#include "base/group_step.hpp"
#include "base/still_wanted.hpp"
#include "share/group_pause.hpp"
#include "share/runtime_socket.hpp"

namespace cuvmm::share {

enum class ControlWhat : std::uint32_t {
  Pause = 1,
  Resume = 2,
  State = 3,
  // From a process that takes this one off its devices with the driver's checkpoint functions.
  // LeaveDevices is granted only while this process is paused. From then on until HasReturned, none
  // of cuvmm's threads here calls the driver, and a Resume is refused.
  LeaveDevices = 4,
  HasLeft = 5,
  HasReturned = 6,  // or never left
  // After a Pause with the flag `together`, on the same connection: the next step.
  Step = 7,
};

enum class Presence : std::uint32_t { OnDevices = 0, Leaving = 1, OffDevices = 2 };

// What the process was when a request arrived.
enum class Before : std::uint32_t { Unknown = 0, Running = 1, Paused = 2 };

// The memory that left each device, in MiB, by the device's number in NVML.
using LeftMemory = std::array<std::uint32_t, 16>;

namespace control_flag {
inline constexpr std::uint32_t strict = 0x1;  // Pause: refuse if some memory cannot leave
inline constexpr std::uint32_t partly = 0x2;  // Resume: continue with the memory that came back
// Pause: with other processes, whose pauses the sender coordinates. Before its answer, the process
// reports where it stands, as often as that changes.
inline constexpr std::uint32_t together = 0x4;
}  // namespace control_flag

inline constexpr std::uint32_t control_version = 5;

struct ControlRequest {
  std::uint32_t version = control_version;
  ControlWhat what = ControlWhat::State;
  std::uint64_t timeout_us = 0;
  std::uint32_t flags = 0;
  std::uint32_t step = 0;  // Step: a GroupStep
  LeftMemory left{};       // HasLeft; LeaveDevices: what the sender expects to leave
};

enum class ControlOutcome : std::uint32_t {
  Done = 0,
  Refused = 1,
  // Not yet the answer: the process holds its calls, and its work has ended, or is in flight.
  EndedWork = 2,
  Works = 3,
};

struct ControlAnswer {
  std::uint32_t version = control_version;
  ControlOutcome outcome = ControlOutcome::Refused;
  std::uint64_t moved = 0;   // bytes
  std::uint64_t stayed = 0;  // bytes that could not leave, or did not come back
  std::uint64_t took_us = 0;
  std::uint64_t held_us = 0;    // of took_us: while the program stood still
  std::uint64_t drain_us = 0;   // of took_us: until no call and no work was in flight,
  std::uint64_t host_us = 0;    // until host memory was allocated and pinned,
  std::uint64_t copies_us = 0;  // until copies finished,
  std::uint64_t maps_us = 0;    // mapping and unmapping,
  std::uint64_t chunks_us = 0;  // allocating and releasing device memory
  std::uint64_t ready = 0;      // host bytes kept pinned for the next pause
  std::uint32_t is_paused = 0;
  Presence presence = Presence::OnDevices;
  LeftMemory left{};                // unless OnDevices
  std::uint32_t steps_heard = 0;    // EndedWork, Works: how many steps it had received
  Before before = Before::Unknown;  // to Pause and Resume
  std::array<char, 256> text{};     // why it was refused, or why some memory stayed

  void say(const std::string& words);
};

// The receiving side. It has no thread of its own: it runs inside serve().
class ControlSocket {
 public:
  // A request is still wanted while its sender is connected, a pause only until somebody requests a
  // resume. Asking that also answers other peers. There is a coordinator if the request is to pause
  // together.
  using Answering =
      std::function<ControlAnswer(const ControlRequest&, const StillWanted&, PauseCoordinator*)>;

  static Result<ControlSocket> open();
  // Answers peers one at a time until the deadline. A peer that is not admitted gets no answer.
  void serve(const Answering& answer, Deadline until);

  // Updates the time of the socket's file, or replaces it if it has been removed, as logind does
  // with a user's runtime folder at logout. Call from time to time, on the thread that serves.
  void keep_file();
  // Removes the socket's file. For the end of the process that opened it.
  void remove() const { listening_.remove_file(); }

 private:
  class SenderAsCoordinator;
  struct Visitor {
    OwnFd socket;
    std::uint64_t came_us = 0;
    std::optional<ControlRequest> asks = {};  // once received
  };

  explicit ControlSocket(ListeningSocket listening) : listening_(std::move(listening)) {}
  static Result<ListeningSocket> listen();
  void keep_spare();
  bool free_spare_for_visitor();
  void let_in();
  void listen_to_visitors();
  void wait_for_visitors(Deadline until) const;
  ControlAnswer answer_to(const Visitor& visitor, const Answering& answer);
  bool is_still_wanted(const Visitor& asking, const Answering& answer);

  ListeningSocket listening_;
  uid_t user_ = ::geteuid();  // keeps control of a program that then drops its privileges
  // Lets one visitor in when the program has used up its descriptors. Otherwise a program whose
  // other threads go on opening files while it is paused could not be resumed.
  ForkClosedFd spare_;
  std::vector<Visitor> visitors_;
};

// The sending side. `process` is the pid in the caller's namespace, whatever namespace the process
// runs in. NotFound if it has no control socket.
class ControlConnection {
 public:
  static Result<ControlConnection> open(pid_t process, Deadline until);
  Result<void> send(const ControlRequest& request, Deadline until) const;
  // Nothing if none has arrived yet.
  Result<std::optional<ControlAnswer>> receive() const;
  const Fd& socket() const { return socket_; }

 private:
  explicit ControlConnection(Fd socket) : socket_(std::move(socket)) {}
  Fd socket_;
};

// A request with one answer.
Result<ControlAnswer> tell(pid_t process, const ControlRequest& request, Deadline until);

// The same, over a connection to the process, or to another that answers for it.
Result<ControlAnswer> tell(const Fd& socket, const ControlRequest& request, Deadline until);

// Processes of this user that can be controlled from here. Removes the sockets of dead processes.
std::vector<pid_t> controlled_processes();

}  // namespace cuvmm::share
