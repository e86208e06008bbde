// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/socket.h>

#include <deque>
#include <optional>

#include "share/packet.hpp"
#include "share/runtime_socket.hpp"

namespace cuvmm::share {

// The importer's side of one connection. While it lives, the exporter counts its grants as held by
// this process. Not thread-safe.
class Session {
 public:
  // NotFound if no process listens at the path, or if the listener ended before it answered.
  // NotAvailable if the versions differ. Any other refusal is InvalidArgument, with the Refusal's
  // name as its text.
  static Result<Session> connect(const std::string& path, const Token& token, Deadline until);

  pid_t exporter() const { return exporter_; }
  // The exporter's token, which all its importers know.
  const Token& token() const { return token_; }

  // The next grant that the exporter makes to this process. NotFound if the exporter has ended
  // without making any.
  Result<Grant> receive(Deadline until);
  // Asks for a grant.
  struct Answer {
    std::optional<Grant> grant;
    Refusal refusal = Refusal::Failed;  // if there is no grant
  };
  Result<Answer> ask(const Ask& what, Deadline until);

  struct Batch {
    std::vector<Size> sizes;
    std::vector<Fd> descriptors;
  };
  // Lets a call on another thread return, as if the exporter had gone.
  void interrupt() const { ::shutdown(socket_.number(), SHUT_RDWR); }
  // Whether the exporter has closed the connection.
  bool has_ended() const;
  // The next call of receive() returns this grant again.
  void put_back(const Grant& grant) { waiting_.push_front(grant); }
  // Fetches chunks of a received grant from `first` on, as many as one packet holds.
  Result<Batch> fetch(const Grant& grant, std::uint32_t first, Deadline until);

  Result<void> acknowledge(const Grant& grant, std::uint32_t status, Deadline until);
  // The caller has already unmapped and released everything it imported of the grant.
  Result<void> release(std::uint64_t grant, Deadline until);

 private:
  Session(Fd socket, pid_t exporter, const Token& token);
  // The answer to the request that was sent last.
  Result<Packet> next_answer(Deadline until);

  ForkClosedFd socket_;
  pid_t exporter_ = 0;
  Token token_;
  std::deque<Grant> waiting_;   // arrived while waiting for another answer
  std::size_t unanswered_ = 0;  // earlier requests whose answers were not waited for to the end
};

}  // namespace cuvmm::share
