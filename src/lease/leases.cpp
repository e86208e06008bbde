// SPDX-License-Identifier: Apache-2.0
// The requests that this process makes to the service.
#include "lease/leases.hpp"

#include <sys/socket.h>

#include "base/log_rarely.hpp"
#include "base/start_thread.hpp"
#include "lease/say.hpp"

namespace cuvmm::lease {

using namespace node;  // NOLINT(google-build-using-namespace): its words are this file's subject

namespace {

// Attempts to reconnect follow 0.1, 0.3, 0.7, 1.5, 3.1 and 6.3 s after the loss.
constexpr std::uint64_t longest_absence = 7'000 * a_millisecond;
// Within this time the service has asked NVML again.
constexpr std::uint64_t until_it_has_looked = 750 * a_millisecond;
// What began longer ago than this has ended in the meantime.
constexpr std::uint64_t forgotten_after = 5'000 * a_millisecond;

const char* words_for(RefusalReason why) {
  switch (why) {
    case RefusalReason::UnknownPlace:
      return "it does not serve this device; start cuvmmd for it, or run with --node off";
    case RefusalReason::BeyondLimit:
      return "that is beyond this program's limit";
    case RefusalReason::TooMany:
      return "too many requests wait already";
    case RefusalReason::BeyondCapacity:
      return "not enough is left beside its group, other programs and guarantees";
    case RefusalReason::NotReturned:
      return "the programs that were asked did not release it";
    case RefusalReason::TurnsAreOff:
      return "work that cannot be stopped keeps programs from taking turns";
    case RefusalReason::TookTooLong:
      return "it took too long";
    case RefusalReason::NotAtOnce:
      return "others have it";
  }
  return "";
}

// Whether the reason may be gone a moment later.
bool may_pass(RefusalReason why, Size foreign) {
  switch (why) {
    case RefusalReason::BeyondCapacity:
      return foreign != 0;  // perhaps held by a process that has just ended
    case RefusalReason::TooMany:
    case RefusalReason::NotReturned:
    case RefusalReason::TurnsAreOff:
    case RefusalReason::TookTooLong:
      return true;
    default:
      return false;
  }
}

}  // namespace

bool Leases::start_threads() {
  if (has_started_) return true;
  has_started_ = true;
  // The thread that connects comes last: without the other, nobody would answer the service.
  for (void* (*run)(void*) : {&Leases::serve_demands, &Leases::keep_connected}) {
    if (start_detached_thread(run, this) != 0) {
      CUVMM_LOG(Warning, "cannot start the node client's thread; memory is not leased");
      is_unavailable_ = true;
      return false;
    }
  }
  return true;
}

void Leases::begin(LeasedBudget& budget, const Uuid& device, Size memory) {
  Holding holding{lock_};
  if (place_count_ == places_.size()) return;
  Leased& place = places_[place_count_++];
  place.budget = &budget;
  place.uuid = device;
  place.memory = memory;
  budget.lease_from(*this);
  if (!start_threads()) return;
  if (standing_ == Standing::Connected) send(use_of(place, 0));
  if (place.is_host()) return;
  // The limit must be known before the program asks how much memory there is.
  if (settings_.is_required) wait_for_admission(holding);
  const std::uint64_t until = now_ns() + in_ns(settings_.patience);
  while (!place.has_terms && now_ns() < until) {
    hear_until(holding, until);
  }
}

// Returns early if the service has sent something.
void Leases::hear_until(Holding& holding, std::uint64_t until) {
  heard_.wait_for(holding, std::chrono::nanoseconds{until - std::min(until, now_ns())});
}

// A busy machine may be slow to run the thread that connects, and the service.
void Leases::wait_for_admission(Holding& holding) {
  const std::uint64_t until = now_ns() + longest_absence;
  while (standing_ != Standing::Connected && !is_unavailable_) {
    is_unavailable_ = now_ns() >= until;
    hear_until(holding, until);
  }
}

HeldAlready Leases::use_of(const Leased& place, Size held) const {
  const bool asks = !asks_no_guarantee_ && !settings_.guarantee.is_none() && !place.is_host();
  return {.place = place.uuid,
          .bytes = held,
          .guarantee = asks ? settings_.guarantee.of(place.memory) : 0,
          .limit = place.budget->own_limit()};
}

Leases::Leased* Leases::find(const LeasedBudget& budget) {
  for (Leased& place : places()) {
    if (place.budget == &budget) return &place;
  }
  return nullptr;
}

Leases::Leased* Leases::find(const PlaceUuid& uuid) {
  for (Leased& place : places()) {
    if (place.uuid == uuid) return &place;
  }
  return nullptr;
}

Leases::Pending* Leases::find(RequestId request) {
  for (Pending& pending : pending_) {
    if (pending.request == request) return &pending;
  }
  return nullptr;
}

bool Leases::is_still_wanted(Holding& holding, const StillWanted& is_wanted) {
  holding.unlock();
  const bool still = is_wanted();
  holding.lock();
  return still;
}

bool Leases::is_connected() const {
  const Holding holding{lock_};
  return standing_ == Standing::Connected;
}

// A request takes as long as creating a chunk, so one request covers several chunks.
Size Leases::batch_of(const Leased& place) {
  return std::clamp(round_down(place.memory / 64, 2 * MiB), 2 * MiB, 256 * MiB);
}

void Leases::send_packet(const std::vector<std::byte>& packet) {
  if (!socket_.is_open()) return;
  const ssize_t sent =
      ::send(socket_.number(), packet.data(), packet.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  // A service that does not read counts as gone; the connection's thread notices the shutdown.
  if (sent < 0) ::shutdown(socket_.number(), SHUT_RDWR);
}

RequestId Leases::ask(Leased& place, Size bytes, Ask how) {
  const RequestId request = ++last_request_;
  pending_.push_back({.request = request, .place = &place, .bytes = bytes, .asked_at = now_ns()});
  if (how == Ask::InParts) send(TakesParts{request});
  send(LeaseAsk{request, place.uuid, bytes, how == Ask::AtOnce});
  return request;
}

// A grant is added to the lease even if no thread waits for it. Returns nothing if no answer
// arrives by `until`, or once it is no longer wanted; the request is then abandoned.
std::optional<Leases::Pending> Leases::answer_to(Holding& holding, RequestId request,
                                                 std::uint64_t until,
                                                 const StillWanted& is_wanted) {
  constexpr std::uint64_t between_questions = 100 * a_millisecond;
  std::uint64_t next_question = now_ns() + between_questions;
  for (;;) {
    Pending* const pending = find(request);
    const bool is_answered = pending->state != Pending::State::Waits;
    const std::uint64_t now = now_ns();
    if (is_answered || now >= until) {
      const Pending found = *pending;
      *pending = pending_.back();
      pending_.pop_back();
      if (is_answered) return found;
      abandoned_.push_back(found);
      return {};
    }
    if (now >= next_question) {
      if (!is_still_wanted(holding, is_wanted)) until = 0;
      next_question = now_ns() + between_questions;
      continue;
    }
    hear_until(holding, std::min(until, next_question));
  }
}

void Leases::note_silence() {
  is_silent_ = true;
  if (away_since_ == 0) away_since_ = now_ns();
}

void Leases::note_answer() {
  is_silent_ = false;
  if (standing_ == Standing::Connected) away_since_ = 0;
}

// The caller commits the memory only after this, so note the time rather than the amount.
Lessor::Extended Leases::without_answer(Leased& place) const {
  if (!settings_.is_required) place.unleased_at = now_ns();
  return without_service();
}

Lessor::Extended Leases::extend(LeasedBudget& budget, Size size) {
  Holding holding{lock_};
  Leased* const place = find(budget);
  if (place == nullptr) return Extended::NobodyLeases;
  const std::uint64_t until = now_ns() + in_ns(settings_.patience);
  while (standing_ == Standing::Greeted && !is_silent_ && now_ns() < until) {
    hear_until(holding, until);
  }
  if (standing_ == Standing::Greeted) note_silence();
  if (!answers()) return without_answer(*place);
  return extend_at_once(holding, *place, size);
}

Lessor::Extended Leases::extend_at_once(Holding& holding, Leased& place, Size size) {
  const Size surplus = place.budget->surplus();
  if (surplus >= size) return Extended::Yes;
  const Size missing = size - surplus + place.budget->deficit();
  for (Size bytes = std::max(missing, batch_of(place));;) {
    const RequestId request = ask(place, bytes, Ask::AtOnce);
    const auto answered = answer_to(holding, request, now_ns() + in_ns(settings_.patience));
    if (!answered) {
      note_silence();
      CUVMM_LOG_RARELY(Warning,
                       "the node service does not answer; the program continues without it");
      return without_answer(place);
    }
    switch (answered->state) {
      case Pending::State::Granted:
        return Extended::Yes;
      case Pending::State::Refused:
        // The service does not know the device, so it does not lease its memory.
        if (answered->why == RefusalReason::UnknownPlace) return without_service();
        if (bytes == missing) return Extended::No;
        bytes = missing;
        break;
      default:
        return without_answer(place);
    }
  }
}

bool Leases::wait_for(LeasedBudget& budget, Size size, std::uint64_t until, std::uint64_t longest,
                      const StillWanted& is_wanted) {
  bool is_leased = false;
  tenant_.wait_outside(
      [&] { is_leased = wait_until_leased(budget, size, until, longest, is_wanted); });
  return is_leased;
}

// The limit counts from the loss, so a thread waits only once for the same service.
bool Leases::outwait_absence(Holding& holding, std::uint64_t longest) {
  if (away_since_ == 0) return false;
  const std::uint64_t until = std::min(longest, away_since_ + longest_absence);
  if (now_ns() >= until) return false;
  while (!answers() && now_ns() < until) {
    hear_until(holding, until);
  }
  return true;
}

// The driver may have refused because memory arrived only after the caller looked, or because the
// driver's memory lags behind the leases. False if that has been so for too long.
bool Leases::outwait_a_lag(Holding& holding, Leased& place) {
  constexpr std::uint64_t longest_lag = 100 * a_millisecond;
  const std::uint64_t now = now_ns();
  if (now > place.unbacked_since + forgotten_after) place.unbacked_since = now;
  if (now > place.unbacked_since + longest_lag) return false;
  heard_.wait_for(holding, std::chrono::milliseconds{20});
  return true;
}

// The service takes memory that bypasses cuvmm, such as contexts, for leased memory as long as the
// client has leased more than it uses. So it does not know that the device is full, and asks nobody
// else to give way. Without the surplus it sees the truth when it next asks NVML.
void Leases::return_what_is_not_backed(Holding& holding, Leased& place, std::uint64_t longest) {
  place.unbacked_since = 0;
  const Size returned = place.budget->take_surplus(place.budget->surplus());
  if (returned == 0) return;
  CUVMM_LOG(Info, "the driver has no memory for %s of the lease; returning it to the node service",
            print_size(returned).c_str());
  send(LeaseReturn{place.uuid, returned});
  const std::uint64_t until = std::min(longest, now_ns() + until_it_has_looked);
  while (answers() && now_ns() < until) {
    hear_until(holding, until);
  }
}

// Other clients give way eventually; a foreign process need not. But `until` may have passed while
// this client waited for others, and until the service polls NVML again, it may mistake memory that
// is changing hands for foreign. It refuses a request at once if foreign memory leaves too little
// room. One that it refuses only after a while could have been granted until then.
std::uint64_t Leases::repeats_until(const Pending& refused, std::uint64_t until,
                                    std::uint64_t longest) const {
  std::uint64_t& since = refused.place->foreign_since;
  if (refused.why != RefusalReason::BeyondCapacity) {
    since = 0;
    return longest;
  }
  const std::uint64_t now = now_ns();
  const bool came_late = now > refused.asked_at + in_ns(settings_.patience);
  if (came_late || now > since + forgotten_after) since = now;
  return std::min(longest, std::max(until, since + until_it_has_looked));
}

bool Leases::wait_until_leased(LeasedBudget& budget, Size size, std::uint64_t until,
                               std::uint64_t longest, const StillWanted& is_wanted) {
  Holding holding{lock_};
  Leased* const place = find(budget);
  if (place == nullptr) return false;
  for (;;) {
    // The service would grant it, since it does not know what the program took natively.
    const Size below_limit = budget.available();
    if (below_limit < size && size <= saturating_sum(below_limit, budget.native_bytes())) {
      return false;
    }
    if (!answers()) {
      if (!outwait_absence(holding, longest)) return false;
      // Let the caller ask the driver, which decides while there is no service.
      if (!answers()) return true;
    }
    const Size surplus = budget.surplus();  // read once: frees in other threads raise it
    if (surplus >= size) {
      // The caller retries a limited number of times.
      if (outwait_a_lag(holding, *place)) return true;
      return_what_is_not_backed(holding, *place, longest);
      continue;
    }
    const RequestId request = ask(*place, size - surplus + budget.deficit(), Ask::Whole);
    const auto answered = answer_to(holding, request, longest, is_wanted);
    if (!answered) {
      send(LeaseCancel{request});
      if (now_ns() >= longest) {
        CUVMM_LOG_RARELY(Warning, "the node service had no %s in time; see `cuvmm top`",
                         print_size(size).c_str());
      }
      return false;
    }
    if (answered->state == Pending::State::Granted) {
      place->foreign_since = 0;
      return true;
    }
    if (answered->state == Pending::State::Lost) continue;
    const std::uint64_t last = repeats_until(*answered, until, longest);
    if (!may_pass(answered->why, answered->foreign) || now_ns() >= last) {
      log_refusal(*answered);
      return false;
    }
    constexpr std::uint64_t rest = 20 * a_millisecond;
    heard_.wait_for(holding, std::chrono::nanoseconds{rest});
    if (!is_still_wanted(holding, is_wanted)) return false;
  }
}

void Leases::log_refusal(const Pending& refused) {
  const bool is_about_others =
      refused.why != RefusalReason::BeyondLimit && refused.why != RefusalReason::UnknownPlace;
  if (!is_about_others) {
    CUVMM_LOG_RARELY(Warning, "the node service refuses %s: %s", print_size(refused.bytes).c_str(),
                     words_for(refused.why));
    return;
  }
  CUVMM_LOG_RARELY(Warning,
                   "the node service refuses %s: %s; %s is free, %s foreign, and `cuvmm top` "
                   "shows who holds the rest",
                   print_size(refused.bytes).c_str(), words_for(refused.why),
                   print_size(refused.free).c_str(), print_size(refused.foreign).c_str());
}

}  // namespace cuvmm::lease
