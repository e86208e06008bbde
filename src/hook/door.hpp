// SPDX-License-Identifier: Apache-2.0
// A door is the function that a program is given in place of a driver function. Every row of
// driver_api.def has a door in each of its flavours. If the row has a body (CUVMM_HOOK), the door
// calls it; otherwise it announces the row's effect and forwards the call.
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

// Whether stream 0 means the legacy stream or the calling thread's default stream.
enum class Flavour : std::uint8_t { Legacy, PerThread };

// Gives access to a row's two members of the driver table.
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

// Reacts to a driver error. Once a context is lost, cuvmm leaves new requests to the driver, and
// queues no calls. If the driver lacked memory, cuvmm releases what it has cached; returns true if
// that was any, so that the call is worth retrying. The context is the one that the call names, by
// itself, by a stream or by an event, or else the current one.
bool recover_from(Engine& engine, CUresult refusal, CUcontext context = nullptr);
bool recover_from(Engine& engine, CUresult refusal, CUstream stream);
bool recover_from(Engine& engine, CUresult refusal, CUevent event);
// Notes the lost context, and releases nothing.
void note_refusal(Engine& engine, CUresult refusal, CUcontext context = nullptr);

// Frequent calls, whose doors are compiled for speed.
template <Call call>
inline constexpr bool is_common = false;
#define CUVMM_COMMON(symbol, flavours) \
  template <>                          \
  inline constexpr bool is_common<Call::symbol> = true;
#include "hook/common_doors.def"
#undef CUVMM_COMMON

// The optional parts that each row has.
template <Call call>
inline constexpr bool has_body = false;
template <Call call>
inline constexpr bool is_scheduled = false;
template <Call call>
inline constexpr bool is_described = false;
#define CUVMM_BODY(symbol) \
  template <>              \
  inline constexpr bool has_body<Call::symbol> = true;
#define CUVMM_SCHEDULED(symbol) \
  template <>                   \
  inline constexpr bool is_scheduled<Call::symbol> = true;
#define CUVMM_DESCRIBED(symbol) \
  template <>                   \
  inline constexpr bool is_described<Call::symbol> = true;
#include "hook/row_parts.def"
#undef CUVMM_BODY
#undef CUVMM_SCHEDULED
#undef CUVMM_DESCRIBED

constexpr bool copies_or_sets(std::string_view name) {
  return name.starts_with("cuMemcpy") || name.starts_with("cuMemset");
}

// Whether the driver takes device memory in this call while other threads may be doing the same.
constexpr bool takes_memory(std::string_view name) {
  for (const char* const prefix : {"cuArrayCreate", "cuArray3DCreate", "cuMipmappedArrayCreate",
                                   "cuMemAlloc", "cuGraphAddMemAllocNode", "cuGraphAddNode"}) {
    if (name.starts_with(prefix)) return true;
  }
  return false;
}

// Whether a call's work goes to one stream: without a stream argument, a copy or set is work of the
// default stream; any other call may be work of several.
constexpr bool uses_one_stream(Call call, bool names_stream) {
  return names_stream || copies_or_sets(info(call).name);
}

// Notes which side of the legacy barrier was given work.
[[gnu::always_inline]] inline void note_side(Engine& engine, Flavour flavour, CUstream stream,
                                             bool one_stream) {
  LegacyBarrier& barrier = engine.legacy_barrier();
  if (!one_stream) return barrier.anything_submitted();
  const bool is_legacy =
      stream == CU_STREAM_LEGACY || (stream == nullptr && flavour == Flavour::Legacy);
  is_legacy ? barrier.legacy_submitted() : barrier.blocking_submitted();
}

// Call once the driver has accepted work. note_submitted() records everything about a call that is
// not common; common calls do most of that inline.
void note_device_time(Engine& engine, Call call, Flavour flavour, CUstream stream,
                      std::uint64_t kind);
void note_submitted(Engine& engine, Call call, Flavour flavour, CUstream stream, bool names_stream);

// A Gate::Pass that is not inlined, for calls that are not common.
class SmallGatePass {
 public:
  explicit SmallGatePass(Gate& gate);
  ~SmallGatePass();
  SmallGatePass(const SmallGatePass&) = delete;
  SmallGatePass& operator=(const SmallGatePass&) = delete;

 private:
  const Gate::Pass pass_;
};

// The real function behind a door, in the door's flavour. What every call goes through is inlined
// even where code is optimised for size. Otherwise the linker would keep one copy of each function
// for all callers, perhaps the small and slow one.
template <Call call>
class Forward {
 public:
  Forward(Engine& engine, Flavour flavour) : engine_(engine), flavour_(flavour) {}

  Engine& engine() const { return engine_; }
  Flavour flavour() const { return flavour_; }

  // Announces the call to watchers, calls the driver, then records that work was submitted. A
  // refused call counts too, since the driver may have started part of its work.
  template <class... Arguments>
  [[gnu::always_inline]] CUresult operator()(Arguments... arguments) const {
    if (const CUresult refused = announce(); refused != CUDA_SUCCESS) return refused;
    return announced(arguments...);
  }

  // If the result is not CUDA_SUCCESS, return it to the program instead of making the call.
  [[nodiscard]] CUresult announce() const { return announce_as(info(call).effect); }
  // For calls whose arguments give them more effects than their row states.
  [[nodiscard]] CUresult announce_as(Effect effect) const { return engine_.before({call, effect}); }

  // The steps after announce(), for a body that may answer without the driver.
  template <class... Arguments>
  [[gnu::always_inline]] CUresult announced(Arguments... arguments) const {
    if constexpr (copies || adds_copies(info(call).name)) {
      if (copies_need_care(engine_)) [[unlikely]]
        return copied_with_care(arguments...);
    }
    return with_retry(arguments...);
  }

  // The same without a retry, for a body that makes room itself if the driver lacks memory.
  template <class... Arguments>
  CUresult announced_once(Arguments... arguments) const {
    static_assert(!copies && !adds_copies(info(call).name));
    const CUresult answer = through_the_gate(arguments...);
    if (answer != CUDA_SUCCESS) note_refusal(engine_, answer);
    return answer;
  }

  // Calls the driver and does nothing else.
  template <class... Arguments>
  [[gnu::always_inline]] CUresult unannounced(Arguments... arguments) const {
    const auto member = flavour_ == Flavour::Legacy ? Row<call>::legacy : Row<call>::per_thread;
    return (engine_.driver().*member)(arguments...);
  }

 private:
  static constexpr bool submits = has(info(call).effect, Effect::Submits);
  static constexpr bool copies = submits && copies_or_sets(info(call).name);

  template <class... Arguments>
  [[gnu::always_inline]] CUresult with_retry(Arguments... arguments) const {
    if constexpr (takes_memory(info(call).name)) {
      // Other threads may be faster each time. A counter in the other hooks, too, would make the
      // library larger by kilobytes.
      for (int attempts_left = 15;; --attempts_left) {
        const CUresult answer = through_the_gate(arguments...);
        const bool is_last = answer == CUDA_SUCCESS || attempts_left == 0;
        if (is_last || !recovers_from(answer, arguments...)) [[likely]]
          return answer;
      }
    }
    for (bool again = false;; again = true) {
      const CUresult answer = through_the_gate(arguments...);
      if (answer == CUDA_SUCCESS || again || !recovers_from(answer, arguments...)) [[likely]]
        return answer;
    }
  }

  template <class... Arguments>
  [[gnu::always_inline]] bool recovers_from(CUresult refusal, const Arguments&... arguments) const {
    if constexpr (names_stream<Arguments...>) {
      return recover_from(engine_, refusal, stream_among(arguments...));
    } else if constexpr (names<CUevent, Arguments...>) {
      return recover_from(engine_, refusal, first_among<CUevent>(arguments...));
    } else if constexpr (names<CUcontext, Arguments...>) {
      return recover_from(engine_, refusal, first_among<CUcontext>(arguments...));
    } else {
      return recover_from(engine_, refusal);
    }
  }

  // A copy or set, or a graph call that adds one.
  template <class... Arguments>
  [[gnu::noinline, gnu::cold]] CUresult copied_with_care(Arguments... arguments) const {
    const StreamName stream{.handle = stream_among(arguments...),
                            .null_is_per_thread = flavour_ == Flavour::PerThread};
    std::unique_ptr<NamedCopy> copy;
    const CUresult refused =
        begin_named_copy(copy, engine_, copy_traits(info(call).name), stream, arguments...);
    return refused == CUDA_SUCCESS ? copy->finish(with_retry(arguments...)) : refused;
  }

  template <class... Arguments>
  [[gnu::always_inline]] CUresult through_the_gate(Arguments... arguments) const {
    if constexpr (!gives_work(info(call).effect)) return unannounced(arguments...);
    if (flavour_ == Flavour::PerThread || (names_own_stream(arguments) || ...)) {
      engine_.per_thread_use().note();
      engine_.legacy_barrier().blocking_stream_exists();
    }
    const std::conditional_t<is_common<call>, Gate::Pass, SmallGatePass> pass{engine_.gate()};
    const CUresult answer = unannounced(arguments...);
    if constexpr (submits) {
      if constexpr (is_common<call>) {
        engine_.submission_epoch().leave();
        note_side_of_barrier(arguments...);
        if constexpr (is_device_work(call) || may_hold_stream(call)) {
          if (engine_.time_lease().counts()) [[unlikely]] {
            note_device_time(engine_, call, flavour_, stream_among(arguments...),
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

  // Calls of one kind are assumed to take equally long (TimeLease): launches of one function or
  // graph in one shape, and otherwise all calls of a row.
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
    if constexpr (!copies) (add(arguments), ...);
    return kind;
  }

  template <class Handle, class... Arguments>
  static constexpr bool names = (std::is_same_v<Arguments, Handle> || ...);
  template <class... Arguments>
  static constexpr bool names_stream =
      names<CUstream, Arguments...> || names<const CUlaunchConfig*, Arguments...>;
  template <class... Arguments>
  [[gnu::always_inline]] void note_side_of_barrier(const Arguments&... arguments) const {
    constexpr bool one_stream = uses_one_stream(call, names_stream<Arguments...>);
    note_side(engine_, flavour_, stream_among(arguments...), one_stream);
  }

  template <class... Arguments>
  [[gnu::always_inline]] static CUstream stream_among(const Arguments&... arguments) {
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

  template <class Handle, class First, class... Rest>
  [[gnu::always_inline]] static Handle first_among(const First& first, const Rest&... rest) {
    if constexpr (std::is_same_v<First, Handle>) {
      return first;
    } else {
      return first_among<Handle>(rest...);
    }
  }

  // Whether the argument names the calling thread's default stream by its handle.
  template <class Argument>
  [[gnu::always_inline]] static bool names_own_stream(const Argument& argument) {
    if constexpr (std::is_same_v<Argument, CUstream>) return argument == CU_STREAM_PER_THREAD;
    if constexpr (std::is_same_v<Argument, CUDA_LAUNCH_PARAMS*>) return true;  // one of several may
    if constexpr (std::is_same_v<Argument, const CUlaunchConfig*>) {
      return argument != nullptr && argument->hStream == CU_STREAM_PER_THREAD;
    }
    return false;
  }

  Engine& engine_;
  Flavour flavour_;
};

// The type of a row's body: it takes its Forward, then the row's own arguments.
template <Call call, class Function>
struct BodyOf;
template <Call call, class... Arguments>
struct BodyOf<call, CUresult (*)(Arguments...)> {
  using Type = CUresult(const Forward<call>& forward, Arguments...);
};

// The bodies, declared for every row and defined for those that have one. A body whose arguments do
// not match its row fails to compile.
#define CUVMM_API(name, symbol, since, until, flavours, effect, need) \
  BodyOf<Call::symbol, PFN_##name##_v##since>::Type hook_##symbol;
#define CUVMM_API_OLD CUVMM_API
#include "driver/driver_api.def"
#undef CUVMM_API
#undef CUVMM_API_OLD

#define CUVMM_HOOK(symbol, ...)                                                               \
  static_assert(has_body<Call::symbol>, "list it in hook/row_parts.def");                     \
  CUresult hook_##symbol([[maybe_unused]] const Forward<Call::symbol>& forward __VA_OPT__(, ) \
                             __VA_ARGS__)

// The addresses that programs are given, per row.
struct DoorPair {
  void* legacy;
  void* per_thread;  // nullptr if the row has no such flavour
};
const std::array<DoorPair, call_count>& all_doors();

}  // namespace cuvmm::hook
