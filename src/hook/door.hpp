// SPDX-License-Identifier: Apache-2.0
// What a program is handed instead of a driver function. Every row of driver_api.def has a door in
// each of its flavours; a row with a body of its own (CUVMM_HOOK) goes through it, the others are
// forwarded with their effect announced.
#pragma once

#include <array>
#include <memory>
#include <type_traits>

#include "driver/driver.hpp"
#include "engine/device_work.hpp"
#include "engine/engine.hpp"
#include "engine/hook_bypass.hpp"
#include "hook/named_copy.hpp"

namespace cuvmm::hook {

// Whether stream 0 means the legacy stream or the calling thread's own.
enum class Flavour : std::uint8_t { Legacy, PerThread };

// How a row's two members of the driver table are reached.
template <Call call>
struct Row;
#define CUVMM_API(name, symbol, since, until, flavours, effect, need) \
  template <>                                                         \
  struct Row<Call::symbol> {                                          \
    using Function = PFN_##name##_v##since;                           \
    static constexpr auto legacy = &Driver::name;                     \
    static constexpr auto per_thread = &Driver::name##_per_thread;    \
  };
#define CUVMM_API_OLD(name, symbol, since, until, flavours, effect, need)     \
  template <>                                                                 \
  struct Row<Call::symbol> {                                                  \
    using Function = PFN_##name##_v##since;                                   \
    static constexpr auto legacy = &Driver::name##_v##since;                  \
    static constexpr auto per_thread = &Driver::name##_v##since##_per_thread; \
  };
#include "driver/driver_api.def"
#undef CUVMM_API
#undef CUVMM_API_OLD

// What a refusal means for the memory that we serve. True where it was want of memory, and we have
// given some back.
bool is_worth_another_try(Engine& engine, CUresult refusal);

// The calls that programs make all the time, whose doors are made for speed.
template <Call call>
inline constexpr bool is_common = false;
#define CUVMM_COMMON(symbol, flavours) \
  template <>                          \
  inline constexpr bool is_common<Call::symbol> = true;
#include "hook/common_doors.def"
#undef CUVMM_COMMON

// Which side of the legacy barrier was given work. Calls without a stream are work of the default
// stream where they copy or set, and may be anybody's where they do something else.
[[gnu::always_inline]] inline void note_side(Engine& engine, Call call, Flavour flavour,
                                             CUstream stream, bool names_stream) {
  const std::string_view name = info(call).name;
  const bool copies_or_sets = name.starts_with("cuMemcpy") || name.starts_with("cuMemset");
  LegacyBarrier& barrier = engine.legacy_barrier();
  if (!names_stream && !copies_or_sets) return barrier.anything_submitted();
  const bool is_legacy =
      stream == CU_STREAM_LEGACY || (stream == nullptr && flavour == Flavour::Legacy);
  is_legacy ? barrier.legacy_submitted() : barrier.blocking_submitted();
}

// What has to be noted once the driver has taken work. The second is both, of calls that are not
// common.
void note_device_work(Engine& engine, Call call, Flavour flavour, CUstream stream,
                      std::uint64_t kind);
void note_submitted(Engine& engine, Call call, Flavour flavour, CUstream stream, bool names_stream);

// The real function behind a door, in the door's flavour.
template <Call call>
class Forward {
 public:
  Forward(Engine& engine, Flavour flavour) : engine_(engine), flavour_(flavour) {}

  Engine& engine() const { return engine_; }
  Flavour flavour() const { return flavour_; }

  // Tells those waiting for such a call; then the driver answers; then records that there
  // is work. Work that the driver refused counts as well: it may have begun some of it.
  template <class... Arguments>
  CUresult operator()(Arguments... arguments) const {
    if (const CUresult refused = announce(); refused != CUDA_SUCCESS) return refused;
    return announced(arguments...);
  }

  // What the program is to be answered instead of the call, where that is not CUDA_SUCCESS.
  [[nodiscard]] CUresult announce() const { return announce_as(info(call).effect); }
  // A call that does more than its row says, by its arguments.
  [[nodiscard]] CUresult announce_as(Effect effect) const { return engine_.before({call, effect}); }

  // The rest of it, for a body that may answer without the driver once it has announced the call.
  template <class... Arguments>
  CUresult announced(Arguments... arguments) const {
    const auto call_driver = [&] {
      for (bool again = false;; again = true) {
        const CUresult answer = through_the_gate(arguments...);
        if (answer == CUDA_SUCCESS || again || !is_worth_another_try(engine_, answer)) {
          return answer;
        }
      }
    };
    if constexpr (copies_or_sets || adds_copies(info(call).name)) {
      return copied(call_driver, arguments...);
    } else {
      return call_driver();
    }
  }

  // To the driver, and nothing else.
  template <class... Arguments>
  CUresult unannounced(Arguments... arguments) const {
    const auto member = flavour_ == Flavour::Legacy ? Row<call>::legacy : Row<call>::per_thread;
    return (engine_.driver().*member)(arguments...);
  }

 private:
  static constexpr bool submits = has(info(call).effect, Effect::Submits);
  static constexpr bool copies_or_sets = submits && (info(call).name.starts_with("cuMemcpy") ||
                                                     info(call).name.starts_with("cuMemset"));

  // A copy or set, or a graph that is given one.
  template <class CallDriver, class... Arguments>
  CUresult copied(const CallDriver& call_driver, Arguments... arguments) const {
    if (!copies_need_care(engine_)) [[likely]]
      return call_driver();
    const StreamName stream{.handle = stream_among(arguments...),
                            .null_is_per_thread = flavour_ == Flavour::PerThread};
    std::unique_ptr<NamedCopy> copy;
    const CUresult refused =
        begin_named_copy(copy, engine_, copy_traits(info(call).name), stream, arguments...);
    return refused == CUDA_SUCCESS ? copy->finish(call_driver()) : refused;
  }

  template <class... Arguments>
  CUresult through_the_gate(Arguments... arguments) const {
    if constexpr (!gives_work(info(call).effect)) return unannounced(arguments...);
    if (flavour_ == Flavour::PerThread || (names_own_stream(arguments) || ...)) {
      engine_.per_thread_use().note();
      engine_.legacy_barrier().blocking_stream_exists();
    }
    const Gate::Pass pass{engine_.gate()};
    const CUresult answer = unannounced(arguments...);
    if constexpr (submits) {
      if constexpr (is_common<call>) {
        engine_.submission_epoch().leave();
        note_side_of_barrier(arguments...);
        if constexpr (is_device_work(call)) {
          if (engine_.time_lease().counts()) [[unlikely]] {
            note_device_work(engine_, call, flavour_, stream_among(arguments...),
                             kind_among(arguments...));
          }
        }
      } else {
        note_submitted(engine_, call, flavour_, stream_among(arguments...),
                       names_stream<Arguments...>);
      }
    }
    return answer;
  }

  // Launches of one function or graph in one shape are of one kind; of other calls, all are.
  template <class... Arguments>
  static std::uint64_t kind_among(const Arguments&... arguments) {
    std::uint64_t kind = static_cast<std::uint64_t>(call) + 1;
    [[maybe_unused]] const auto add = [&](const auto& argument) {
      using Argument = std::remove_cvref_t<decltype(argument)>;
      if constexpr (std::is_same_v<Argument, CUfunction> || std::is_same_v<Argument, CUgraphExec>) {
        kind = kind * 31 + (reinterpret_cast<std::uint64_t>(argument) >> 4);
      }
      if constexpr (std::is_same_v<Argument, unsigned>) kind = kind * 31 + argument;
    };
    if constexpr (!copies_or_sets) (add(arguments), ...);
    return kind;
  }

  template <class... Arguments>
  static constexpr bool names_stream = (std::is_same_v<Arguments, CUstream> || ...) ||
                                       (std::is_same_v<Arguments, const CUlaunchConfig*> || ...);
  template <class... Arguments>
  void note_side_of_barrier(const Arguments&... arguments) const {
    note_side(engine_, call, flavour_, stream_among(arguments...), names_stream<Arguments...>);
  }

  template <class... Arguments>
  static CUstream stream_among(const Arguments&... arguments) {
    CUstream stream = nullptr;
    [[maybe_unused]] const auto look_at = [&](const auto& argument) {
      using Argument = std::remove_cvref_t<decltype(argument)>;
      if constexpr (std::is_same_v<Argument, CUstream>) stream = argument;
      if constexpr (std::is_same_v<Argument, const CUlaunchConfig*>) {
        if (argument != nullptr) stream = argument->hStream;
      }
    };
    (look_at(arguments), ...);
    return stream;
  }

  // The calling thread's default stream, by its handle.
  template <class Argument>
  static bool names_own_stream(const Argument& argument) {
    if constexpr (std::is_same_v<Argument, CUstream>) return argument == CU_STREAM_PER_THREAD;
    if constexpr (std::is_same_v<Argument, CUDA_LAUNCH_PARAMS*>) return true;  // one of many may
    if constexpr (std::is_same_v<Argument, const CUlaunchConfig*>) {
      return argument != nullptr && argument->hStream == CU_STREAM_PER_THREAD;
    }
    return false;
  }

  Engine& engine_;
  Flavour flavour_;
};

// The type of a row's body: its forward, then the row's own arguments.
template <Call call, class Function>
struct BodyOf;
template <Call call, class... Arguments>
struct BodyOf<call, CUresult (*)(Arguments...)> {
  using Type = CUresult(const Forward<call>& forward, Arguments...);
};

// The bodies, declared for every row and defined for some: a body whose arguments do not fit its
// row does not compile, and one that nobody wrote is null.
#define CUVMM_API(name, symbol, since, until, flavours, effect, need) \
  [[gnu::weak,                                                        \
    gnu::visibility("hidden")]] BodyOf<Call::symbol, PFN_##name##_v##since>::Type hook_##symbol;
#define CUVMM_API_OLD CUVMM_API
#include "driver/driver_api.def"
#undef CUVMM_API
#undef CUVMM_API_OLD

#define CUVMM_HOOK(symbol, ...)                                                               \
  CUresult hook_##symbol([[maybe_unused]] const Forward<Call::symbol>& forward __VA_OPT__(, ) \
                             __VA_ARGS__)

// The addresses that programs are handed, per row.
struct DoorPair {
  void* legacy;
  void* per_thread;  // nullptr where the row has no such flavour
};
const std::array<DoorPair, call_count>& all_doors();

}  // namespace cuvmm::hook
