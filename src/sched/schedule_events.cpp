// SPDX-License-Identifier: Apache-2.0
#include "sched/schedule_events.hpp"

#include <algorithm>

namespace cuvmm {
namespace {

std::uint16_t number_of(const Client& client) {
  return static_cast<std::uint16_t>(std::min<ClientId>(client.id(), 0xFFFF));
}

TraceRecord of_operation(TraceEvent event, const Lane& lane, const Operation& operation) {
  const Request& request = operation.request;
  return {.event = event,
          .flags = trace_flag::scheduled,
          .device = static_cast<std::int16_t>(lane.device()),
          .call = static_cast<std::uint16_t>(request.call),
          .client = number_of(lane.client()),
          .address = operation.number,
          .size = request.bytes,
          .stream = reinterpret_cast<std::uint64_t>(
              request.stream != nullptr ? request.stream->handle : nullptr)};
}

}  // namespace

void trace_client_began(const Client& client) {
  CUVMM_TRACE(.event = TraceEvent::ClientCreate, .client = number_of(client),
              .size = static_cast<std::uint64_t>(client.weight()),
              .other = static_cast<std::uint64_t>(static_cast<std::int64_t>(client.priority())));
}

void trace_client_ended(const Client& client) {
  CUVMM_TRACE(.event = TraceEvent::ClientDestroy, .client = number_of(client));
}

void trace_queued(const Lane& lane, const Operation& operation) {
  TraceRecord record = of_operation(TraceEvent::Queued, lane, operation);
  record.other = lane.waiting();
  record_event(record);
}

void trace_issued(const Lane& lane, const Operation& operation, int, std::uint64_t queued) {
  TraceRecord record = of_operation(TraceEvent::Issued, lane, operation);
  record.other = queued;
  record_event(record);
}

// One event per batch, under the number of its last operation.
void trace_completed(const Lane& lane, const Batch& batch, int device, std::uint64_t ran) {
  CUVMM_TRACE(.event = TraceEvent::Completed, .flags = trace_flag::scheduled,
              .device = static_cast<std::int16_t>(device), .client = number_of(lane.client()),
              .detail = batch.operations, .address = lane.issued(),
              .stream = reinterpret_cast<std::uint64_t>(batch.handle), .other = ran);
}

void trace_decided(const Lane& lane, const Operation& operation, int device, std::size_t waiting,
                   Schedule policy) {
  CUVMM_TRACE(.event = TraceEvent::Decided, .device = static_cast<std::int16_t>(device),
              .client = number_of(lane.client()), .detail = static_cast<std::uint32_t>(policy),
              .address = operation.number, .size = waiting);
}

}  // namespace cuvmm
