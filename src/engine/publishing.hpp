// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace cuvmm {

class Engine;

// Publishes the engine's memory counts to this user's processes (`cuvmm top`): a thread that
// sleeps until it is asked. Where it cannot be had, the program runs without, and the log says so.
void start_publishing(Engine& engine);

// In a forked child.
void forget_publishing();

}  // namespace cuvmm
