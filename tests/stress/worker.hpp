// SPDX-License-Identifier: Apache-2.0
// One of the program's threads, doing anything that a correct program may do.
#pragma once

#include <mutex>
#include <random>
#include <shared_mutex>
#include <vector>

#include "oracle.hpp"

namespace cuvmm::test {

// State that the threads of a program share.
struct Common {
  Program& program;
  Oracle& oracle;
  Size card;                            // bytes of each device
  std::atomic<bool> has_faults{false};  // injected since the last pause
  FreeMode free = FreeMode::Exact;
  std::atomic<int> captures_live{0};
  std::atomic<std::uint64_t> captures_begun{0};
  // Streams of each device that every thread may submit work to.
  std::array<std::vector<CUstream>, Program::devices> streams;

  // Threads that capture share it: waiting for a context would break every capture in it.
  std::shared_mutex capturing;
  // A thread that captures globally holds it exclusively: meanwhile many calls of other threads are
  // refused.
  std::shared_mutex unsafe_calls;

  std::mutex mutex;                 // guards the members below
  std::vector<BlockRef> handed_on;  // which any thread may take
};

class Worker {
 public:
  Worker(Common& common, std::uint64_t seed, bool injects_faults);
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // Must always be called on the same thread.
  void run(std::uint64_t operations);
  // Frees everything that the thread holds; or only memory that the driver served because cuvmm did
  // not.
  void free_all();
  void free_those_of_the_driver();

 private:
  std::uint64_t below(std::uint64_t bound) { return random_() % bound; }
  bool one_in(std::uint64_t count) { return below(count) == 0; }
  Size some_size();
  int some_device() { return static_cast<int>(below(Program::devices)); }
  CUstream some_stream(int device);
  CUmemoryPool some_pool(int device);

  void step();
  void allocate();
  void allocate_blocking(int device);
  void allocate_ordered(int device, CUstream stream);
  void begin_life(const BlockRef& block, CUdeviceptr address, CUresult answer);
  void expect_refusal(const BlockRef& block, CUresult answer);
  void touch(const BlockRef& block, CUstream stream, std::vector<BlockRef> predecessors = {});
  void follow(const Block& block, CUstream stream);
  BlockRef take_any();
  void use_one();
  void free_one(const BlockRef& block);
  CUresult free_block(const BlockRef& block);
  void free_one_wrongly();
  void hand_on_or_take();
  void look_up();
  void pin_one();
  void wait_somewhere();
  void ask_for_room();
  void capture();
  void live_in_a_context();
  void live_in_a_pool();
  void replace_a_stream();
  void inject_a_fault();

  Common& common_;
  Program& program_;
  Oracle& oracle_;
  std::mt19937_64 random_;
  const bool injects_faults_;
  bool is_capturing_ = false;
  bool broke_its_capture_ = false;  // the driver refused a forbidden call
  std::vector<BlockRef> blocks_;
  std::array<CUevent, Program::devices> events_{};
  std::array<CUstream, Program::devices> own_streams_{};  // replaced now and then
  std::uint32_t stamps_ = 0;
};

}  // namespace cuvmm::test
