// SPDX-License-Identifier: Apache-2.0
// The code of a door. The most frequent calls (hook/common_doors.def) are compiled for speed in
// common_doors.cpp, all others for size in doors.cpp: there are a thousand, and a program uses few.
#pragma once

#include "hook/door.hpp"
#include "hook/linked_functions.hpp"
#include "hook/native.hpp"
#include "hook/passage.hpp"
#include "hook/record.hpp"
#include "hook/scheduled/dispatch_mode.hpp"
#include "hook/uses.hpp"

namespace cuvmm::hook {

// The bodies of these calls make more detailed records themselves.
constexpr bool takes_or_frees_memory(std::string_view name) {
  return name.starts_with("cuMemAlloc") || name.starts_with("cuMemHostAlloc") ||
         name.starts_with("cuMemFree");
}

// The answer to a free that bypassed the hooks. The driver frees memory of its own there. A program
// frees cuvmm's there only if it has interrupted a call: in a signal handler, or after exit() in
// one. Locks of cuvmm's may then be held, so the memory stays taken; the program is told what it
// would be told natively.
template <class... More>
CUresult freed_in_bypass(CUresult answer, CUdeviceptr address, More...) {
  const bool is_ours = answer == CUDA_ERROR_INVALID_VALUE && Engine::has_reserved(address, 1);
  return is_ours ? CUDA_SUCCESS : answer;
}

template <Call call, auto* description, class Function>
struct BehindDoor;

template <Call call, auto* description, class... Arguments>
struct BehindDoor<call, description, CUresult (*)(Arguments...)> {
  // Shared by all doors of a row.
  [[gnu::noinline]] static CUresult go_in(Arguments... arguments, Flavour flavour) {
    return pass(flavour, arguments...);
  }

  [[gnu::always_inline]] static inline CUresult pass(Flavour flavour, Arguments... arguments) {
    if constexpr (is_common<call>) {
      Engine* engine = Engine::get();
      if (engine == nullptr) return call_natively<call>(flavour, arguments...);
      const Forward<call> forward{*engine, flavour};
      if (HookBypass::is_active() || !engine->is_on()) {
        const CUresult answer = forward.unannounced(arguments...);
        if constexpr (info(call).name.starts_with("cuMemFree")) {
          return freed_in_bypass(answer, arguments...);
        } else {
          return answer;
        }
      }
      // Calls that the driver makes from here on bypass the hooks.
      const HookBypass bypass;
      const CallBarrier::Pass pass{waits_in_a_pause ? engine->calls() : engine->forwarded(), call};
      if constexpr (waits_in_a_pause) {
        if (const CUresult over = engine->calls().abandoned_with(); over != CUDA_SUCCESS)
            [[unlikely]] {
          return over;
        }
      }
      const std::uint64_t began = trace_is_on() && is_recorded ? now_ns() : 0;
      return make(forward, began, arguments...);
    } else {
      const Passage passage{call,
                            waits_in_a_pause ? Passage::InAPause::Waits : Passage::InAPause::GoesOn,
                            is_recorded};
      if (passage.way() == Passage::Way::Natively) {
        return call_natively<call>(flavour, arguments...);
      }
      if (passage.way() == Passage::Way::Ended) return passage.engine().calls().abandoned_with();
      const Forward<call> forward{passage.engine(), flavour};
      if (passage.way() == Passage::Way::Unannounced) return forward.unannounced(arguments...);
      return make(forward, passage.began(), arguments...);
    }
  }

  // Makes the call as its body or its effect says, and records it.
  [[gnu::always_inline]] static inline CUresult make(const Forward<call>& forward,
                                                     std::uint64_t began, Arguments... arguments) {
    Engine& engine = forward.engine();
    if constexpr (names_memory<call, Arguments...>) {
      if (LastUses* const uses = LastUses::watched()) [[unlikely]]
        note_uses<call>(engine, *uses, arguments...);
    }
    if constexpr (ends_functions(info(call).name)) forget_functions(engine);
    if constexpr (begins_a_librarys_use(info(call).name)) check_linked_functions(engine);
    const CUresult answer = make_as_scheduled(forward, arguments...);
    if (began != 0) [[unlikely]] {
      const Called called = called_at(began, answer, forward.flavour());
      if constexpr (is_described<call>) {
        record_call(engine.driver(), call, called, description(called, arguments...));
      } else {
        record_plain_call(engine.driver(), call, called, stream_among(called, arguments...));
      }
    }
    return answer;
  }

  // Calls that could touch memory or work wait while the process is paused.
  static constexpr bool waits_in_a_pause =
      has(info(call).effect,
          Effect::Submits | Effect::Reads | Effect::Writes | Effect::Destroys | Effect::Exposes);

  // A call that cannot affect pending work is not worth its own record.
  static constexpr bool is_recorded =
      is_described<call> ||
      (info(call).effect != Effect::Neutral && !takes_or_frees_memory(info(call).name));
};

// The door of a row in one flavour.
template <Call call, Flavour flavour, auto* description, class Function>
struct Door;

template <Call call, Flavour flavour, auto* description, class... Arguments>
struct Door<call, flavour, description, CUresult (*)(Arguments...)> {
  using Behind = BehindDoor<call, description, CUresult (*)(Arguments...)>;

  static CUresult enter(Arguments... arguments) {
    if constexpr (!is_common<call> && info(call).per_thread_symbol != nullptr) {
      return Behind::go_in(arguments..., flavour);
    } else {
      return Behind::pass(flavour, arguments...);
    }
  }
};

#define CUVMM_DOOR(symbol, flavour) \
  Door<Call::symbol, flavour, &event_of_##symbol, Row<Call::symbol>::Function>

#define CUVMM_EACH_Legacy(extern_or_not, symbol) \
  extern_or_not template struct CUVMM_DOOR(symbol, Flavour::Legacy);
#define CUVMM_EACH_Both(extern_or_not, symbol) \
  CUVMM_EACH_Legacy(extern_or_not, symbol)     \
      extern_or_not template struct CUVMM_DOOR(symbol, Flavour::PerThread);

}  // namespace cuvmm::hook
