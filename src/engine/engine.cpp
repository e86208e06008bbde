// SPDX-License-Identifier: Apache-2.0
#include "engine/engine.hpp"

#include <pthread.h>

#include "base/log.hpp"
#include "engine/inside.hpp"
#include "engine/trace_life.hpp"
#include "trace/event_log.hpp"

namespace cuvmm {
namespace {

std::atomic<bool> driver_is_missing{false};

void warn_of(const Options& options) {
  for (const OptionProblem& problem : options.problems()) {
    CUVMM_LOG(Warning, "%s; the default is used", problem.text().c_str());
  }
}

const char* name_of_call(std::uint16_t call) {
  return call < call_count ? all_calls()[call].symbol : nullptr;
}

}  // namespace

std::atomic<Engine*> Engine::current_{nullptr};

DriverSource& driver_source() {
  static DriverSource source;
  return source;
}

// Two threads may both get here; the first to publish its engine wins, and the other's, which has
// done nothing yet, is dropped. That way nobody waits for anybody.
Engine* Engine::start() {
  if (driver_is_missing.load(std::memory_order_relaxed)) return nullptr;
  const Inside inside;
  Options options = Options::from_environment();
  auto driver = load_driver(driver_source().path.load(), driver_source().doors);
  if (!driver.ok()) {
    if (!driver_is_missing.exchange(true)) {
      CUVMM_LOG(Warning, "%s; the program runs without cuvmm", driver.error().text().c_str());
    }
    return nullptr;
  }
  auto* mine = new Engine{*driver, std::move(options)};
  Engine* nobody = nullptr;
  if (!current_.compare_exchange_strong(nobody, mine)) {
    delete mine;
    return nobody;
  }
  // A log file that cannot be had has been warned of, and standard error is used instead.
  static_cast<void>(
      set_up_log({.level = mine->options_.log_level, .file = mine->options_.log_file}).ok());
  log_events(&name_of_call);
  warn_of(mine->options_);
  if (mine->is_on()) start_trace(mine->options_);
  pthread_atfork(nullptr, nullptr, &Engine::forget_after_fork);
  return mine;
}

// The child shares nothing that its parent's threads or the driver hold. What the old engine owns
// is left as it lies: freeing it could need a lock that another thread held at the fork.
void Engine::forget_after_fork() {
  forget_trace();
  current_.store(nullptr);
  driver_is_missing.store(false);
}

}  // namespace cuvmm
