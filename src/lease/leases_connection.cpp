// SPDX-License-Identifier: Apache-2.0
// The connection to the service, and the messages received on it.
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/log_rarely.hpp"
#include "lease/say.hpp"
#include "share/packet.hpp"
#include "share/runtime_socket.hpp"

namespace cuvmm::lease {

using namespace node;  // NOLINT(google-build-using-namespace): its words are this file's subject

namespace {

constexpr Duration shortest_backoff{100'000};
constexpr Duration longest_backoff{5'000'000};

bool belongs_to_root_or_us(uid_t user) {
  return user == 0 || user == ::geteuid();
}

bool is_of_a_trusted_service(const Fd& socket) {
  ucred who{};
  socklen_t size = sizeof who;
  return ::getsockopt(socket.number(), SOL_SOCKET, SO_PEERCRED, &who, &size) == 0 &&
         belongs_to_root_or_us(who.uid);
}

}  // namespace

std::vector<std::string> sockets_that_may_be_trusted(const std::vector<std::string>& sockets) {
  std::vector<std::string> trusted;
  for (const std::string& path : sockets) {
    struct stat facts {};
    if (::stat(path.c_str(), &facts) == 0 && S_ISSOCK(facts.st_mode) &&
        belongs_to_root_or_us(facts.st_uid)) {
      trusted.push_back(path);
    }
  }
  return trusted;
}

void* Leases::keep_connected(void* leases) {
  ::pthread_setname_np(::pthread_self(), "cuvmm-node");
  static_cast<Leases*>(leases)->connect_and_listen();
  return nullptr;
}

void Leases::connect_and_listen() {
  for (Duration backoff = shortest_backoff;;) {
    auto socket = connect();
    if (socket.ok()) {
      greet(std::move(*socket));
      listen();
      if (is_connected()) backoff = shortest_backoff;
      lose();
    } else {
      note_unavailable(socket.error());
    }
    ::usleep(static_cast<useconds_t>(backoff.count()));
    backoff = std::min(2 * backoff, longest_backoff);
  }
}

void Leases::note_unavailable(const Error& why) {
  {
    const Holding holding{lock_};
    is_unavailable_ = true;
    heard_.notify_all();
  }
  if (!settings_.is_required) return;
  CUVMM_LOG_ONCE(Warning,
                 "no node service can be reached (%s), and VMM_NODE=require refuses memory without "
                 "one; start cuvmmd",
                 why.text().c_str());
}

Result<Fd> Leases::connect() const {
  Error why{.kind = ErrorKind::NotFound, .doing = "connect to the node service"};
  for (const std::string& path : sockets_that_may_be_trusted(settings_.sockets)) {
    auto socket = share::connect_to(path, share::Deadline::after(Duration{100'000}));
    if (socket.ok() && is_of_a_trusted_service(*socket)) return socket;
    if (!socket.ok()) why = socket.error();
  }
  return why;
}

void Leases::greet(Fd socket) {
  const Holding holding{lock_};
  socket_ = ForkClosedFd{std::move(socket)};
  standing_ = Standing::Greeted;
  is_unavailable_ = false;
  is_silent_ = false;
  send(Greeting{.name = settings_.name,
                .group = settings_.group,
                .weight = settings_.weight,
                .priority = settings_.priority,
                .places = static_cast<std::uint8_t>(place_count_)});
  abandoned_.clear();
  presence_told_.reset();
  for (Leased& place : places()) {
    send(use_of(place, place.budget->lease_what_is_held()));
    place.reported = {};
    place.reported_at = 0;
  }
}

void Leases::listen() {
  std::array<std::byte, longest_message + 1> packet{};
  bool was_reset = false;
  for (;;) {
    // Only this thread closes the socket. It polls without the lock, since others send meanwhile.
    pollfd seen{.fd = socket_.number(), .events = POLLIN, .revents = 0};
    if (seen.fd < 0) return;
    if (share::poll_files({&seen, 1}, 1000) <= 0) continue;
    if (!socket_.is_open()) return;  // the program closed it meanwhile, and may use its number
    const share::ReceivedBytes received = share::receive_bytes(seen.fd, packet, MSG_DONTWAIT);
    const ssize_t got = received.size;
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    // Data sent before the reset can still be read after ECONNRESET.
    if (got < 0 && errno == ECONNRESET && !std::exchange(was_reset, true)) continue;
    if (got <= 0) return;
    if (received.descriptors.size() == 1) {
      take_board(received.descriptors.front(),
                 std::span{packet}.first(static_cast<std::size_t>(got)));
      continue;
    }
    const Holding holding{lock_};
    const bool goes_on =
        hear_one_of<Accepted, Rejected, PlaceTerms, LeaseGrant, LeasePart, LeaseRefusal,
                    ReclaimDemand, PauseWithGroup, NextGroupStep, WorkDeadline, PresenceDemand>(
            std::span{packet}.first(static_cast<std::size_t>(got)),
            [this](const auto& said) { return take_note(said); });
    note_answer();
    heard_.notify_all();
    if (!goes_on) return;
  }
}

void Leases::take_board(const Fd& file, std::span<const std::byte> packet) {
  if (sharer_ == nullptr) return;
  bool is_own = true;
  hear_one_of<ForegroundBoard>(packet, [&](const ForegroundBoard& said) {
    is_own = false;
    grants_.take_foreground(said.slot, file);
    return true;
  });
  if (!is_own || !grants_.take(file)) return;
  if (!std::exchange(shares_time_, true)) sharer_->begin(*this, grants_);
}

void Leases::say_time_news() {
  const Holding holding{lock_};
  if (standing_ == Standing::Connected) send(TimeNews{});
}

void Leases::shares(const ShareKey& key) {
  const Holding holding{lock_};
  if (std::find(shares_.begin(), shares_.end(), key) != shares_.end()) return;
  if (shares_.size() == most_share_keys) shares_.erase(shares_.begin());
  shares_.push_back(key);
  unsaid_shares_ = std::min(unsaid_shares_ + 1, shares_.size());
  // A program may export events faster than the service accepts messages, so the second thread
  // sends the rest.
  if (now_ns() - shares_said_at_ > 10 * a_millisecond) say_shares();
}

void Leases::say_shares() {
  if (standing_ != Standing::Connected || unsaid_shares_ == 0) return;
  shares_said_at_ = now_ns();
  const auto unsaid = static_cast<std::ptrdiff_t>(std::exchange(unsaid_shares_, 0));
  send(SharesHandles{{shares_.end() - unsaid, shares_.end()}});
}

void Leases::lose() {
  grants_.lose();
  const Holding holding{lock_};
  if (standing_ == Standing::Connected) {
    if (!std::exchange(reconnects_, false)) {
      CUVMM_LOG_RARELY(Info, "the node service is gone; current leases stay");
    }
    if (away_since_ == 0) away_since_ = now_ns();
  }
  standing_ = Standing::Apart;
  socket_.close();
  demands_.clear();
  presence_demands_.clear();
  with_group_.clear();
  group_step_.reset();  // the next service may use the same revision
  group_steps_heard_ = 0;
  work_deadlines_.clear();
  for (Pending& pending : pending_) pending.state = Pending::State::Lost;
  heard_.notify_all();
}

bool Leases::take_note(const Accepted&) {
  standing_ = Standing::Connected;
  send(PausesWithGroup{});
  unsaid_shares_ = shares_.size();
  say_shares();
  if (sharer_ != nullptr) {
    send(TimeWish{settings_.cap});
    send(YieldsToForeground{});
  }
  // The service does not know devices that were added after the greeting.
  for (const Leased& place : places()) {
    if (!place.has_terms) send(use_of(place, 0));
  }
  return true;
}

bool Leases::take_note(const PlaceTerms& said) {
  Leased* const place = find(said.place);
  if (place == nullptr) return true;
  place->has_terms = true;
  place->budget->set_leased_limit(said.limit);
  return true;
}

bool Leases::take_note(const Rejected& said) {
  if (said.why == Rejection::GuaranteesDoNotFit && !asks_no_guarantee_) {
    asks_no_guarantee_ = true;
    CUVMM_LOG(Warning, "the node service cannot hold the guarantee (%s); running without one",
              said.text.c_str());
  } else {
    is_unavailable_ = true;
    CUVMM_LOG_RARELY(Warning, "the node service refuses this process: %s", said.text.c_str());
  }
  return false;
}

bool Leases::take_note(const LeaseGrant& said) {
  if (Pending* const pending = find(said.request)) {
    pending->place->budget->add_lease(pending->bytes);
    pending->state = Pending::State::Granted;
    note_new_room();
    return true;
  }
  // The grant came too late for its requester. Unneeded memory is returned with the surplus.
  for (const Pending& late : abandoned_) {
    if (late.request == said.request) late.place->budget->add_lease(late.bytes);
  }
  std::erase_if(abandoned_, [&](const Pending& late) { return late.request == said.request; });
  return true;
}

void Leases::note_new_room() {
  has_new_room_ = true;
  work_.notify_all();
}

bool Leases::take_note(const LeasePart& said) {
  const auto belongs = [&](const Pending& one) { return one.request == said.request; };
  for (auto* const requests : {&pending_, &abandoned_}) {
    const auto found = std::find_if(requests->begin(), requests->end(), belongs);
    if (found == requests->end()) continue;
    const Size part = std::min(said.bytes, found->bytes);
    found->place->budget->add_lease(part);
    found->bytes -= part;
    found->has_parts = true;
  }
  note_new_room();
  return true;
}

bool Leases::take_note(const LeaseRefusal& said) {
  std::erase_if(abandoned_, [&](const Pending& late) { return late.request == said.request; });
  Pending* const pending = find(said.request);
  if (pending == nullptr) return true;
  pending->state = Pending::State::Refused;
  pending->why = said.why;
  pending->free = said.free;
  pending->foreign = said.foreign;
  return true;
}

bool Leases::take_note(const ReclaimDemand& said) {
  demands_.push_back(said);
  work_.notify_all();
  return true;
}

bool Leases::take_note(const PresenceDemand& said) {
  presence_demands_.push_back(said);
  work_.notify_all();
  return true;
}

bool Leases::take_note(const PauseWithGroup& said) {
  with_group_.push_back(said.revision);
  return true;
}

bool Leases::take_note(const NextGroupStep& said) {
  group_step_ = said;
  ++group_steps_heard_;
  return true;
}

bool Leases::take_note(const WorkDeadline& said) {
  work_deadlines_.push_back(said);
  return true;
}

}  // namespace cuvmm::lease
