// SPDX-License-Identifier: Apache-2.0
#include "capi/answer.hpp"
#include "capi/engine_of_process.hpp"
#include "capi/table.hpp"

namespace cuvmm::capi {
namespace {

static_assert(static_cast<int>(Schedule::Off) == CUVMM_SCHEDULE_OFF &&
              static_cast<int>(Schedule::Fifo) == CUVMM_SCHEDULE_FIFO &&
              static_cast<int>(Schedule::RoundRobin) == CUVMM_SCHEDULE_ROUND_ROBIN &&
              static_cast<int>(Schedule::Priority) == CUVMM_SCHEDULE_PRIORITY &&
              static_cast<int>(Schedule::Fair) == CUVMM_SCHEDULE_FAIR);

constexpr int highest_priority = 100;
constexpr int largest_weight = 10'000;

// Only the preload library sees the program's calls, and only while it is on.
Result<Scheduling*> scheduling(const char* doing) {
  const auto refused = [&](const char* why) {
    return Error{.kind = ErrorKind::NotSupported, .doing = doing, .subject = why};
  };
  if (kind_of_this_engine != CUVMM_ENGINE_PRELOADED) {
    return refused("the program does not run under cuvmm; start it by `cuvmm run`");
  }
  Engine& running = *TRY(engine());
  if (!running.is_on()) return refused("VMM_MODE is OFF");
  return &running.scheduling();
}

// Clients can be created before a policy is set.
Result<Scheduler*> scheduler(const char* doing) {
  return &TRY(scheduling(doing))->ready_parts().scheduler;
}

Result<Client*> find(Scheduler& scheduler, cuvmm_client number, const char* doing) {
  if (Client* client = scheduler.client(number)) return client;
  return Error{.kind = ErrorKind::NotFound, .doing = doing, .subject = "there is no such client"};
}

Result<void> choose_policy(int32_t policy) {
  if (policy < CUVMM_SCHEDULE_OFF || policy > CUVMM_SCHEDULE_FAIR) {
    return Error::invalid("set policy", "there is no such policy");
  }
  TRY(scheduling("set policy"))->set_policy(static_cast<Schedule>(policy));
  return {};
}

Result<cuvmm_client> create(const char* name, int32_t priority, int32_t weight) {
  constexpr const char* doing = "create client";
  if (priority < -highest_priority || priority > highest_priority) {
    return Error::invalid(doing, "a priority is from -100 to 100");
  }
  if (weight < 1 || weight > largest_weight) {
    return Error::invalid(doing, "a weight is from 1 to 10000");
  }
  return TRY(scheduling(doing))->create_client(name, priority, weight).id();
}

Result<void> destroy(cuvmm_client number) {
  Scheduler& running = *TRY(scheduler("destroy client"));
  running.end_client(*TRY(find(running, number, "destroy client")));
  return {};
}

enum class Bind : std::uint8_t { ThisThread, Others };

Result<void> bind(cuvmm_client number, Bind which) {
  Scheduler& running = *TRY(scheduler("bind client"));
  Client* client = number == 0 ? nullptr : TRY(find(running, number, "bind client"));
  if (which == Bind::ThisThread) {
    running.bind_this_thread(client);
  } else {
    running.bind_all_threads(client);
  }
  return {};
}

Result<cuvmm_client_figures> figures_of(cuvmm_client number) {
  Scheduler& running = *TRY(scheduler("read client"));
  const ClientFigures seen = TRY(find(running, number, "read client"))->figures();
  cuvmm_client_figures figures{};
  figures.operations = seen.operations;
  figures.bytes = seen.bytes;
  figures.queued_ns = seen.queued_ns;
  figures.longest_queued_ns = seen.longest_queued_ns;
  figures.device_ns = seen.device_ns;
  figures.waits_for_room = seen.waits_for_room;
  return figures;
}

}  // namespace

cuvmm_status set_policy(int32_t policy, cuvmm_error* error) {
  // Start the engine outside the hook bypass, inside which none is created.
  if (const auto started = engine(); !started.ok()) return refuse(started.error(), error);
  const HookBypass bypass;
  return answer(choose_policy(policy), error);
}

cuvmm_status client_create(const char* name, int32_t priority, int32_t weight, cuvmm_client* client,
                           cuvmm_error* error) {
  if (name == nullptr || client == nullptr) return refuse_missing_pointer("create client", error);
  const auto created = create(name, priority, weight);
  if (!created.ok()) return refuse(created.error(), error);
  *client = *created;
  return CUVMM_OK;
}

cuvmm_status client_destroy(cuvmm_client client, cuvmm_error* error) {
  const HookBypass bypass;
  return answer(destroy(client), error);
}

cuvmm_status client_bind(cuvmm_client client, cuvmm_error* error) {
  if (client == 0) {
    return refuse(Error::invalid("bind client", "there is no client 0; unbind ends a binding"),
                  error);
  }
  return answer(bind(client, Bind::ThisThread), error);
}

cuvmm_status client_bind_others(cuvmm_client client, cuvmm_error* error) {
  return answer(bind(client, Bind::Others), error);
}

cuvmm_status client_unbind(cuvmm_error* error) {
  return answer(bind(0, Bind::ThisThread), error);
}

cuvmm_status client_get_figures(cuvmm_client client, cuvmm_client_figures* figures,
                                cuvmm_error* error) {
  if (figures == nullptr) return refuse_missing_pointer("read client", error);
  const auto seen = figures_of(client);
  if (!seen.ok()) return refuse(seen.error(), error);
  *figures = *seen;
  return CUVMM_OK;
}

}  // namespace cuvmm::capi
