// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "sim/context.hpp"

namespace cuvmm::sim {

// Lets its work finish, and takes from the process all that lived in it: streams, events, modules,
// blocking memory. Chunks stay: they belong to the program (measured).
void end_context(const std::shared_ptr<Context>& context);

// The program knows that work of this context is done: all of it, or up to these points. Pools give
// back what they need not keep.
void work_was_waited_for(Context& context);
void work_was_waited_for(Context& context, const std::vector<Point>& work);

// Makes blocking memory of `owner` visible to the devices that now may use it, and to no other.
void renew_peer_access(const std::shared_ptr<Context>& owner);

}  // namespace cuvmm::sim
