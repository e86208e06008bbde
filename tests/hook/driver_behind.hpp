// SPDX-License-Identifier: Apache-2.0
// What stands behind the doors in these tests: a driver that does nothing, refuses everything and
// notes what reached it. Every row of driver_api.def has a function of its own there.
#pragma once

#include <vector>

#include "hook/door.hpp"

namespace cuvmm::test {

struct Reached {
  Call call;
  hook::Flavour flavour;
  std::size_t announced;  // how many calls the listener had heard of by then
};

// Hears of every call that is announced, as somebody would who has something pending.
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

// The engine over that driver; the first use starts it.
Engine& engine_over_silent_driver();

// What reached the driver since the last time that somebody asked.
std::vector<Reached> take_reached();

// What cuGetProcAddress of that driver finds for a name, beside the rows; and what it answers.
void let_driver_have(const char* name, void* function);

// What that driver does, once, when this row's function is called: as a driver that calls itself by
// its exported symbols.
void let_driver_do(Call call, void (*action)());

// Calls a row's function at this address, with nothing but zeros.
CUresult call_with_zeros(Call call, void* function);

}  // namespace cuvmm::test
