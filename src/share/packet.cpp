// SPDX-License-Identifier: Apache-2.0
#include "share/packet.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace cuvmm::share {
namespace {

constexpr std::size_t control_room = CMSG_SPACE(most_descriptors * sizeof(int));

bool is_end(int code) {
  return code == EPIPE || code == ECONNRESET || code == ENOTCONN;
}

// Takes every descriptor received, even if the packet is otherwise malformed.
std::vector<Fd> take_descriptors(msghdr& packet) {
  std::vector<Fd> taken;
  for (cmsghdr* at = CMSG_FIRSTHDR(&packet); at != nullptr; at = CMSG_NXTHDR(&packet, at)) {
    if (at->cmsg_level != SOL_SOCKET || at->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (at->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int number = -1;
      std::memcpy(&number, CMSG_DATA(at) + i * sizeof number, sizeof number);
      taken.emplace_back(number);
    }
  }
  return taken;
}

// The kernel passes on the first descriptors, as many as the process may still open.
Result<Packet> chunks_received(std::span<const std::byte> bytes, std::vector<Fd> descriptors) {
  constexpr const char* doing = "receive chunks";
  if (descriptors.empty()) {
    return Error{.kind = ErrorKind::SystemFailed, .system_code = EMFILE, .doing = doing};
  }
  Message message = TRY(decode(bytes, descriptors_of(bytes)));
  auto* const chunks = std::get_if<Chunks>(&message);
  if (chunks == nullptr) return Error::invalid(doing, "other descriptors came");
  if (descriptors.size() > chunks->sizes.size())
    return Error::invalid(doing, "more descriptors came");
  chunks->sizes.resize(descriptors.size());
  return Packet{std::move(message), std::move(descriptors)};
}

}  // namespace

ssize_t send_bytes(int socket, std::span<const std::byte> bytes, std::span<const int> descriptors,
                   int flags) {
  iovec data{.iov_base = const_cast<std::byte*>(bytes.data()), .iov_len = bytes.size()};
  alignas(cmsghdr) std::array<std::byte, control_room> control{};
  msghdr packet{};
  packet.msg_iov = &data;
  packet.msg_iovlen = 1;
  if (!descriptors.empty()) {
    packet.msg_control = control.data();
    packet.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
    cmsghdr* header = CMSG_FIRSTHDR(&packet);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(descriptors.size_bytes());
    std::memcpy(CMSG_DATA(header), descriptors.data(), descriptors.size_bytes());
  }
  return ::sendmsg(socket, &packet, flags | MSG_NOSIGNAL);
}

ReceivedBytes receive_bytes(int socket, std::span<std::byte> room, int flags) {
  alignas(cmsghdr) std::array<std::byte, control_room> control;
  iovec data{.iov_base = room.data(), .iov_len = room.size()};
  msghdr packet{};
  packet.msg_iov = &data;
  packet.msg_iovlen = 1;
  packet.msg_control = control.data();
  packet.msg_controllen = control.size();
  ReceivedBytes received{.size = ::recvmsg(socket, &packet, flags | MSG_CMSG_CLOEXEC)};
  if (received.size < 0) return received;
  received.descriptors = take_descriptors(packet);
  received.is_cut_off = (packet.msg_flags & MSG_TRUNC) != 0;
  received.lacks_descriptors = (packet.msg_flags & MSG_CTRUNC) != 0;
  return received;
}

int poll_files(std::span<pollfd> files, int milliseconds) {
  constexpr int rest = 10;
  const int ready = ::poll(files.data(), files.size(), milliseconds);
  if (ready >= 0 || errno == EINTR) return ready;
  if (milliseconds == 0) return 0;  // else a caller past its deadline would never see that
  ::poll(nullptr, 0, milliseconds < 0 ? rest : std::min(milliseconds, rest));
  for (pollfd& file : files) file.revents = file.fd < 0 ? short{0} : file.events;
  return static_cast<int>(files.size());
}

bool has_event(const Fd& socket, short events) {
  pollfd seen{.fd = socket.number(), .events = events, .revents = 0};
  return ::poll(&seen, 1, 0) > 0;
}

bool has_gone(const Fd& socket) {
  return !socket.is_open() || has_event(socket, POLLRDHUP);
}

Result<void> wait_for(const Fd& socket, short what, Deadline until, const char* doing) {
  for (;;) {
    pollfd waited{.fd = socket.number(), .events = what, .revents = 0};
    if (poll_files({&waited, 1}, until.milliseconds_left()) > 0) return {};
    if (until.is_over()) return Error{.kind = ErrorKind::TimedOut, .doing = doing};
  }
}

Result<void> send(const Fd& socket, const Message& message, std::span<const int> descriptors,
                  Deadline until) {
  constexpr const char* doing = "send a message";
  std::array<std::byte, longest_packet> room;
  const auto bytes = encode(message, room);
  for (;;) {
    if (send_bytes(socket.number(), bytes, descriptors, MSG_DONTWAIT) >= 0) return {};
    if (errno == EINTR) continue;
    if (is_end(errno)) return other_side_has_gone(doing);
    if (errno != EAGAIN) return system_error(doing);
    TRY(wait_for(socket, POLLOUT, until, doing));
  }
}

Result<Packet> receive(const Fd& socket, Deadline until) {
  constexpr const char* doing = "receive a message";
  std::array<std::byte, longest_packet> room;
  for (;;) {
    ReceivedBytes received = receive_bytes(socket.number(), room, MSG_DONTWAIT);
    const ssize_t got = received.size;
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && is_end(errno)) return other_side_has_gone(doing);
    if (got < 0 && errno != EAGAIN) return system_error(doing);
    if (got < 0) {
      TRY(wait_for(socket, POLLIN, until, doing));
      continue;
    }
    if (got == 0) return other_side_has_gone(doing);
    if (received.is_cut_off) return Error::invalid(doing, "it was cut off");
    const auto bytes = std::span{room}.first(static_cast<std::size_t>(got));
    if (received.lacks_descriptors) {
      return chunks_received(bytes, std::move(received.descriptors));
    }
    Message message = TRY(decode(bytes, received.descriptors.size()));
    return Packet{std::move(message), std::move(received.descriptors)};
  }
}

Result<pid_t> checked_peer(const Fd& socket, uid_t user) {
  constexpr const char* doing = "ask who is at the other end";
  ucred who{};
  socklen_t size = sizeof who;
  if (::getsockopt(socket.number(), SOL_SOCKET, SO_PEERCRED, &who, &size) != 0) {
    return system_error(doing);
  }
  if (who.uid != user) {
    errno = EACCES;
    return system_error(doing, "a process of another user");
  }
  return who.pid;
}

}  // namespace cuvmm::share
