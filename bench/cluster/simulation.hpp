// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <queue>
#include <unordered_map>
#include <vector>

#include "bench/cluster/placement.hpp"
#include "node/policy.hpp"

namespace cuvmm::cluster {

struct SimulationRequest {
  unsigned cards = 100;
  Sharing sharing = Sharing::KeptShares;
  double hours = 24;
  double load = 1.0;             // requested memory as a share of all memory
  double guaranteed_part = 0.8;  // of a job's request, with LentShares
  std::uint64_t seed = 1;
};

struct SimulationFigures {
  std::uint64_t arrived = 0;
  std::uint64_t started = 0;
  std::uint64_t finished = 0;
  double wait_median = 0;  // seconds; includes jobs that still wait
  double wait_95 = 0;
  double running_per_card = 0;  // running jobs that are not stalled
  double served = 0;            // their requested memory as a share of all memory
  double stalled = 0;           // share of the jobs' time on cards
  std::uint64_t grants = 0;     // by the policy
  std::uint64_t refusals = 0;
  std::uint64_t pauses = 0;  // requested by the policy
  double moved_gib = 0;      // by them
  std::uint64_t broken = 0;  // guarantees not kept
};

// A cluster in which every machine has its own NodePolicy. Each job is a client of its machine's
// policy, obeys at once, and needs half of its request most of the time and all of it for the rest.
class Simulation {
 public:
  explicit Simulation(const SimulationRequest& request);
  SimulationFigures run();

 private:
  using Microseconds = node::Microseconds;
  enum class Kind : std::uint8_t { Arrival, JobStep, Retry, PolicyWake };
  struct Event {
    Microseconds time = 0;
    std::uint64_t order = 0;
    Kind kind = Kind::Arrival;
    std::uint64_t subject = 0;     // job or machine
    std::uint64_t generation = 0;  // of the job's plan; older steps are ignored
    bool operator>(const Event& other) const {
      return time != other.time ? time > other.time : order > other.order;
    }
  };
  struct Running {
    Job job;
    unsigned machine = 0;
    std::vector<unsigned> cards;
    Size booked = 0;
    Size leased = 0;  // of each card
    Size need = 0;
    bool needs_all = false;
    bool is_stalled = false;
    bool has_asked = false;
    Size to_move_back = 0;
    Microseconds left = 0;        // of its run
    Microseconds phase_left = 0;  // until its need changes
    Microseconds since = 0;       // time is counted up to here
    std::uint64_t generation = 0;
    node::RequestId requests = 0;
  };
  struct Waiting {
    Job job;
    std::uint64_t id = 0;
  };
  struct Machine {
    std::unique_ptr<node::NodePolicy> policy;
    std::optional<Microseconds> wake;
  };

  void push(Microseconds time, Kind kind, std::uint64_t subject, std::uint64_t generation = 0);
  void on_arrival();
  void start_waiting();
  bool start(const Waiting& waiting);
  void finish(std::uint64_t id);
  void step(std::uint64_t id, std::uint64_t generation);
  void plan(std::uint64_t id, Running& running);
  void count_time(Running& running);
  void change_need(std::uint64_t id, Running& running);
  void ask_for_need(std::uint64_t id, Running& running);
  void resume(std::uint64_t id, Running& running);
  void stall(Running& running);

  void tell(unsigned machine, const node::NodeEvent& event);
  void obey(unsigned machine, const node::Decisions& decisions);
  void obey_reclaim(unsigned machine, const node::ReclaimRequested& asked);
  bool is_lent(const Running& running) const;
  node::PlaceId place_of(unsigned card) const { return 1 + card % cards_of_machine; }

  const SimulationRequest request_;
  const Microseconds end_;
  const Microseconds measured_from_;
  JobMix mix_;
  Placement placement_;
  std::vector<Machine> machines_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::uint64_t order_ = 0;
  std::uint64_t jobs_ = 0;
  Microseconds now_ = 0;
  Job coming_;
  std::map<unsigned, std::deque<Waiting>, std::greater<>> waiting_;  // by cards, most first
  std::unordered_map<std::uint64_t, Running> running_;
  std::vector<double> waits_;
  SimulationFigures figures_;
  double run_seconds_ = 0;  // of jobs, within the measured period
  double stalled_seconds_ = 0;
  double served_seconds_ = 0;  // cards' memory * seconds
};

}  // namespace cuvmm::cluster
