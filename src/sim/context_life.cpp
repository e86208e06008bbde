// SPDX-License-Identifier: Apache-2.0
#include "sim/context_life.hpp"

#include <algorithm>

#include "sim/array.hpp"
#include "sim/blocking.hpp"
#include "sim/capture.hpp"
#include "sim/device.hpp"
#include "sim/event.hpp"
#include "sim/host_memory.hpp"
#include "sim/module.hpp"
#include "sim/pool.hpp"
#include "sim/process.hpp"
#include "sim/tables/context_storage.hpp"

namespace cuvmm::sim {
namespace {

bool belongs_to(const std::weak_ptr<Context>& owner, const std::shared_ptr<Context>& context) {
  return !owner.owner_before(context) && !context.owner_before(owner);
}

template <class Handles>
void remove_all_of(Handles& handles, const std::shared_ptr<Context>& context) {
  for (const auto& object : handles.all()) {
    if (belongs_to(object->context, context)) handles.remove(handles.handle_of(object.get()));
  }
}

std::vector<Allocation> blocking_allocations_of(const std::shared_ptr<Context>& context) {
  return Process::get().space().allocations_if([&](const Allocation& allocation) {
    return allocation.kind == AllocationKind::Blocking && belongs_to(allocation.context, context);
  });
}

}  // namespace

void end_context(const std::shared_ptr<Context>& context) {
  Process& process = Process::get();
  for (const auto& stream : context->streams()) leave_capture(*stream);  // or they could never end
  context->wait_for_all_work();
  end_stored(context->handle());
  for (const Allocation& allocation : blocking_allocations_of(context)) {
    if (process.space().take(allocation.address).has_value()) free_blocking_now(allocation);
  }
  free_host_memory_of(context);
  remove_arrays_of(context);
  process.contexts.remove(context->handle());  // later additions to it fail
  remove_all_of(process.streams, context);
  remove_all_of(process.events, context);
  remove_all_of(process.modules, context);
  context->forget_streams();
  for (const auto& other : process.contexts.all()) {
    other->disable_peer(context);
    if (context->has_peer(*other)) renew_peer_access(other);
  }
}

void note_synchronized(Context& context) {
  pools_synchronised(context.device());
}
void note_synchronized(Context& context, const std::vector<Point>& work) {
  pools_synchronised(context.device(), &work);
}

void renew_peer_access(const std::shared_ptr<Context>& owner) {
  Process& process = Process::get();
  const std::vector<int> accessors = owner->accessors();
  for (const Allocation& allocation : blocking_allocations_of(owner)) {
    const auto block = process.space().mapping_at(allocation.address);
    if (!block.has_value()) continue;
    for (int device = 0; device < process.device_count(); ++device) {
      const bool may = std::find(accessors.begin(), accessors.end(), device) != accessors.end();
      process.space().set_access(block->address, block->size(), device,
                                 may ? Access::ReadWrite : Access::None, Owner::Driver);
    }
  }
}

}  // namespace cuvmm::sim
