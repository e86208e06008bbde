// SPDX-License-Identifier: Apache-2.0
#include "bench/cluster/simulation.hpp"

#include <algorithm>
#include <cmath>

namespace cuvmm::cluster {
namespace {

constexpr double second = 1e6;
// A job on part of a card needs this share of its request, and all of it in every fourth phase.
constexpr double least_need = 0.5;
constexpr node::Microseconds long_phase = 900'000'000;
constexpr node::Microseconds short_phase = 300'000'000;
constexpr node::Microseconds ask_again_after = 30'000'000;
constexpr double moved_per_second = 20.0 * static_cast<double>(GiB);  // to the host and back
constexpr std::size_t looked_at = 256;  // waiting jobs examined for one that fits

// Turns for jobs of minutes and hours. The service's defaults are for interactive programs.
node::PolicyTimes times() {
  return {.stays = 10'000'000, .shortest_quantum = 10'000'000, .longest_quantum = 120'000'000};
}

node::Microseconds micros(double seconds) {
  return static_cast<node::Microseconds>(seconds * second);
}

double at_quantile(std::vector<double>& values, double part) {
  if (values.empty()) return 0;
  const auto at = static_cast<std::ptrdiff_t>(static_cast<double>(values.size() - 1) * part);
  std::nth_element(values.begin(), values.begin() + at, values.end());
  return values[static_cast<std::size_t>(at)];
}

}  // namespace

Simulation::Simulation(const SimulationRequest& request)
    : request_(request),
      end_(micros(request.hours * 3600)),
      measured_from_(end_ / 4),
      mix_(request.cards, request.load, request.seed),
      placement_(request.cards) {
  for (unsigned card = 0; card < request.cards; ++card) {
    if (card % cards_of_machine == 0) {
      machines_.push_back({std::make_unique<node::NodePolicy>(times()), {}});
    }
    static_cast<void>(machines_.back().policy->handle(
        node::PlaceConfigured{place_of(card), node::PlaceKind::Device, card_memory}, 0));
  }
}

SimulationFigures Simulation::run() {
  coming_ = mix_.next();
  push(micros(coming_.arrives), Kind::Arrival, 0);
  while (!events_.empty() && events_.top().time <= end_) {
    const Event event = events_.top();
    events_.pop();
    now_ = event.time;
    switch (event.kind) {
      case Kind::Arrival:
        on_arrival();
        break;
      case Kind::JobStep:
        step(event.subject, event.generation);
        break;
      case Kind::Retry: {
        const auto found = running_.find(event.subject);
        if (found != running_.end() && found->second.is_stalled) {
          ask_for_need(event.subject, found->second);
        }
        break;
      }
      case Kind::PolicyWake:
        machines_[event.subject].wake.reset();
        tell(static_cast<unsigned>(event.subject), node::TimePassed{});
        break;
    }
  }
  now_ = end_;
  for (auto& [id, running] : running_) count_time(running);
  for (const auto& [cards, queue] : waiting_) {
    for (const Waiting& waiting : queue) {
      waits_.push_back(static_cast<double>(end_) / second - waiting.job.arrives);
    }
  }
  const double measured = static_cast<double>(end_ - measured_from_) / second;
  figures_.wait_median = at_quantile(waits_, 0.5);
  figures_.wait_95 = at_quantile(waits_, 0.95);
  figures_.running_per_card = run_seconds_ / measured / request_.cards;
  figures_.served = served_seconds_ / measured / request_.cards;
  const double on_cards = run_seconds_ + stalled_seconds_;
  figures_.stalled = on_cards == 0 ? 0 : stalled_seconds_ / on_cards;
  return figures_;
}

void Simulation::push(Microseconds time, Kind kind, std::uint64_t subject,
                      std::uint64_t generation) {
  events_.push({time, order_++, kind, subject, generation});
}

void Simulation::on_arrival() {
  ++figures_.arrived;
  auto& queue = waiting_[coming_.cards];
  queue.push_back({coming_, ++jobs_});
  coming_ = mix_.next();
  push(micros(coming_.arrives), Kind::Arrival, 0);
  // The jobs before it did not fit when room last became free.
  if (queue.size() <= looked_at && start(queue.back())) queue.pop_back();
}

void Simulation::start_waiting() {
  for (auto& [cards, queue] : waiting_) {
    std::size_t looked = 0;
    for (auto one = queue.begin(); one != queue.end() && looked < looked_at; ++looked) {
      one = start(*one) ? queue.erase(one) : std::next(one);
    }
  }
}

bool Simulation::is_lent(const Running& running) const {
  return request_.sharing == Sharing::LentShares && running.job.asked < card_memory;
}

bool Simulation::start(const Waiting& waiting) {
  const Size booked = booked_for(waiting.job, request_.sharing, request_.guaranteed_part);
  auto cards = placement_.place(waiting.job, booked);
  if (!cards) return false;
  ++figures_.started;
  waits_.push_back(std::max(0.0, static_cast<double>(now_) / second - waiting.job.arrives));

  Running& running = running_[waiting.id];
  running = {.job = waiting.job, .cards = std::move(*cards), .booked = booked};
  running.machine = running.cards.front() / cards_of_machine;
  running.left = std::max<Microseconds>(micros(waiting.job.runs), 1);
  running.since = now_;
  running.need = running.job.asked;
  running.phase_left = running.left;
  if (is_lent(running)) {
    running.need =
        static_cast<Size>(static_cast<double>(running.job.asked) * least_need) / MiB * MiB;
    running.phase_left = long_phase / (1 + waiting.id % 4);  // jobs change phase at different times
  }
  node::ClientTerms terms;
  for (const unsigned card : running.cards) {
    terms.shares[place_of(card)] = {booked, std::max(booked, running.job.asked)};
  }
  running.is_stalled = true;  // until it gets its memory
  tell(running.machine, node::ClientCame{waiting.id, terms, {}});
  ask_for_need(waiting.id, running);
  return true;
}

void Simulation::finish(std::uint64_t id) {
  const auto found = running_.find(id);
  count_time(found->second);
  ++figures_.finished;
  const Running running = std::move(found->second);
  running_.erase(found);
  tell(running.machine, node::ClientLeft{id});
  placement_.remove(running.cards, running.booked);
  start_waiting();
}

void Simulation::step(std::uint64_t id, std::uint64_t generation) {
  const auto found = running_.find(id);
  if (found == running_.end() || found->second.generation != generation) return;
  Running& running = found->second;
  count_time(running);
  if (running.left == 0) return finish(id);
  if (running.phase_left == 0) change_need(id, running);
  if (!running.is_stalled) plan(id, running);
}

// Plans the job's next step, unless something stalls it earlier.
void Simulation::plan(std::uint64_t id, Running& running) {
  push(now_ + std::min(running.left, running.phase_left), Kind::JobStep, id, ++running.generation);
}

void Simulation::count_time(Running& running) {
  const Microseconds from = std::max(running.since, measured_from_);
  const double counted = now_ > from ? static_cast<double>(now_ - from) / second : 0;
  if (running.is_stalled) {
    stalled_seconds_ += counted;
  } else {
    run_seconds_ += counted;
    served_seconds_ += counted * static_cast<double>(running.job.cards) *
                       static_cast<double>(running.job.asked) / static_cast<double>(card_memory);
    const Microseconds passed = now_ > running.since ? now_ - running.since : 0;
    running.left -= std::min(running.left, passed);
    running.phase_left -= std::min(running.phase_left, passed);
  }
  running.since = std::max(running.since, now_);
}

void Simulation::change_need(std::uint64_t id, Running& running) {
  running.needs_all = !running.needs_all;
  running.phase_left = running.needs_all ? short_phase : long_phase;
  if (running.needs_all) {
    running.need = running.job.asked;
    stall(running);
    ask_for_need(id, running);
    return;
  }
  running.need = static_cast<Size>(static_cast<double>(running.job.asked) * least_need) / MiB * MiB;
  const Size spare = running.leased - std::min(running.leased, running.need);
  running.leased -= spare;
  tell(running.machine, node::LeaseReturned{id, place_of(running.cards.front()), spare});
}

void Simulation::stall(Running& running) {
  count_time(running);
  running.is_stalled = true;
  ++running.generation;
}

// A job on several cards has them to itself, so its first card stands for all.
void Simulation::ask_for_need(std::uint64_t id, Running& running) {
  if (running.leased >= running.need) return resume(id, running);
  if (running.has_asked) return;
  running.has_asked = true;
  tell(running.machine,
       node::LeaseRequested{id, ++running.requests, place_of(running.cards.front()),
                            running.need - running.leased});
}

void Simulation::resume(std::uint64_t id, Running& running) {
  count_time(running);
  running.is_stalled = false;
  // Memory moved to the host is moved back first; that time counts as stalled.
  const double move =
      static_cast<double>(std::exchange(running.to_move_back, 0)) / moved_per_second;
  const Microseconds moving = micros(move);
  if (now_ + moving > measured_from_) stalled_seconds_ += move;
  running.since = now_ + moving;
  push(running.since + std::min(running.left, running.phase_left), Kind::JobStep, id,
       ++running.generation);
}

void Simulation::tell(unsigned machine, const node::NodeEvent& event) {
  Machine& of = machines_[machine];
  obey(machine, of.policy->handle(event, now_));
  const auto wake = of.policy->next_wake();
  if (wake && (!of.wake || *wake < *of.wake)) {
    of.wake = std::max(*wake, now_ + 1);
    push(*of.wake, Kind::PolicyWake, machine);
  }
}

void Simulation::obey(unsigned machine, const node::Decisions& decisions) {
  for (const node::Decision& decision : decisions) {
    if (const auto* granted = std::get_if<node::LeaseGranted>(&decision)) {
      ++figures_.grants;
      const auto found = running_.find(granted->client);
      if (found == running_.end()) continue;
      found->second.leased += granted->bytes;
      found->second.has_asked = false;
      ask_for_need(granted->client, found->second);
    } else if (const auto* refused = std::get_if<node::LeaseRefused>(&decision)) {
      ++figures_.refusals;
      const auto found = running_.find(refused->client);
      if (found == running_.end()) continue;
      Running& running = found->second;
      running.has_asked = false;
      if (running.leased + refused->bytes <= running.booked) ++figures_.broken;
      push(now_ + ask_again_after, Kind::Retry, refused->client);
    } else if (const auto* asked = std::get_if<node::ReclaimRequested>(&decision)) {
      obey_reclaim(machine, *asked);
    } else if (std::holds_alternative<node::TermsRefused>(decision)) {
      ++figures_.broken;
    }
  }
}

// A job keeps no cache and has no cold memory, so only a pause gives memory back.
void Simulation::obey_reclaim(unsigned machine, const node::ReclaimRequested& asked) {
  node::ReclaimAnswered answer{asked.client, asked.revision, asked.place,
                               node::ReclaimOutcome::Refused, 0};
  const auto found = running_.find(asked.client);
  const bool obeys = asked.step == node::ReclaimStep::Pause && found != running_.end();
  if (obeys) {
    Running& running = found->second;
    stall(running);
    answer.outcome = node::ReclaimOutcome::Applied;
    answer.returned = running.leased - std::min(running.leased, running.booked);
    running.leased -= answer.returned;
    running.to_move_back += answer.returned;
    ++figures_.pauses;
    figures_.moved_gib += static_cast<double>(answer.returned) / static_cast<double>(GiB);
  }
  tell(machine, answer);
  if (!obeys) return;
  const auto still = running_.find(asked.client);
  if (still != running_.end() && still->second.is_stalled) {
    ask_for_need(asked.client, still->second);
  }
}

}  // namespace cuvmm::cluster
