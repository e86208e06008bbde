// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace cuvmm {

class Engine;

// Publishes the engine's memory counts to this user's processes (`cuvmm top`) through a thread that
// sleeps until it is queried. On failure, logs it, and the program runs without.
void start_publishing(Engine& engine);

// Call in a forked child.
void forget_publishing();

}  // namespace cuvmm
