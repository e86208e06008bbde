// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "sim/address_layout.hpp"
#include "sim/interpreter/program.hpp"
#include "sim/interpreter/warp.hpp"

namespace cuvmm::sim {

// A launch, the same for all its blocks.
struct GridLaunch {
  const Program* program = nullptr;
  std::array<unsigned, 3> grid{1, 1, 1};
  std::array<unsigned, 3> block{1, 1, 1};
  Size dynamic_shared_bytes = 0;
  int device = 0;
  const std::byte* parameters = nullptr;
  Size parameter_bytes = 0;
  std::uint64_t workspace = 0;  // of a cooperative launch: holds the barrier of the grid

  unsigned threads() const { return block[0] * block[1] * block[2]; }
  std::uint64_t blocks() const { return std::uint64_t{grid[0]} * grid[1] * grid[2]; }
};

// One block: its warps, their registers and local memory, and shared memory. Reused for one block
// of the grid after another.
class ThreadBlock {
 public:
  explicit ThreadBlock(const GridLaunch& launch);
  ThreadBlock(const ThreadBlock&) = delete;
  ThreadBlock& operator=(const ThreadBlock&) = delete;

  void begin(std::uint64_t number);
  enum class State : std::uint8_t { Done, OutOfTime, Stuck };
  // Stuck: threads wait at a barrier that the remaining ones never reach.
  State run(std::uint64_t instructions_each);

  const GridLaunch& launch() const { return launch_; }
  const Program& program() const { return *launch_.program; }
  std::array<unsigned, 3> place() const { return place_; }
  std::array<unsigned, 3> thread_of(const Warp& warp, unsigned lane) const;

  // Translates a device address to the address at which the host can access this device's memory.
  // Returns host addresses unchanged.
  std::byte* seen_at(std::uint64_t address) const {
    return reinterpret_cast<std::byte*>(is_device_address(address) ? address + view_offset_
                                                                   : address);
  }
  // Addresses of shared and local memory are offsets. Return nullptr if out of range.
  std::byte* shared(std::uint64_t offset, Size size);
  std::byte* local(const Warp& warp, unsigned lane, std::uint64_t offset, Size size);
  std::byte* shared_begin() { return shared_.data(); }
  Size shared_bytes() const { return shared_.size(); }
  std::byte* local_begin(const Warp& warp, unsigned lane);

  // Counts lanes of the warp as arrived at a barrier. Once `expected` lanes have arrived (0: all
  // that have not exited), the barrier releases them with the sum of their contributions.
  void arrive(Warp& warp, unsigned barrier, unsigned threads, unsigned expected,
              std::uint64_t contribution);
  void thread_ended(unsigned threads);

  // The saved frames of a thread's recursive calls, the innermost last.
  std::vector<std::byte>& saved(const Warp& warp, unsigned lane);

  Warp* running() { return running_; }

 private:
  struct BlockBarrier {
    unsigned arrived = 0;
    unsigned expected = 0;  // 0: all threads that have not exited
    std::uint64_t result = 0;
  };
  void open_if_complete(unsigned barrier);
  void set_special_registers(Warp& warp);

  static constexpr unsigned barriers = 16;
  const GridLaunch launch_;
  const std::uint64_t view_offset_;
  std::vector<std::byte> registers_;
  std::vector<std::byte> shared_;
  std::vector<std::byte> local_;
  std::vector<std::vector<std::byte>>
      saved_;  // one per thread, allocated at the first recursive call
  std::vector<Warp> warps_;
  std::array<BlockBarrier, barriers> barriers_{};
  std::array<unsigned, 3> place_{};
  std::uint64_t number_ = 0;
  unsigned living_ = 0;
  Warp* running_ = nullptr;
};

// Ends the kernel with this error and logs kernel, block, thread, instruction and address.
[[noreturn]] void fail_kernel(Warp& warp, unsigned lane, CUresult error, const char* what,
                              std::uint64_t address);

}  // namespace cuvmm::sim
