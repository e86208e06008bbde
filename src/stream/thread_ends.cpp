// SPDX-License-Identifier: Apache-2.0
#include "stream/thread_ends.hpp"

#include <array>
#include <atomic>

#include "base/thread_key.hpp"
#include "stream/per_thread_use.hpp"
#include "stream/stream_table.hpp"

namespace cuvmm {
namespace {

constinit std::array<std::atomic<StreamTable*>, 16> tables{};

// Runs when a thread ends, with that thread's number.
void thread_ends(void* thread) {
  for (auto& place : tables) {
    if (StreamTable* const table = place.load()) {
      table->thread_ended(reinterpret_cast<std::uintptr_t>(thread));
    }
  }
}

constinit ThreadKey end_of_thread{&thread_ends};

}  // namespace

void ThreadEnds::add(StreamTable& table) {
  for (auto& place : tables) {
    StreamTable* nobody = nullptr;
    if (place.compare_exchange_strong(nobody, &table)) return;
  }
}

void ThreadEnds::remove(StreamTable& table) {
  for (auto& place : tables) {
    StreamTable* expected = &table;
    place.compare_exchange_strong(expected, nullptr);
  }
}

void ThreadEnds::watch_this_thread() {
  end_of_thread.set(reinterpret_cast<void*>(PerThreadUse::this_thread()));
}

void ThreadEnds::forget_after_fork() {
  for (auto& place : tables) place.store(nullptr);
}

}  // namespace cuvmm
