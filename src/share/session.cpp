// SPDX-License-Identifier: Apache-2.0
#include "share/session.hpp"

#include <utility>

namespace cuvmm::share {
namespace {

Error refused(const char* doing, const Refused& answer) {
  ErrorKind kind = ErrorKind::InvalidArgument;
  if (answer.why == Refusal::Version) kind = ErrorKind::NotAvailable;
  if (answer.why == Refusal::Ended) kind = ErrorKind::NotFound;
  return {.kind = kind, .doing = doing, .subject = name_of(answer.why)};
}

Error out_of_turn(const char* doing) {
  return Error::invalid(doing, "unexpected message from the exporter");
}

}  // namespace

Session::Session(Fd socket, pid_t exporter, const Token& token)
    : socket_(std::move(socket)), exporter_(exporter), token_(token) {}

Result<Session> Session::connect(const std::string& path, const Token& token, Deadline until) {
  constexpr const char* doing = "connect to the exporter";
  Fd socket = TRY(connect_to(path, until));
  TRY(checked_peer(socket));
  // If the exporter left before it answered, no process listens there any more.
  const auto gone = [&](const Error& error) {
    return says_gone(error) ? refused(doing, {.why = Refusal::Ended}) : error;
  };
  if (const auto sent = send(socket, Hello{token}, {}, until); !sent.ok())
    return gone(sent.error());
  const auto answered = cuvmm::share::receive(socket, until);
  if (!answered.ok()) return gone(answered.error());
  const Packet& answer = *answered;
  if (const auto* no = std::get_if<Refused>(&answer.message)) return refused(doing, *no);
  const auto* welcome = std::get_if<Welcome>(&answer.message);
  if (welcome == nullptr) return out_of_turn(doing);
  return Session{std::move(socket), static_cast<pid_t>(welcome->process), token};
}

// Grants arrive unsolicited, so some may precede the answer, and so may late answers to requests
// that timed out.
Result<Packet> Session::next_answer(Deadline until) {
  for (;;) {
    auto packet = cuvmm::share::receive(socket_.file(), until);
    if (!packet.ok()) {
      if (packet.error().kind == ErrorKind::TimedOut) ++unanswered_;
      return packet.error();
    }
    if (const auto* grant = std::get_if<Grant>(&packet->message)) {
      waiting_.push_back(*grant);
    } else if (unanswered_ == 0) {
      return packet;
    } else {
      --unanswered_;
    }
  }
}

Result<Grant> Session::receive(Deadline until) {
  constexpr const char* doing = "receive a grant";
  while (waiting_.empty()) {
    const Packet packet = TRY(cuvmm::share::receive(socket_.file(), until));
    if (const auto* grant = std::get_if<Grant>(&packet.message)) return *grant;
    if (unanswered_ > 0) {
      --unanswered_;
      continue;
    }
    if (const auto* no = std::get_if<Refused>(&packet.message)) return refused(doing, *no);
    return out_of_turn(doing);
  }
  const Grant first = waiting_.front();
  waiting_.pop_front();
  return first;
}

Result<Session::Answer> Session::ask(const Ask& what, Deadline until) {
  TRY(send(socket_.file(), what, {}, until));
  const Packet packet = TRY(cuvmm::share::receive(socket_.file(), until));
  if (const auto* grant = std::get_if<Grant>(&packet.message)) return Answer{.grant = *grant};
  if (const auto* no = std::get_if<Refused>(&packet.message)) {
    return Answer{.grant = {}, .refusal = no->why};
  }
  return out_of_turn("ask for memory");
}

Result<Session::Batch> Session::fetch(const Grant& grant, std::uint32_t first, Deadline until) {
  constexpr const char* doing = "fetch chunks";
  TRY(send(socket_.file(), Fetch{.grant = grant.id, .first = first}, {}, until));
  Packet packet = TRY(next_answer(until));
  if (const auto* no = std::get_if<Refused>(&packet.message)) return refused(doing, *no);
  auto* chunks = std::get_if<Chunks>(&packet.message);
  const bool is_answer = chunks != nullptr && chunks->grant == grant.id && chunks->first == first &&
                         chunks->sizes.size() <= grant.chunks - first;
  if (!is_answer) return out_of_turn(doing);
  return Batch{std::move(chunks->sizes), std::move(packet.descriptors)};
}

bool Session::has_ended() const {
  return has_gone(socket_.file());
}

Result<void> Session::acknowledge(const Grant& grant, std::uint32_t status, Deadline until) {
  return send(socket_.file(), Acknowledge{.grant = grant.id, .status = status}, {}, until);
}

Result<void> Session::release(std::uint64_t grant, Deadline until) {
  constexpr const char* doing = "release a grant";
  TRY(send(socket_.file(), Release{grant}, {}, until));
  const Packet packet = TRY(next_answer(until));
  const auto* released = std::get_if<Released>(&packet.message);
  if (released == nullptr || released->grant != grant) return out_of_turn(doing);
  return {};
}

}  // namespace cuvmm::share
