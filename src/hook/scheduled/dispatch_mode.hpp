// SPDX-License-Identifier: Apache-2.0
// How a call is made while scheduling is on. There are three modes:
//
//   queued    the thread has a client: the call is recorded with its own copy of every argument,
//             and the rest of the hook (its body, the gate, the driver) runs on the issuing thread
//   in turn   the call returns an answer that only the driver has, waits by nature, or names a
//             stream that only this thread can name: it waits for its turn and runs on this thread
//   directly  no client, a captured stream, or an unknown handle: the call runs on this thread,
//             once everything ordered before it has been issued
//
// A CUVMM_SCHEDULE in this folder defines a row's mode. A row without one runs on its thread; if
// its effect could interact with queued work, everything queued is issued first.
#pragma once

#include "driver/current_context.hpp"
#include "hook/serve.hpp"

namespace cuvmm::hook {

// The rest of a row's hook: its body if it has one, otherwise the forward.
template <Call call>
struct Rest;
template <Call call>
struct ScheduledBody;
#define CUVMM_API(name, symbol, since, until, flavours, effect, need)  \
  BodyOf<Call::symbol, PFN_##name##_v##since>::Type schedule_##symbol; \
  template <>                                                          \
  struct Rest<Call::symbol> {                                          \
    static auto* body() { return &hook_##symbol; }                     \
  };                                                                   \
  template <>                                                          \
  struct ScheduledBody<Call::symbol> {                                 \
    static auto* own() { return &schedule_##symbol; }                  \
  };
#define CUVMM_API_OLD CUVMM_API
#include "driver/driver_api.def"
#undef CUVMM_API
#undef CUVMM_API_OLD

#define CUVMM_SCHEDULE(symbol, ...)                                                               \
  static_assert(is_scheduled<Call::symbol>, "list it in hook/row_parts.def");                     \
  CUresult schedule_##symbol([[maybe_unused]] const Forward<Call::symbol>& forward __VA_OPT__(, ) \
                                 __VA_ARGS__)

template <Call call, class... Arguments>
[[gnu::always_inline]] inline CUresult make_inline(const Forward<call>& forward,
                                                   Arguments... arguments) {
  if constexpr (has_body<call>) {
    return Rest<call>::body()(forward, arguments...);
  } else {
    return forward(arguments...);
  }
}
template <Call call, class... Arguments>
CUresult make_now(const Forward<call>& forward, Arguments... arguments) {
  return make_inline(forward, arguments...);
}

// The client, stream and context of a call, and the modes that are open to it.
struct DispatchMode {
  Scheduling::Parts* parts = nullptr;
  Client* client = nullptr;             // nullptr: directly
  const StreamState* stream = nullptr;  // nullptr: the driver will refuse the call
  CUcontext context = nullptr;
  bool is_open_to_queue = false;

  Scheduler& scheduler() const { return parts->scheduler; }
  Request request(Call call, std::uint64_t kind = 0, Size bytes = 0) const {
    return {.call = call, .context = context, .stream = stream, .kind = kind, .bytes = bytes};
  }
};
DispatchMode dispatch_mode(Engine& engine, StreamName name);
template <Call call>
DispatchMode dispatch_mode(const Forward<call>& forward, CUstream stream) {
  return dispatch_mode(forward.engine(), stream_name(forward, stream));
}

// What orders a call besides its stream: the event that it uses, whose new state later calls must
// see, or the graph instance that it launches.
struct OrderedBy {
  CUevent event = nullptr;
  EventUse use = EventUse::None;
  CUgraphExec graph = nullptr;
};
OrderedBy ordered_by(const Request& request);

// Issues everything that a call made directly comes after.
void settle_before(const DispatchMode& mode, const OrderedBy& by);
void was_made_directly(const DispatchMode& mode, const OrderedBy& by, CUresult answer);

template <Call call, class... Arguments>
CUresult make_directly(const DispatchMode& mode, const OrderedBy& by, const Forward<call>& forward,
                       Arguments... arguments) {
  settle_before(mode, by);
  const CUresult answer = make_now(forward, arguments...);
  was_made_directly(mode, by, answer);
  return answer;
}

// On the legacy stream, a copy or set is also work of another context whose memory it names
// (LegacyJoin): issues everything queued there first.
void settle_owners(Engine& engine, const DispatchMode& mode, CUdeviceptr one, CUdeviceptr other);
void settle_owners(Engine& engine, const DispatchMode& mode, const CUDA_MEMCPY2D* copy);
void settle_owners(Engine& engine, const DispatchMode& mode, const CUDA_MEMCPY3D* copy);
template <class To, class From, class... Others>
void settle_owners_of_call(Engine& engine, const DispatchMode& mode, To to, From from,
                           Others... others) {
  if constexpr (std::is_pointer_v<To> && !std::is_void_v<std::remove_pointer_t<To>>) {
    settle_owners(engine, mode, to);
  } else if constexpr (std::is_same_v<From, CUcontext>) {
    settle_owners_of_call(engine, mode, to, others...);
  } else if constexpr (std::is_same_v<From, CUdeviceptr> || std::is_pointer_v<From>) {
    settle_owners(engine, mode, CUdeviceptr(to), CUdeviceptr(from));
  } else {
    settle_owners(engine, mode, to, CUdeviceptr{0});
  }
}
template <class Copy>
void settle_owners_of_call(Engine& engine, const DispatchMode& mode, const Copy* copy) {
  settle_owners(engine, mode, copy);
}

template <Call call, class... Arguments>
CUresult make_in_turn(const DispatchMode& mode, Request request, const Forward<call>& forward,
                      Arguments... arguments) {
  if constexpr (copies_or_sets(info(call).name)) {
    settle_owners_of_call(forward.engine(), mode, arguments...);
  }
  if (mode.client == nullptr || mode.stream == nullptr) {
    return make_directly(mode, ordered_by(request), forward, arguments...);
  }
  const Scheduler::Turn turn{mode.scheduler(), *mode.client, request};
  if (!turn.was_taken()) {
    return make_directly(mode, ordered_by(request), forward, arguments...);
  }
  const CUresult answer = make_now(forward, arguments...);
  if (answer == CUDA_SUCCESS) turn.count_bytes();
  return answer;
}

// `later` has its own copies of everything that the call needs.
template <Call call, class Later, class... Arguments>
CUresult queue(const DispatchMode& mode, const Request& request, Later&& later,
               const Forward<call>& forward, Arguments... arguments) {
  if (!mode.is_open_to_queue) return make_in_turn(mode, request, forward, arguments...);
  const Taken taken = mode.scheduler().submit(*mode.client, request, std::forward<Later>(later));
  if (taken == Taken::Yes) return CUDA_SUCCESS;
  return make_directly(mode, ordered_by(request), forward, arguments...);
}

// The same for a call that needs nothing but its arguments.
template <Call call, class... Arguments>
CUresult queue_as_it_is(const DispatchMode& mode, const Request& request,
                        const Forward<call>& forward, Arguments... arguments) {
  return queue(
      mode, request, [forward, arguments...] { return make_now(forward, arguments...); }, forward,
      arguments...);
}

// Issues everything queued if a call of this row could interact with it.
void settle_for(Engine& engine, Call call);

// Makes the call in its mode if scheduling is on.
template <Call call, class... Arguments>
[[gnu::always_inline]] inline CUresult make_as_scheduled(const Forward<call>& forward,
                                                         Arguments... arguments) {
  Engine& engine = forward.engine();
  if (engine.scheduling().is_on()) [[unlikely]] {
    if constexpr (is_scheduled<call>) {
      return ScheduledBody<call>::own()(forward, arguments...);
    } else {
      settle_for(engine, call);
    }
  }
  return make_inline(forward, arguments...);
}

}  // namespace cuvmm::hook
