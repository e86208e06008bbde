// SPDX-License-Identifier: Apache-2.0
// One door per row and flavour, and the exported symbol of each.
#include "hook/door.hpp"
#include "hook/native.hpp"
#include "hook/record.hpp"
#include "hook/scheduled/way.hpp"

namespace cuvmm::hook {
namespace {

// Their bodies make records that say more.
constexpr bool takes_or_frees_memory(std::string_view name) {
  return name.starts_with("cuMemAlloc") || name.starts_with("cuMemHostAlloc") ||
         name.starts_with("cuMemFree");
}

template <Call call, auto* body, auto* description, class Function>
struct Door;

template <Call call, auto* body, auto* description, class... Arguments>
struct Door<call, body, description, CUresult (*)(Arguments...)> {
  // Both doors of a row share what is behind them where one more argument still fits a register.
  template <Flavour flavour>
  static CUresult enter(Arguments... arguments) {
    if constexpr (sizeof...(Arguments) <= 5 && info(call).per_thread_symbol != nullptr) {
      return go_in(arguments..., flavour);
    } else {
      return pass(flavour, arguments...);
    }
  }

  [[gnu::noinline]] static CUresult go_in(Arguments... arguments, Flavour flavour) {
    return pass(flavour, arguments...);
  }

  [[gnu::always_inline]] static inline CUresult pass(Flavour flavour, Arguments... arguments) {
    Engine* engine = Engine::get();
    if (engine == nullptr) return call_natively<call>(flavour, arguments...);
    const Forward<call> forward{*engine, flavour};
    if (Inside::here() || !engine->is_on()) return forward.unannounced(arguments...);
    // What the driver itself calls from here on goes straight through.
    const Inside inside;
    [[maybe_unused]] const Pass pass{engine->calls()};
    const std::uint64_t began = trace_is_on() && is_recorded() ? now_ns() : 0;
    const CUresult answer = engine->scheduling().is_on() ? make_scheduled(forward, arguments...)
                            : body != nullptr            ? body(forward, arguments...)
                                                         : forward(arguments...);
    if (began != 0) [[unlikely]] {
      const Called called = called_at(began, answer, flavour);
      if (description != nullptr) {
        record_call(engine->driver(), call, called, description(called, arguments...));
      } else {
        record_plain_call(engine->driver(), call, called, stream_among(called, arguments...));
      }
    }
    return answer;
  }

  // Whatever could touch memory or work waits while the process is paused.
  static constexpr bool waits_in_a_pause =
      has(info(call).effect,
          Effect::Submits | Effect::Reads | Effect::Writes | Effect::Destroys | Effect::Exposes);
  struct NoPass {
    explicit NoPass(const Threshold&) {}
  };
  using Pass = std::conditional_t<waits_in_a_pause, Threshold::Pass, NoPass>;

  // A call that no pending work could notice is not worth a record of its own.
  static bool is_recorded() {
    if (description != nullptr) return true;
    return info(call).effect != Effect::Neutral && !takes_or_frees_memory(info(call).name);
  }
};

}  // namespace

// A symbol is one jump through a slot, so that templates can be exported under C names.
#define CUVMM_SLOT(symbol, function)                                                           \
  extern "C" {                                                                                 \
  [[gnu::visibility("hidden")]] void* cuvmm_door_##symbol = reinterpret_cast<void*>(function); \
  }                                                                                            \
  asm(".pushsection .text\n"                                                                   \
      ".globl " #symbol                                                                        \
      "\n"                                                                                     \
      ".type " #symbol ",@function\n" #symbol                                                  \
      ":\n"                                                                                    \
      "  endbr64\n"                                                                            \
      "  jmp *cuvmm_door_" #symbol                                                             \
      "(%rip)\n"                                                                               \
      ".size " #symbol ",.-" #symbol                                                           \
      "\n"                                                                                     \
      ".popsection");

#define CUVMM_DOOR(symbol, flavour)                        \
  (&Door<Call::symbol, &hook_##symbol, &event_of_##symbol, \
         Row<Call::symbol>::Function>::template enter<flavour>)
#define CUVMM_EXPORT_Legacy(symbol)
#define CUVMM_EXPORT_LegacyAndPtds(symbol) \
  CUVMM_SLOT(symbol##_ptds, CUVMM_DOOR(symbol, Flavour::PerThread))
#define CUVMM_EXPORT_LegacyAndPtsz(symbol) \
  CUVMM_SLOT(symbol##_ptsz, CUVMM_DOOR(symbol, Flavour::PerThread))
#define CUVMM_API(name, symbol, since, until, flavours, effect, need) \
  CUVMM_SLOT(symbol, CUVMM_DOOR(symbol, Flavour::Legacy))             \
  CUVMM_EXPORT_##flavours(symbol)
#define CUVMM_API_OLD CUVMM_API
#include "driver/driver_api.def"
#undef CUVMM_API
#undef CUVMM_API_OLD

#define CUVMM_OTHER_Legacy(symbol) nullptr
#define CUVMM_OTHER_LegacyAndPtds(symbol) \
  reinterpret_cast<void*>(CUVMM_DOOR(symbol, Flavour::PerThread))
#define CUVMM_OTHER_LegacyAndPtsz CUVMM_OTHER_LegacyAndPtds

// Addresses that the loader fills in, so that nothing is left to be done at the first use.
static const std::array<DoorPair, call_count> doors = {{
#define CUVMM_API(name, symbol, since, until, flavours, effect, need)    \
  DoorPair{reinterpret_cast<void*>(CUVMM_DOOR(symbol, Flavour::Legacy)), \
           CUVMM_OTHER_##flavours(symbol)},
#define CUVMM_API_OLD CUVMM_API
#include "driver/driver_api.def"
#undef CUVMM_API
#undef CUVMM_API_OLD
}};

const std::array<DoorPair, call_count>& all_doors() {
  return doors;
}

}  // namespace cuvmm::hook
