// SPDX-License-Identifier: Apache-2.0
// Carries out the service's requests, and reports on the program.
#include <pthread.h>
#include <sys/socket.h>

#include <algorithm>
#include <utility>

#include "base/log_rarely.hpp"
#include "lease/say.hpp"

namespace cuvmm::lease {

using namespace node;  // NOLINT(google-build-using-namespace): its words are this file's subject

namespace {

constexpr std::uint64_t between_looks = 100 * a_millisecond;
constexpr std::uint64_t between_reports = 1000 * a_millisecond;
constexpr std::uint64_t surplus_stays = 1000 * a_millisecond;
constexpr Microseconds longest_pause = 60'000'000;
constexpr std::uint64_t short_for = 10'000 * a_millisecond;
// How long a thread that may go on without a lease takes at most to commit the memory.
constexpr std::uint64_t commits_within = 2'000 * a_millisecond;
// A paused program that finds no room for this long resumes with part of its memory on the host.
constexpr std::uint64_t longest_held = 60'000 * a_millisecond;
// How long it rests between attempts, each of which asks the service or takes memory that others
// could use.
constexpr std::uint64_t shortest_retry_wait = 20 * a_millisecond;
constexpr std::uint64_t longest_retry_wait = 250 * a_millisecond;

Size difference(Size a, Size b) {
  return a > b ? a - b : b - a;
}

template <class Demand>
std::optional<Demand> take_first(std::vector<Demand>& demands) {
  if (demands.empty()) return {};
  const Demand first = demands.front();
  demands.erase(demands.begin());
  return first;
}

}  // namespace

void* Leases::serve_demands(void* leases) {
  ::pthread_setname_np(::pthread_self(), "cuvmm-lease");
  for (;;) static_cast<Leases*>(leases)->serve_once();
}

void Leases::serve_once() {
  // React quickly while calls are held.
  const auto rest = std::chrono::milliseconds{paused_at_ != 0 ? 5 : 50};
  std::optional<ReclaimDemand> demand;
  std::optional<PresenceDemand> of_presence;
  {
    Holding holding{lock_};
    const bool has_work = !demands_.empty() || !presence_demands_.empty();
    if (!std::exchange(has_new_room_, false) && !has_work) work_.wait_for(holding, rest);
    say_shares();
    demand = take_first(demands_);
    of_presence = take_first(presence_demands_);
  }
  if (of_presence) agree(*of_presence);
  if (demand) reclaim(*demand);
  const std::uint64_t now = now_ns();
  if (paused_at_ != 0) bring_back(now);
  report_presence();
  if (now - looked_at_ < between_looks) return;
  looked_at_ = now;
  tenant_is_idle_ = tenant_.is_idle();
  report(now);
  return_surplus(now);
  report_what_is_unleased(now);
}

void Leases::reclaim(const ReclaimDemand& demand) {
  if (demand.step == ReclaimStep::Pause) return pause_for_all_devices(demand);
  LeasedBudget* const budget = budget_of(demand);
  if (budget == nullptr) return;
  Size surplus = budget->surplus();
  constexpr int most_attempts = 3;  // the program may take what has just become free
  for (int i = 0; i < most_attempts && surplus < demand.bytes; ++i) {
    if (i != 0 && tenant_.cached(*budget) == 0) break;
    tenant_.free_cache(*budget, demand.bytes - surplus);
    surplus = budget->surplus();
  }
  if (demand.step == ReclaimStep::Cold && surplus < demand.bytes) {
    const Duration within{std::clamp<std::uint64_t>(demand.within / 2, 50'000, 10'000'000)};
    tenant_.move_out_cold(*budget, demand.bytes - surplus, within);
  }
  const Size returned = answer(demand, ReclaimOutcome::Applied, demand.bytes);
  if (returned < demand.bytes) give_again_later(demand);
}

// The service demands a pause for each device. One pause serves them all.
void Leases::pause_for_all_devices(const ReclaimDemand& first) {
  if (budget_of(first) == nullptr) return;
  const bool is_paused = pause_for(first);
  std::vector<ReclaimDemand> all{first};
  {
    const Holding holding{lock_};
    for (const ReclaimDemand& other : demands_) {
      if (other.step == ReclaimStep::Pause) all.push_back(other);
    }
    std::erase_if(demands_, [](const auto& one) { return one.step == ReclaimStep::Pause; });
  }
  for (const ReclaimDemand& demand : all) {
    forget_how_to_pause(demand);
    answer(demand, is_paused ? ReclaimOutcome::Applied : ReclaimOutcome::Refused, cuvmm::unlimited);
    if (!is_paused) give_again_later(demand);
  }
}

LeasedBudget* Leases::budget_of(const ReclaimDemand& demand) {
  const Holding holding{lock_};
  const Leased* const place = find(demand.place);
  return place == nullptr ? nullptr : place->budget;
}

Size Leases::answer(const ReclaimDemand& demand, ReclaimOutcome outcome, Size most) {
  const Holding holding{lock_};
  Leased* const place = find(demand.place);
  if (place == nullptr) return 0;
  const Size returned = place->budget->take_surplus(most);
  send(ReclaimAnswer{demand.revision, demand.place, outcome, returned});
  return returned;
}

// Makes sure that another report follows, since the service asks again only after one.
void Leases::give_again_later(const ReclaimDemand& demand) {
  const Holding holding{lock_};
  Leased* const place = find(demand.place);
  if (place != nullptr) place->short_until = now_ns() + short_for;
}

// Waits for running work until the service's deadline for work, and asks the service for more time
// once half of the time for the pause has passed. Reports work that misses the deadline, since such
// a program cannot take turns.
bool Leases::pause_for(const ReclaimDemand& demand) {
  if (tenant_.is_paused()) {
    leave_again();
    return true;
  }
  const Duration within{std::clamp<std::uint64_t>(demand.within, 100'000, longest_pause)};
  // Older services give no deadline.
  const Duration work_within = work_deadline(demand).value_or(within);
  const bool is_with_group = pauses_with_group(demand);
  const auto has_released = [this] { return_what_is_released(); };
  const auto may_move = [this] {
    note_what_is_held();
    return true;
  };
  const auto pause = [&](Duration at_most) {
    return is_with_group ? pause_with_group(at_most, demand, has_released)
                         : tenant_.pause(at_most, {.may_move = may_move}, has_released);
  };
  const auto has_timed_out = [&](const Result<void>& paused) {
    return !paused.ok() && paused.error().kind == ErrorKind::TimedOut && !is_over(demand);
  };
  const Duration first = std::min(within / 2, work_within);
  auto paused = pause(first);
  if (has_timed_out(paused) && first < work_within) {
    {
      const Holding holding{lock_};
      send(ReclaimAnswer{demand.revision, demand.place, ReclaimOutcome::Deferred, 0});
    }
    paused = pause(work_within - first);
  }
  if (has_timed_out(paused)) {
    const Holding holding{lock_};
    send(OutlastedTurn{static_cast<Microseconds>(work_within.count())});
  }
  if (!paused.ok()) {
    CUVMM_LOG_RARELY(Info, "the node service asked for a pause: %s", paused.error().text().c_str());
    // A program that is paused stays paused: others may have taken the memory that it released.
    if (!tenant_.is_paused()) return false;
  }
  note_what_is_away();
  paused_at_ = now_ns();
  retry_wait_ = retries_at_ = 0;
  return true;
}

// Call this only once calls are held: until then, a call that is under way may take memory.
void Leases::note_what_is_held() {
  const Holding holding{lock_};
  for (Leased& place : places()) place.held_before = place.budget->held_bytes();
}

// Gives back what a pause has released so far, so that others need not wait for its end.
void Leases::return_what_is_released() {
  const Holding holding{lock_};
  if (standing_ != Standing::Connected) return;
  for (Leased& place : places()) {
    if (place.is_host() || place.budget->surplus() < batch_of(place)) continue;
    const Size returned = place.budget->take_surplus(cuvmm::unlimited);
    if (returned != 0) send(LeaseReturn{place.uuid, returned});
  }
}

void Leases::note_what_is_away() {
  const Holding holding{lock_};
  for (Leased& place : places()) {
    if (place.is_host()) continue;
    place.resumes_with = place.held_before;
    place.comes_back_with = 0;
  }
}

Size Leases::Leased::missing() const {
  const Size has = budget->held_bytes() + budget->surplus();
  return resumes_with > has ? resumes_with - has : 0;
}

bool Leases::pauses_with_group(const ReclaimDemand& demand) {
  const Holding holding{lock_};
  return std::count(with_group_.begin(), with_group_.end(), demand.revision) != 0;
}

std::optional<Duration> Leases::work_deadline(const ReclaimDemand& demand) {
  const Holding holding{lock_};
  const auto found =
      std::find_if(work_deadlines_.begin(), work_deadlines_.end(),
                   [&](const WorkDeadline& one) { return one.revision == demand.revision; });
  if (found == work_deadlines_.end()) return {};
  return Duration{std::min(found->within, longest_pause)};
}

void Leases::forget_how_to_pause(const ReclaimDemand& demand) {
  const Holding holding{lock_};
  std::erase(with_group_, demand.revision);
  std::erase_if(work_deadlines_,
                [&](const WorkDeadline& one) { return one.revision <= demand.revision; });
}

bool Leases::is_over(const ReclaimDemand& demand) const {
  const Holding holding{lock_};
  return group_step_ && group_step_->revision == demand.revision &&
         group_step_->step == GroupStep::Over;
}

// The service, as the coordinator of the pause that it demands.
class Leases::GroupOfService : public share::PauseCoordinator {
 public:
  GroupOfService(Leases& leases, Revision revision) : leases_(leases), revision_(revision) {
    const Holding holding{leases_.lock_};
    // An earlier pause that failed may have left its last step.
    std::optional<NextGroupStep>& last = leases_.group_step_;
    if (last && last->revision != revision) last.reset();
    heard_ = leases_.group_steps_heard_;
  }
  void report(bool has_ended_work) override {
    const Holding holding{leases_.lock_};
    leases_.send(StandsStill{revision_, has_ended_work, heard_});
  }
  std::optional<GroupStep> step() override {
    const Holding holding{leases_.lock_};
    heard_ = leases_.group_steps_heard_;
    if (!leases_.group_step_) return {};
    return leases_.group_step_->step;
  }
  void forget_step() override {
    const Holding holding{leases_.lock_};
    if (heard_ == leases_.group_steps_heard_) leases_.group_step_.reset();
  }
  void wait() override {
    Holding holding{leases_.lock_};
    leases_.heard_.wait_for(holding, std::chrono::milliseconds{1});
  }
  bool is_waiting() override {
    const Holding holding{leases_.lock_};
    return leases_.standing_ == Standing::Connected;
  }

 private:
  Leases& leases_;
  const Revision revision_;
  std::uint32_t heard_ = 0;  // steps that the pause has seen
};

Result<void> Leases::pause_with_group(Duration within, const ReclaimDemand& demand,
                                      const std::function<void()>& has_released) {
  GroupOfService group{*this, demand.revision};
  return share::pause_with_group(
      group, within, [&](Duration at_most, const share::Fellows& fellows) {
        const auto may_move = [&] {
          note_what_is_held();
          return fellows.may_move();
        };
        return tenant_.pause(at_most, {fellows.still_working, may_move}, has_released);
      });
}

// Once calls are held, asks for the memory that was moved away. Fills parts that have arrived while
// the rest is on its way, so that copies in both directions of the link overlap.
void Leases::bring_back(std::uint64_t now) {
  if (!tenant_.is_paused() || tenant_.is_paused_by_command()) {
    if (tenant_.is_paused()) leave_again();
    paused_at_ = 0;  // something else has resumed it, or will
    is_partly_back_ = false;
    end_return();
    return;
  }
  if (!tenant_.has_held_calls()) {
    leave_again();
    paused_at_ = now;
    return;
  }
  if (tenant_.is_off_devices()) {
    paused_at_ = now;
    if (!is_connected()) say_who_can_bring_back();
    return;
  }
  if (now < retries_at_) return;
  const bool has_waited_long = now - paused_at_ > longest_held;
  const Room room = room_to_come_back();
  if (room != Room::All && !has_waited_long) {
    if (room == Room::Some) {
      is_partly_back_ = true;
      tenant_.return_ahead();
    }
    if (room == Room::Refused) {
      leave_again();  // so that others can have it
      back_off(now);
    }
    return;
  }
  const auto resumed = tenant_.resume(has_waited_long ? Tenant::Come::Partly : Tenant::Come::Whole);
  if (resumed.ok()) {
    is_partly_back_ = false;
    paused_at_ = 0;
    end_return();
    return;
  }
  if (resumed.error().kind == ErrorKind::NotSupported) {
    paused_at_ = 0;  // the program is exiting, and has shut down the driver
    end_return();
    return;
  }
  back_off(now);
  CUVMM_LOG_RARELY(Warning, "the program is still paused: %s", resumed.error().text().c_str());
}

void Leases::back_off(std::uint64_t now) {
  retry_wait_ = std::clamp(2 * retry_wait_, shortest_retry_wait, longest_retry_wait);
  retries_at_ = now + retry_wait_;
}

// Forgets the requests for what the program held before its pause. The service would otherwise
// reclaim memory from others for one that waits still.
void Leases::end_return() {
  const Holding holding{lock_};
  for (Leased& place : places()) {
    place.resumes_with = 0;
    Pending* const asked = find(std::exchange(place.comes_back_with, 0));
    if (asked == nullptr) continue;
    const Pending ended = *asked;
    *asked = pending_.back();
    pending_.pop_back();
    if (ended.state != Pending::State::Waits) continue;
    abandoned_.push_back(ended);  // a grant may be on its way
    send(LeaseCancel{ended.request});
  }
}

void Leases::leave_again() {
  if (std::exchange(is_partly_back_, false)) tenant_.leave_again();
}

Leases::Room Leases::room_to_come_back() {
  const Holding holding{lock_};
  if (standing_ != Standing::Connected) return Room::All;  // the driver decides
  Room room = Room::All;
  bool has_some = false;
  bool is_refused = false;
  for (Leased& place : places()) {
    const Size missing = place.missing();
    if (missing == 0) continue;
    room = Room::None;
    if (Pending* const asked = find(place.comes_back_with)) {
      has_some |= asked->has_parts && place.budget->surplus() >= batch_of(place);
      if (asked->state == Pending::State::Waits) continue;
      const bool is_refused_now = asked->state == Pending::State::Refused;
      *asked = pending_.back();
      pending_.pop_back();
      place.comes_back_with = 0;
      is_refused |= is_refused_now;
      if (is_refused_now) continue;  // ask again later
    }
    place.comes_back_with = ask(place, missing, Ask::InParts);
  }
  if (is_refused) return Room::Refused;
  return room == Room::None && has_some ? Room::Some : room;
}

void Leases::report(std::uint64_t now) {
  // A program whose calls are held is about to ask for memory.
  const bool is_idle = tenant_is_idle_ && !tenant_.has_held_calls();
  for (std::size_t i = 0;; ++i) {
    LeasedBudget* budget = nullptr;
    {
      const Holding holding{lock_};
      if (standing_ != Standing::Connected || i == place_count_) return;
      budget = places_[i].budget;
    }
    const Size cached = tenant_.cached(*budget);
    const Size cold = tenant_.cold(*budget);
    const Holding holding{lock_};
    Leased& place = places_[i];
    const bool is_short = now < place.short_until;
    const bool was_short = !is_short && std::exchange(place.short_until, 0) != 0;
    // A returning program is about to fill the memory that it asked for.
    const Pending* const asked = find(place.comes_back_with);
    const bool comes_back = asked != nullptr && asked->state == Pending::State::Waits;
    const Size surplus = comes_back ? 0 : budget->surplus();
    const UseReport use{.place = place.uuid,
                        .cache = surplus + (is_short ? 0 : cached),
                        .cold = is_short ? 0 : cold,
                        .is_idle = is_idle};
    const UseReport& told = place.reported;
    const Size change =
        std::max(difference(use.cache, told.cache), difference(use.cold, told.cold));
    const bool is_news = place.reported_at == 0 || was_short || use.is_idle != told.is_idle ||
                         change > batch_of(place) ||
                         (change != 0 && now - place.reported_at > between_reports);
    if (!is_news) continue;
    place.reported = use;
    place.reported_at = now;
    send(use);
  }
}

// Keeps one batch for the next allocation of a program that is at work, within its cache. Others
// may need what an idle program keeps, and cannot ask for it if it is guaranteed.
void Leases::return_surplus(std::uint64_t now) {
  const Holding holding{lock_};
  if (standing_ != Standing::Connected || paused_at_ != 0) return;
  for (Leased& place : places()) {
    const Size surplus = place.budget->surplus();
    const Size cache = settings_.cache.of(place.memory);
    const Size kept = tenant_is_idle_ ? 0 : std::min(batch_of(place), cache);
    const bool is_too_much = surplus > cache;
    if (surplus <= kept) {
      place.surplus_since = 0;
    } else if (place.surplus_since == 0 && !is_too_much) {
      place.surplus_since = now;
    } else if (is_too_much || now - place.surplus_since >= surplus_stays) {
      place.surplus_since = 0;
      const Size returned = place.budget->take_surplus(surplus - kept);
      if (returned != 0) send(LeaseReturn{place.uuid, returned});
    }
  }
}

// Memory taken while the service was silent has no lease, and a service learns what a client holds
// only when it connects.
void Leases::report_what_is_unleased(std::uint64_t now) {
  const Holding holding{lock_};
  if (!answers() || reconnects_) return;
  for (Leased& place : places()) {
    // The service does not know a device without terms, so it would not lease its memory.
    if (place.unleased_at == 0 || !place.has_terms) continue;
    if (place.budget->deficit() != 0) {
      place.unleased_at = 0;
      reconnects_ = true;
    } else if (now > place.unleased_at + commits_within) {
      place.unleased_at = 0;
    }
  }
  if (!reconnects_) return;
  CUVMM_LOG_RARELY(Info,
                   "the node service answers again; reconnecting to report the memory that was "
                   "taken without a lease");
  ::shutdown(socket_.number(), SHUT_RDWR);
}

}  // namespace cuvmm::lease
