// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <optional>

#include "share/packet.hpp"
#include "share/runtime_socket.hpp"

namespace cuvmm::share {

// The importer's side of one connection. As long as it lives, what it was granted counts at the
// exporter as held by this process. Not synchronised.
class Session {
 public:
  // NotFound where nobody listens at the path, or the listener ended before it answered. A refusal
  // is InvalidArgument, and its text the Refusal's name; NotAvailable where the versions differ.
  static Result<Session> connect(const std::string& path, const Token& token, Deadline until);

  pid_t exporter() const { return exporter_; }

  // The next grant that the exporter makes to this process. NotFound where it has ended without
  // having made any.
  Result<Grant> receive(Deadline until);
  // Asks for one.
  struct Answer {
    std::optional<Grant> grant;
    Refusal refusal = Refusal::Failed;  // where there is no grant
  };
  Result<Answer> ask(const Ask& what, Deadline until);

  struct Batch {
    std::vector<Size> sizes;
    std::vector<Fd> descriptors;
  };
  // The chunks from `first` on, as many as come at once. Of a grant that was received.
  Result<Batch> fetch(const Grant& grant, std::uint32_t first, Deadline until);

  Result<void> acknowledge(const Grant& grant, std::uint32_t status, Deadline until);
  // Whatever of it was imported is unmapped and released here.
  Result<void> release(std::uint64_t grant, Deadline until);

 private:
  Session(Fd socket, pid_t exporter);
  Result<Packet> next_answer(Deadline until);

  ForkClosedFd socket_;
  pid_t exporter_ = 0;
  std::deque<Grant> waiting_;  // came while something else was waited for
};

}  // namespace cuvmm::share
