// SPDX-License-Identifier: Apache-2.0
#include "engine/engine.hpp"

#include <sys/auxv.h>
#include <time.h>

#include "base/at_exit.hpp"
#include "base/clock.hpp"
#include "base/in_children.hpp"
#include "base/log.hpp"
#include "base/not_cancelled.hpp"
#include "engine/control.hpp"
#include "engine/control_service.hpp"
#include "engine/hook_bypass.hpp"
#include "engine/publishing.hpp"
#include "engine/tenancy.hpp"
#include "engine/trace_life.hpp"
#include "lease/share_key.hpp"
#include "stream/thread_ends.hpp"
#include "trace/event_log.hpp"
#include "vmm/deferred_release.hpp"
#include "vmm/reserved_addresses.hpp"

namespace cuvmm {
namespace {

std::atomic<bool> cannot_start{false};  // so it is not tried again
// By its thread, with siglongjmp. No thread waits for it again.
std::atomic<bool> start_was_left{false};
constexpr std::uint64_t longest_start_us = 2'000'000;

void warn_of(const Options& options) {
  for (const OptionProblem& problem : options.problems()) {
    CUVMM_LOG(Warning, "%s; using the default", problem.text().c_str());
  }
}

void tell_trace_of_memory() {
  Engine* const engine = Engine::running();
  if (engine != nullptr && engine->serving() != nullptr)
    engine->serving()->memory.holdings().trace_all();
}

// Runs at exit: the node service must not use the driver through this process once it is ending.
void end_tenancy() {
  if (Engine* const engine = Engine::running()) engine->leave_node();
}

const char* name_of_call(std::uint16_t call) {
  return call < call_count ? all_calls()[call].symbol : nullptr;
}

// Returns nullptr if there is no served memory to pause.
std::unique_ptr<Control> make_control(const Driver& driver, Serving* serving, CallBarrier& calls,
                                      Scheduling& scheduling, TimeLease& time_lease,
                                      EndingContexts& ending_contexts, SizeLimit ahead) {
  if (serving == nullptr) return nullptr;
  return std::make_unique<Control>(
      ProgramParts{.driver = driver,
                   .memory = serving->memory,
                   .calls = calls,
                   .settle_queued =
                       [&scheduling](std::uint64_t until) { return scheduling.settle_all(until); },
                   .is_scheduled = [&scheduling] { return scheduling.is_on(); },
                   .forget_ended_work = [&time_lease] { time_lease.forget_ended_work(); },
                   .chunks = &serving->program_chunks,
                   .captures = &serving->captures},
      ending_contexts, ahead);
}

}  // namespace

std::atomic<Engine*> Engine::current_{nullptr};
std::atomic<Engine*> Engine::starting_{nullptr};
Engine* Engine::left_ = nullptr;

DriverSource& driver_source() {
  static constinit DriverSource source;
  return source;
}

Engine::Engine(const Driver& driver, Options options)
    : driver_(driver),
      options_(std::move(options)),
      scheduling_(driver_, captures_, legacy_barrier_, options_),
      tenancy_(Tenancy::of(*this, options_)),
      serving_(options_.mode == Mode::Vmm
                   ? std::make_unique<Serving>(
                         driver_, options_, tenancy_ != nullptr ? &tenancy_->lessor() : nullptr,
                         Serving::Program{gate_, calls_, submission_epoch_, legacy_barrier_,
                                          per_thread_use_, watch_, captures_,
                                          [this] { return sees_everything(); }})
                   : nullptr),
      control_(make_control(driver_, serving_.get(), calls_, scheduling_, time_lease_,
                            ending_contexts_, options_.pause_ahead)),
      stores_(driver_, memory_settings(options_),
              serving_ != nullptr ? &serving_->memory : nullptr) {}

Engine::~Engine() = default;

Engine* Engine::start() {
  // The driver may call back while it is being loaded.
  if (HookBypass::is_active() || cannot_start.load(std::memory_order_relaxed)) return nullptr;
  const HookBypass bypass;
  const NotCancelled whole;  // no other thread would finish it
  forget_in_children();      // first, since another thread may fork at any moment from here on
  Engine* mine = make();
  if (mine == nullptr) return nullptr;
  Engine* nobody = nullptr;
  if (!starting_.compare_exchange_strong(nobody, mine)) {
    delete mine;
    return wait_for_start();
  }
  mine->set_up();
  current_.store(mine, std::memory_order_release);
  return mine;
}

// Several threads may get here at once. They must not wait for each other: loading the driver takes
// the loader's lock, which a waiting thread may hold already. So each thread makes an engine, and
// all but one are discarded.
Engine* Engine::make() {
  Options options = Options::from_environment();
  if (::getauxval(AT_SECURE) != 0) options.mode = Mode::Off;
  auto driver = load_driver(driver_source().path.load(), driver_source().doors);
  if (driver.ok()) return new Engine{*driver, std::move(options)};
  if (!cannot_start.exchange(true)) {
    CUVMM_LOG(Warning, "%s; the program runs without cuvmm", driver.error().text().c_str());
  }
  return nullptr;
}

void Engine::set_up() {
  // On failure, a warning has been logged, and the log goes to standard error.
  static_cast<void>(set_up_log({.level = options_.log_level, .file = options_.log_file}).ok());
  log_events(&name_of_call);
  warn_of(options_);
  if (!is_on()) return;
  start_trace(options_);
  // Registered after the trace's handler, so runs before the trace is finished.
  static constinit AtExit tells_trace{&tell_trace_of_memory};
  if (trace_is_on() && serving_ != nullptr) tells_trace.ensure();
  scheduling_.start_as_asked();
  static constinit AtExit ends_tenancy{&end_tenancy};
  if (tenancy_ != nullptr) ends_tenancy.ensure();
  if (control_ == nullptr) return;
  if (options_.control == Switch::On) serve_commands(*control_);
  if (options_.spill.to == SpillTo::Off) return;
  if (options_.spill_move == Switch::On) control_->start_placing();
  control_->start_looking_after_host();
}

void Engine::shares(const CUipcMemHandle& handle) {
  if (tenancy_ != nullptr) tenancy_->shares(lease::share_key_of(handle));
}
void Engine::shares(const CUipcEventHandle& handle) {
  if (tenancy_ != nullptr) tenancy_->shares(lease::share_key_of(handle));
}
void Engine::shares(const share::Token& token) {
  if (tenancy_ != nullptr) tenancy_->shares(lease::share_key_of(token));
}

void Engine::leave_node() {
  if (tenancy_ != nullptr) tenancy_->shut_down();
}

// Waits for the thread that sets up the engine; that thread needs no lock that this one could hold.
// Returns nullptr after a timeout, so that a failure there does not block this thread too.
Engine* Engine::wait_for_start() {
  const std::uint64_t deadline = now_us() + longest_start_us;
  while (!start_was_left.load(std::memory_order_relaxed)) {
    if (Engine* engine = current_.load(std::memory_order_acquire)) return engine;
    if (now_us() >= deadline) start_was_left.store(true);
    rest_us(20);
  }
  return current_.load(std::memory_order_acquire);
}

bool Engine::has_reserved(CUdeviceptr address, Size size) {
  return reserved_addresses::intersect(address, size);
}

void Engine::forget_in_children() {
  static constinit InChildren forgets{&Engine::forget_after_fork};
  forgets.ensure();
}

// The child shares nothing with the parent's threads or its driver. The old engine is kept, unused:
// freeing it could need a lock that another thread held at the fork, and leaking it would fail
// programs that check for leaks.
void Engine::forget_after_fork() {
  forget_trace();
  forget_publishing();
  LastUses::watch(nullptr);
  ThreadEnds::forget_after_fork();
  Gate::forget_after_fork();  // with all barriers
  reserved_addresses::forget_after_fork();
  forget_deferred_after_fork();
  if (Engine* const old = starting_.exchange(nullptr))
    old->left_before_ = std::exchange(left_, old);
  current_.store(nullptr);
  cannot_start.store(false);
  start_was_left.store(false);
}

}  // namespace cuvmm
