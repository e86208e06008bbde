// SPDX-License-Identifier: Apache-2.0
#include "hook/driver_behind.hpp"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

namespace cuvmm::test {
namespace {

using hook::Flavour;

const Listener* listening = nullptr;
std::vector<Reached> reached;
std::map<std::string, void*> extra_functions;

Call acting_call{};
void (*driver_action)() = nullptr;

void reach(Call call, Flavour flavour) {
  reached.push_back({call, flavour, listening != nullptr ? listening->heard().size() : 0});
  if (driver_action != nullptr && call == acting_call) std::exchange(driver_action, nullptr)();
}

// A row's function in the silent driver.
template <Call call, Flavour flavour, class Function>
struct Silent;
template <Call call, Flavour flavour, class... Arguments>
struct Silent<call, flavour, CUresult (*)(Arguments...)> {
  static CUresult answer(Arguments...) {
    reach(call, flavour);
    return CUDA_ERROR_INVALID_VALUE;
  }
};

CUresult answer_version(int* version) {
  if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *version = 13000;
  return CUDA_SUCCESS;
}

// Some calls are answered without the driver if no context is current.
CUresult answer_context(CUcontext* context) {
  static int current = 0;
  reach(Call::cuCtxGetCurrent, Flavour::Legacy);
  if (context == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *context = reinterpret_cast<CUcontext>(&current);
  return CUDA_SUCCESS;
}

CUresult answer_proc_address(const char* name, void** function, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult* status);

std::map<std::string, void*> silent_functions() {
  std::map<std::string, void*> functions;
  const auto add = [&](const char* symbol, auto* function) {
    if (symbol != nullptr) functions[symbol] = reinterpret_cast<void*>(function);
  };
#define CUVMM_API(name, symbol, since, until, flavours, effect, need)                              \
  add(#symbol, &Silent<Call::symbol, Flavour::Legacy, hook::Row<Call::symbol>::Function>::answer); \
  add(info(Call::symbol).per_thread_symbol,                                                        \
      &Silent<Call::symbol, Flavour::PerThread, hook::Row<Call::symbol>::Function>::answer);
#define CUVMM_API_OLD CUVMM_API
#include "driver/driver_api.def"
#undef CUVMM_API
#undef CUVMM_API_OLD
  functions["cuDriverGetVersion"] = reinterpret_cast<void*>(&answer_version);
  functions["cuCtxGetCurrent"] = reinterpret_cast<void*>(&answer_context);
  functions["cuGetProcAddress_v2"] = reinterpret_cast<void*>(&answer_proc_address);
  return functions;
}

const std::map<std::string, void*>& functions_of_driver() {
  static const std::map<std::string, void*> functions = silent_functions();
  return functions;
}

// Returns the newest signature of a name, as far as these tests need it.
CUresult answer_proc_address(const char* name, void** function, int version, cuuint64_t flags,
                             CUdriverProcAddressQueryResult*) {
  const bool per_thread = flags == CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
  if (name == nullptr || function == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *function = nullptr;
  for (const CallInfo& row : all_calls()) {
    if (row.name != name || version < row.since || version >= row.until) continue;
    const char* symbol = per_thread && row.per_thread_symbol ? row.per_thread_symbol : row.symbol;
    *function = functions_of_driver().at(symbol);
  }
  if (const auto extra = extra_functions.find(name); extra != extra_functions.end()) {
    *function = extra->second;
  }
  return *function != nullptr ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

void* find_symbol(void*, const char* symbol) {
  const auto found = functions_of_driver().find(symbol);
  return found != functions_of_driver().end() ? found->second : nullptr;
}

template <class Function>
struct ZeroCall;
template <class... Arguments>
struct ZeroCall<CUresult (*)(Arguments...)> {
  static CUresult call(void* function) {
    return reinterpret_cast<CUresult (*)(Arguments...)>(function)(Arguments{}...);
  }
};

}  // namespace

Listener::Listener(Effect effects) {
  engine_over_silent_driver().watch().begin(*this, effects);
  listening = this;
}

Listener::~Listener() {
  listening = nullptr;
  engine_over_silent_driver().watch().end(*this);
}

CUresult Listener::before(const CallSite& site) {
  heard_.push_back(site);
  return CUDA_SUCCESS;
}

bool Listener::has_heard(Call call, Effect effect, std::size_t among_the_first) const {
  const auto end = heard_.begin() + static_cast<std::ptrdiff_t>(among_the_first);
  return std::any_of(heard_.begin(), end, [&](const CallSite& site) {
    return site.call == call && site.effect == effect;
  });
}

Engine& engine_over_silent_driver() {
  driver_source().doors = {.open = [](const char*) { return static_cast<void*>(&reached); },
                           .symbol = &find_symbol};
  return *Engine::get();
}

std::vector<Reached> take_reached() {
  return std::exchange(reached, {});
}

void let_driver_have(const char* name, void* function) {
  extra_functions[name] = function;
}

void let_driver_do(Call call, void (*action)()) {
  acting_call = call;
  driver_action = action;
}

CUresult call_with_zeros(Call call, void* function) {
  static constexpr CUresult (*calls[])(void*) = {
#define CUVMM_API(name, symbol, since, until, flavours, effect, need) \
  &ZeroCall<hook::Row<Call::symbol>::Function>::call,
#define CUVMM_API_OLD CUVMM_API
#include "driver/driver_api.def"
#undef CUVMM_API
#undef CUVMM_API_OLD
  };
  return calls[static_cast<std::size_t>(call)](function);
}

}  // namespace cuvmm::test
