// SPDX-License-Identifier: Apache-2.0
#include "sim/interpreter/grid.hpp"

#include <algorithm>
#include <atomic>
#include <memory>
#include <thread>

#include "base/log.hpp"
#include "sim/guard.hpp"

namespace cuvmm::sim {
namespace {

constexpr std::uint64_t turn = 20'000;  // instructions per warp
// Below this many threads, another host thread costs more than it saves.
constexpr std::uint64_t threads_worth_helping = 8 * 1024;

// Why the kernel on this host thread failed; set right before Guard::abandon().
thread_local CUresult failure = CUDA_SUCCESS;

void report(Warp& warp, unsigned lane, const char* what, std::uint64_t address) {
  const ThreadBlock& block = warp.block();
  const auto place = block.place();
  const auto thread = block.thread_of(warp, lane);
  const std::string_view text = block.program().texts[warp.current().text];
  CUVMM_LOG(Warning, "kernel %s, block (%u, %u, %u), thread (%u, %u, %u): '%.*s' at 0x%llx: %s",
            block.program().name.c_str(), place[0], place[1], place[2], thread[0], thread[1],
            thread[2], static_cast<int>(text.size()), text.data(),
            static_cast<unsigned long long>(address), what);
}

class GridRun {
 public:
  GridRun(const GridLaunch& launch, bool together) : launch_(launch), together_(together) {
    if (together) launch_.workspace = reinterpret_cast<std::uint64_t>(&workspace_);
  }

  CUresult run() {
    const std::uint64_t blocks = launch_.blocks();
    const std::uint64_t cores = std::max(1U, std::thread::hardware_concurrency());
    std::uint64_t workers = std::min(cores, blocks);
    if (blocks * launch_.threads() < threads_worth_helping && !together_) workers = 1;
    std::vector<std::thread> others;
    for (std::uint64_t i = 1; i < workers; ++i) {
      others.emplace_back([this] { work(); });
    }
    work();
    for (std::thread& thread : others) thread.join();
    return answer_.load();
  }

 private:
  void work() {
    if (together_) {
      run_in_turns();
    } else {
      run_one_by_one();
    }
  }

  void run_one_by_one() {
    ThreadBlock block{launch_};
    for (;;) {
      const std::uint64_t number = next_.fetch_add(1);
      if (number >= launch_.blocks() || answer_.load() != CUDA_SUCCESS) return;
      block.begin(number);
      while (answer_.load() == CUDA_SUCCESS && step(block, turn * 1000)) {
      }
    }
  }

  void run_in_turns() {
    std::vector<std::unique_ptr<ThreadBlock>> blocks;
    for (std::uint64_t number = next_.fetch_add(1); number < launch_.blocks();
         number = next_.fetch_add(1)) {
      blocks.push_back(std::make_unique<ThreadBlock>(launch_));
      blocks.back()->begin(number);
      if (!step(*blocks.back(), turn)) blocks.pop_back();
    }
    while (!blocks.empty() && answer_.load() == CUDA_SUCCESS) {
      std::erase_if(blocks, [this](const auto& block) { return !step(*block, turn); });
    }
  }

  // Returns true if the block has more to run.
  bool step(ThreadBlock& block, std::uint64_t instructions) {
    failure = CUDA_SUCCESS;
    auto state = ThreadBlock::State::Done;
    if (Guard::run([&] { state = block.run(instructions); })) {
      if (state == ThreadBlock::State::Stuck) {
        report(*block.running(), 0, "threads wait at a barrier that the other threads never reach",
               0);
        fail(CUDA_ERROR_LAUNCH_FAILED);
      }
      return state == ThreadBlock::State::OutOfTime;
    }
    if (failure == CUDA_SUCCESS) {
      Warp& warp = *block.running();
      report(warp, warp.lane_now, "no memory, or none that this device may access",
             warp.address_now);
      failure = CUDA_ERROR_ILLEGAL_ADDRESS;
    }
    fail(failure);
    return false;
  }

  void fail(CUresult error) {
    CUresult none = CUDA_SUCCESS;
    answer_.compare_exchange_strong(none, error);
  }

  // Passed to cooperative groups through %envreg1 and %envreg2.
  struct Workspace {
    std::uint32_t size = sizeof(Workspace);
    std::uint32_t barrier = 0;
  };

  Workspace workspace_;
  GridLaunch launch_;
  const bool together_;
  std::atomic<std::uint64_t> next_{0};
  std::atomic<CUresult> answer_{CUDA_SUCCESS};
};

}  // namespace

void fail_kernel(Warp& warp, unsigned lane, CUresult error, const char* what,
                 std::uint64_t address) {
  report(warp, lane, what, address);
  failure = error;
  Guard::abandon();
}

CUresult run_grid(const GridLaunch& launch, bool together) {
  return GridRun{launch, together}.run();
}

}  // namespace cuvmm::sim
