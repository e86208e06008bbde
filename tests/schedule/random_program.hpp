// SPDX-License-Identifier: Apache-2.0
// A random program of several clients, free of races by the rules of streams and events alone, and
// the final contents expected in its buffers.
#pragma once

#include <array>
#include <memory>
#include <random>

#include "schedule/schedule_world.hpp"

namespace cuvmm::test {

class RandomProgram {
 public:
  static constexpr std::size_t clients = 3;

  RandomProgram(const Kernels& kernels, std::uint64_t seed,
                const std::array<const GivenClient*, clients>& as)
      : kernels_(kernels), as_(as), random_(seed) {
    begin();
  }
  ~RandomProgram();
  RandomProgram(const RandomProgram&) = delete;
  RandomProgram& operator=(const RandomProgram&) = delete;

  // Runs this many steps of arbitrary clients.
  void run(int steps);
  // Compares the buffers with their expected contents.
  void check();

 private:
  static constexpr std::size_t words = 32;
  static constexpr std::size_t buffers = 5;
  static constexpr std::size_t events = 4;
  static constexpr std::size_t streams = 7;
  static constexpr std::size_t legacy = 5;
  static constexpr std::size_t per_thread = 6;
  using Words = std::array<std::uint32_t, words>;
  using Clock = std::array<int, streams>;  // how many steps of each stream are known to come before

  struct Use {
    std::size_t stream = 0;
    int step = 0;
  };

  void begin();
  std::size_t chance(std::size_t below) { return random_() % below; }
  bool waits_for_legacy(std::size_t stream) const {
    return stream == 2 || stream == 3 || stream == per_thread;
  }
  void join(Clock& clock, const Clock& other) const {
    for (std::size_t i = 0; i < streams; ++i) clock[i] = std::max(clock[i], other[i]);
  }

  int step(std::size_t stream);
  void order(std::size_t stream, std::size_t buffer);
  void host_waited_for(const Clock& clock);
  CUstream handle(std::size_t stream) const { return handles_[stream]; }
  CUdeviceptr address(std::size_t buffer) const { return memory_ + buffer * sizeof(Words); }

  void step_of_kernel(std::size_t stream);
  void step_of_copy(std::size_t stream);
  void step_from_host(std::size_t stream);
  void step_of_temporary(std::size_t stream);
  void step_of_value(std::size_t stream);
  void step_of_host_function(std::size_t stream);
  void step_of_waiting(std::size_t stream);
  void step_to_host();
  void step_of_legacy();

  const Kernels& kernels_;
  const std::array<const GivenClient*, clients>& as_;
  std::mt19937_64 random_;

  CUdeviceptr memory_ = 0;
  CUdeviceptr values_ = 0;
  std::uint32_t last_value_ = 0;
  std::array<CUstream, streams> handles_{};
  std::array<CUevent, events> events_{};
  std::array<Clock, streams> clocks_{};
  std::array<Use, buffers> last_use_{};
  std::array<Words, buffers> expected_{};
  std::atomic<int> called_{0};
  int calls_expected_ = 0;
};

}  // namespace cuvmm::test
