// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/fd.hpp"
#include "share/message.hpp"
#include "share/system_error.hpp"

namespace cuvmm::share {

// One sendmsg(): bytes, with duplicates of the descriptors. Answers as sendmsg() does.
ssize_t send_bytes(int socket, std::span<const std::byte> bytes, std::span<const int> descriptors,
                   int flags);

// One recvmsg(): its answer, and every descriptor that came.
struct ReceivedBytes {
  ssize_t size = -1;
  bool is_cut_off = false;
  std::vector<Fd> descriptors = {};
};
ReceivedBytes receive_bytes(int socket, std::span<std::byte> room, int flags);

struct Packet {
  Message message;
  std::vector<Fd> descriptors;
};

// One packet, whole or not at all, with duplicates of the descriptors. Waits until the deadline for
// a reader that does not keep up; says_gone() of the Error where there is none any more.
Result<void> send(const Fd& socket, const Message& message, std::span<const int> descriptors,
                  Deadline until);

// The next packet. TimedOut where none has come by then. What is no proper packet is an Error, and
// what came with it is closed.
Result<Packet> receive(const Fd& socket, Deadline until);

// Until it can be read from (POLLIN) or written to (POLLOUT).
Result<void> wait_for(const Fd& socket, short what, Deadline until, const char* doing);

// The process at the other end runs as our user. What it calls itself there, or 0.
Result<pid_t> checked_peer(const Fd& socket);

}  // namespace cuvmm::share
