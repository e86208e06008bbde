// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace cuvmm {

class Engine;

// From the first call on, publishes the engine's memory counts to this user's processes (`cuvmm
// top`), unless VMM_PUBLISH=off, through a thread that sleeps until it is queried. On failure, logs
// it, and the program runs without.
//
// Call once there is a context, and not before: a program that only queries the driver has no
// threads of the driver's, and may rely on having none (unshare(2), pthread_exit in main).
void ensure_published(Engine& engine);

// Call in a forked child.
void forget_publishing();

}  // namespace cuvmm
