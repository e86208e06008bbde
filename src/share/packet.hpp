// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <poll.h>
#include <unistd.h>

#include <span>

#include "base/fd.hpp"
#include "share/message.hpp"
#include "share/system_error.hpp"

namespace cuvmm::share {

// One sendmsg(): bytes, with duplicates of the descriptors. Returns what sendmsg() returns.
ssize_t send_bytes(int socket, std::span<const std::byte> bytes, std::span<const int> descriptors,
                   int flags);

// One recvmsg(): its result, and every descriptor received.
struct ReceivedBytes {
  ssize_t size = -1;
  bool is_cut_off = false;
  bool lacks_descriptors = false;  // this process could not take them all
  std::vector<Fd> descriptors = {};
};
ReceivedBytes receive_bytes(int socket, std::span<std::byte> room, int flags);

struct Packet {
  Message message;
  std::vector<Fd> descriptors;
};

// Sends one packet, whole or not at all, with duplicates of the descriptors. Waits until the
// deadline if the reader is slow. If the reader is gone, says_gone() is true of the Error.
Result<void> send(const Fd& socket, const Message& message, std::span<const int> descriptors,
                  Deadline until);

// The next packet. TimedOut if none arrives by the deadline. A malformed packet is an Error, and
// the descriptors that came with it are closed. A process that has few descriptors left receives
// only the first chunks of a Chunks message.
Result<Packet> receive(const Fd& socket, Deadline until);

// poll(2), but not an error if the system refuses it, as it does once the program has lowered its
// limit of descriptors (RLIMIT_NOFILE) below their number. Then this rests for a moment and reports
// every file as ready, so callers must not block on any.
int poll_files(std::span<pollfd> files, int milliseconds);

// Whether one of these events (poll(2)) has occurred.
bool has_event(const Fd& socket, short events);
// Whether the other side has closed the connection, or this process its end of it.
bool has_gone(const Fd& socket);
// Waits until the socket is readable (POLLIN) or writable (POLLOUT).
Result<void> wait_for(const Fd& socket, short what, Deadline until, const char* doing);

// Checks that the process at the other end runs as this user. Returns its pid in our namespace, or
// 0.
Result<pid_t> checked_peer(const Fd& socket, uid_t user = ::geteuid());

}  // namespace cuvmm::share
