// SPDX-License-Identifier: Apache-2.0
// Waits for submitted operations to be issued, and passes notifications on to Order.
#include <algorithm>
#include <chrono>
#include <mutex>

#include "sched/scheduler.hpp"

namespace cuvmm {

void Scheduler::settle_stream(const StreamState& stream) {
  wait_for(ask([&](const Order& order) { return order.of_stream(stream); }));
  wait_for_marks();
}

void Scheduler::wait_for_marks() {
  for (auto& issuer : issuers_) {
    if (Issuer* running = issuer.load(std::memory_order_acquire)) running->wait_for_marks();
  }
}

void Scheduler::settle_before_work_on(const StreamState& stream) {
  wait_for(ask([&](const Order& order) { return order.before_work_on(stream); }));
}

void Scheduler::settle_event(CUevent event, bool with_waits) {
  wait_for(ask([=](const Order& order) {
    return with_waits ? order.users_of(event) : order.of_event(event);
  }));
}

void Scheduler::settle_context(CUcontext context) {
  wait_for(ask([&](const Order& order) { return order.of_context(context); }));
  wait_for_marks();
}

void Scheduler::settle_graphs() {
  wait_for(ask([](const Order& order) { return order.of_graphs(); }));
}

void Scheduler::settle_launches_of(CUgraphExec graph) {
  wait_for(ask([&](const Order& order) { return order.launches_of(graph); }));
}

std::vector<QueuePosition> Scheduler::last_of_all_lanes() const {
  const Holding holding{lock_};
  return last_positions();
}

void Scheduler::settle_all() {
  wait_for(last_of_all_lanes());
}

bool Scheduler::settle_all(std::uint64_t until) {
  const auto positions = last_of_all_lanes();
  return std::all_of(positions.begin(), positions.end(), [&](const QueuePosition& position) {
    if (position.is_issued()) return true;
    const std::chrono::nanoseconds left{until - std::min(now_ns(), until)};
    return position.lane->wait_until_issued(position.number, std::chrono::ceil<Duration>(left));
  });
}

bool Scheduler::has_unissued(const StreamState& stream) const {
  return !ask([&](const Order& order) { return order.of_stream(stream); }).empty();
}

bool Scheduler::has_unissued(CUevent event) const {
  return !ask([&](const Order& order) { return order.of_event(event); }).empty();
}

CUcontext Scheduler::context_of(CUevent event) const {
  return ask([=](const Order& order) { return order.context_of(event); });
}

void Scheduler::event_began(CUevent event, CUcontext context) {
  const Holding holding{lock_};
  order_.event_began(event, context);
}

void Scheduler::event_recorded_directly(CUevent event, CUcontext context) {
  const Holding holding{lock_};
  order_.recorded_directly(event, context);
}

void Scheduler::event_is_shared(CUevent event) {
  const Holding holding{lock_};
  order_.event_is_shared(event);
}

void Scheduler::event_ended(CUevent event) {
  const Holding holding{lock_};
  order_.event_ended(event);
}

void Scheduler::stream_ended(const StreamState& stream) {
  const Holding holding{lock_};
  order_.stream_ended(stream);
}

void Scheduler::context_ends(CUcontext context) {
  settle_context(context);
  for (auto& issuer : issuers_) {
    if (Issuer* running = issuer.load(std::memory_order_acquire)) running->leave_context(context);
  }
}

void Scheduler::context_ended(CUcontext context) {
  {
    const Holding holding{lock_};
    order_.context_ended(context);
  }
  failures_.context_ended(context);
  for (auto& issuer : issuers_) {
    if (Issuer* running = issuer.load(std::memory_order_acquire)) running->context_ended(context);
  }
}

}  // namespace cuvmm
