// SPDX-License-Identifier: Apache-2.0
// The driver behind the doors in these tests: it has a current context, refuses everything else,
// and records the calls that reach it. Every row of driver_api.def has its own function there.
#pragma once

#include <vector>

#include "hook/door.hpp"

namespace cuvmm::test {

struct Reached {
  Call call;
  hook::Flavour flavour;
  std::size_t announced;  // how many calls the listener had been notified of by then
};

// Is notified of every announced call, like a subsystem with pending state.
class Listener final : public Watcher {
 public:
  explicit Listener(Effect effects = every_effect);
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  CUresult before(const CallSite& site) override;
  const std::vector<CallSite>& heard() const { return heard_; }
  bool has_heard(Call call, Effect effect, std::size_t among_the_first) const;

 private:
  std::vector<CallSite> heard_;
};

// The engine over the silent driver; the first use starts it.
Engine& engine_over_silent_driver();

// The calls that have reached the driver since the last take_reached().
std::vector<Reached> take_reached();

// Adds a name to what the driver's cuGetProcAddress finds beside the rows.
void let_driver_have(const char* name, void* function);

// Makes the driver run `action` once, when this row's function is called: like a driver that calls
// itself through its exported symbols.
void let_driver_do(Call call, void (*action)());

// Calls a row's function at this address, with every argument zero.
CUresult call_with_zeros(Call call, void* function);

}  // namespace cuvmm::test
