// SPDX-License-Identifier: Apache-2.0
// Trace events of clients and their operations.
#pragma once

#include "base/options.hpp"
#include "sched/client.hpp"
#include "sched/driver_side.hpp"
#include "trace/record_event.hpp"

namespace cuvmm {

void trace_client_began(const Client& client);
void trace_client_ended(const Client& client);
void trace_queued(const Lane& lane, const Operation& operation);
void trace_issued(const Lane& lane, const Operation& operation, int device, std::uint64_t queued);
void trace_completed(const Lane& lane, const Batch& batch, int device, std::uint64_t ran);
void trace_decided(const Lane& lane, const Operation& operation, int device, std::size_t waiting,
                   Schedule policy);

}  // namespace cuvmm
