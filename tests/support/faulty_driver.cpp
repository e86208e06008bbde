// SPDX-License-Identifier: Apache-2.0
#include "support/faulty_driver.hpp"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <mutex>

namespace cuvmm::test {
namespace {

constexpr std::uint64_t never = ~std::uint64_t{0};

// Selects the calls that fail.
struct Choice {
  std::uint64_t first = never;
  std::uint64_t last = never;
  CUresult answer = CUDA_SUCCESS;
  std::optional<Call> only = std::nullopt;
  std::optional<Call> begin = std::nullopt;  // calls before the first of these do not count
};

struct State {
  std::mutex mutex;  // private to the tests, outside the project's lock order
  Choice chosen;
  std::uint64_t calls = 0;
  std::uint64_t faults = 0;
  std::uint64_t released_twice = 0;
  std::string last_failed;
  std::vector<Call> made;

  void choose(const Choice& choice) {
    const std::lock_guard holding{mutex};
    chosen = choice;
    calls = 0;
    faults = 0;
    released_twice = 0;
    last_failed.clear();
  }
};

State& state() {
  static State* one = new State;
  return *one;
}

// Calls can come from driver threads that outlive a test's scope.
std::atomic<FaultyDriver*> active{nullptr};

constexpr bool is_counted(Call call) {
  return call != Call::cuGetErrorName && call != Call::cuGetErrorString;
}

// Calls whose effect a driver that has ended brings about by itself.
constexpr bool gives_back(Call call) {
  switch (call) {
    case Call::cuMemUnmap:
    case Call::cuMemRelease:
    case Call::cuMemAddressFree:
    case Call::cuStreamDestroy_v2:
    case Call::cuEventDestroy_v2:
    case Call::cuCtxPopCurrent_v2:
    case Call::cuThreadExchangeStreamCaptureMode:
      return true;
    default:
      return false;
  }
}

template <auto member, Call call, class Function>
struct Thunk;

template <auto member, Call call, class... Parameters>
struct Thunk<member, call, CUresult (*)(Parameters...)> {
  static CUresult body(Parameters... parameters) {
    FaultyDriver& faulty = *active.load(std::memory_order_acquire);
    const auto instead = faulty.before(call);
    if (!instead) return (faulty.inner().*member)(parameters...);
    if (gives_back(call) && *instead == CUDA_ERROR_DEINITIALIZED) {
      (void)faulty.inner().cuCtxSynchronize_v2000();  // until nothing runs any more
      faulty.took_back(call, (faulty.inner().*member)(parameters...));
    }
    return *instead;
  }
};

template <auto member, Call call, class Function>
void put_thunk(Function& function) {
  if (is_counted(call)) function = &Thunk<member, call, Function>::body;
}

}  // namespace

FaultyDriver::FaultyDriver(const Driver& inner) : inner_(inner), table_(inner) {
  FaultyDriver* none = nullptr;
  if (!active.compare_exchange_strong(none, this)) {
    std::fputs("two FaultyDrivers at a time\n", stderr);
    std::abort();
  }
  stop_failing();
  forget_calls();
#define CUVMM_API(name, symbol, since, until, flavours, effect, need) \
  put_thunk<&Driver::name, Call::symbol>(table_.name);                \
  put_thunk<&Driver::name##_per_thread, Call::symbol>(table_.name##_per_thread);
#define CUVMM_API_OLD(name, symbol, since, until, flavours, effect, need)    \
  put_thunk<&Driver::name##_v##since, Call::symbol>(table_.name##_v##since); \
  put_thunk<&Driver::name##_v##since##_per_thread, Call::symbol>(            \
      table_.name##_v##since##_per_thread);
#include "driver/driver_api.def"
#undef CUVMM_API
#undef CUVMM_API_OLD
}

FaultyDriver::~FaultyDriver() {
  active = nullptr;
}

void FaultyDriver::fail_call(std::uint64_t number, CUresult answer) {
  state().choose({.first = number, .last = number, .answer = answer});
}

void FaultyDriver::fail_call(Call call, std::uint64_t number, CUresult answer) {
  state().choose({.first = number, .last = number, .answer = answer, .only = call});
}

void FaultyDriver::fail_from(Call call, std::uint64_t number, CUresult answer) {
  state().choose({.first = number, .answer = answer, .only = call});
}

void FaultyDriver::fail_from(std::uint64_t number, CUresult answer, std::optional<Call> begin) {
  state().choose({.first = number, .answer = answer, .begin = begin});
}

void FaultyDriver::stop_failing() {
  state().choose({});
}

std::uint64_t FaultyDriver::calls() const {
  const std::lock_guard holding{state().mutex};
  return state().calls;
}

std::uint64_t FaultyDriver::faults() const {
  const std::lock_guard holding{state().mutex};
  return state().faults;
}

std::string FaultyDriver::last_failed() const {
  const std::lock_guard holding{state().mutex};
  return state().last_failed;
}

std::uint64_t FaultyDriver::released_twice() const {
  const std::lock_guard holding{state().mutex};
  return state().released_twice;
}

std::vector<std::string> FaultyDriver::names() const {
  const std::lock_guard holding{state().mutex};
  std::vector<std::string> found;
  found.reserve(state().made.size());
  for (const Call call : state().made) found.emplace_back(info(call).name);
  return found;
}

std::uint64_t FaultyDriver::count_of(const std::string& name) const {
  const std::lock_guard holding{state().mutex};
  return static_cast<std::uint64_t>(
      std::count_if(state().made.begin(), state().made.end(),
                    [&](Call call) { return info(call).name == name; }));
}

void FaultyDriver::forget_calls() {
  const std::lock_guard holding{state().mutex};
  state().made.clear();
}

std::optional<CUresult> FaultyDriver::before(Call call) {
  State& now = state();
  const std::lock_guard holding{now.mutex};
  now.made.push_back(call);
  Choice& chosen = now.chosen;
  if (chosen.begin == call) chosen.begin.reset();
  if (chosen.begin || (chosen.only && *chosen.only != call)) return std::nullopt;
  ++now.calls;
  if (now.calls < chosen.first || now.calls > chosen.last || chosen.first == never) {
    return std::nullopt;
  }
  ++now.faults;
  now.last_failed = info(call).name;
  return chosen.answer;
}

void FaultyDriver::took_back(Call call, CUresult inner_answer) {
  if (call != Call::cuMemRelease || inner_answer == CUDA_SUCCESS) return;
  const std::lock_guard holding{state().mutex};
  ++state().released_twice;
}

}  // namespace cuvmm::test
