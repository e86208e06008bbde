// SPDX-License-Identifier: Apache-2.0
#include "engine/scheduling.hpp"

#include <cstddef>
#include <new>

#include "base/at_exit.hpp"
#include "base/log.hpp"
#include "engine/engine.hpp"
#include "engine/hook_bypass.hpp"
#include "trace/current_trace.hpp"

namespace cuvmm {
namespace {

constexpr Duration longest_park{100'000};

// Makes all calls of an issuing thread bypass the hooks until the thread ends.
void begin_issuing_thread() {
  alignas(HookBypass) static thread_local std::byte never_ended[sizeof(HookBypass)];
  new (never_ended) HookBypass;
}

void park_at_exit() {
  Engine* const engine = Engine::running();
  if (engine == nullptr) return;
  engine->time_lease().shut_down();
  engine->scheduling().park();
}

ScheduleSettings settings_of(const Options& options) {
  return {.policy = options.schedule == Schedule::Off ? Schedule::Fifo : options.schedule,
          .window = options.schedule_window};
}

}  // namespace

Scheduling::Parts::Parts(const Driver& driver, const Captures& captures, LegacyBarrier& legacy,
                         const ScheduleSettings& settings)
    : streams(driver, &legacy),
      marks(driver, captures, streams, legacy, &begin_issuing_thread),
      kernels(driver),
      scheduler(marks, settings) {}

// Two threads may both create them; the first to publish wins.
Scheduling::Parts& Scheduling::ready_parts() {
  if (Parts* known = parts()) return *known;
  auto* mine = new Parts{driver_, captures_, legacy_, settings_of(options_)};
  Parts* nobodys = nullptr;
  if (parts_.compare_exchange_strong(nobodys, mine, std::memory_order_acq_rel)) {
    static constinit AtExit parks{&park_at_exit};
    parks.ensure();
    return *mine;
  }
  delete mine;
  return *nobodys;
}

void Scheduling::start_as_asked() {
  if (options_.schedule == Schedule::Off) return;
  if (!options_.client.empty()) {
    Scheduler& scheduler = ready_parts().scheduler;
    scheduler.bind_all_threads(&create_client(options_.client, options_.priority, options_.weight));
  }
  set_policy(options_.schedule);
}

Client& Scheduling::create_client(std::string name, int priority, int weight) {
  Client& client = ready_parts().scheduler.create_client(std::move(name), priority, weight);
  name_in_trace(TraceSubject::Client, client.id(), client.name());
  return client;
}

void Scheduling::set_policy(Schedule policy) {
  if (policy != Schedule::Off && (has_ended_.load() || !hook_coverage().is_whole())) {
    CUVMM_LOG_ONCE(Warning,
                   "the program uses driver functions that cuvmm does not see: scheduling is off");
    return;
  }
  if (policy != Schedule::Off) {
    Parts& known = ready_parts();
    known.scheduler.set_policy(policy);
    if (!is_on()) known.kernels.forget_all();  // kernels may have changed while off
    known.scheduler.accept();
    on_.store(true, std::memory_order_release);
    return;
  }
  if (Parts* known = parts()) known->scheduler.stop_accepting();
  on_.store(false, std::memory_order_release);
}

void Scheduling::disable_permanently() {
  has_ended_.store(true);
  set_policy(Schedule::Off);
}

Schedule Scheduling::policy() const {
  return is_on() ? parts()->scheduler.policy() : Schedule::Off;
}

void Scheduling::stream_began(CUstream stream) {
  if (Parts* known = parts()) known->streams.stream_began(stream);
}

void Scheduling::stream_ends(CUstream stream) {
  Parts* known = parts();
  if (known == nullptr || stream == nullptr) return;
  if (const StreamState* state = known->streams.known({.handle = stream})) {
    known->scheduler.stream_ended(*state);
  }
  known->streams.stream_ended(stream);
}

void Scheduling::context_ends(CUcontext context) {
  Parts* known = parts();
  if (known == nullptr || context == nullptr) return;
  known->scheduler.context_ends(context);
  known->streams.context_ends(context);
}

void Scheduling::context_stays(CUcontext context) {
  if (Parts* known = parts()) known->streams.context_stays(context);
}

void Scheduling::context_ended(CUcontext context) {
  Parts* known = parts();
  if (known == nullptr) return;
  known->scheduler.context_ended(context);
  known->streams.context_ended(context);
  known->marks.context_ended(context);
  known->kernels.forget_all();
}

void Scheduling::event_is_shared(CUevent event) {
  ready_parts().scheduler.event_is_shared(event);
}

void Scheduling::event_ends(CUevent event) {
  if (Parts* known = parts()) known->scheduler.event_ended(event);
}

void Scheduling::park() {
  if (Parts* known = parts()) known->scheduler.park(longest_park);
  on_.store(false, std::memory_order_release);
}

}  // namespace cuvmm
