// SPDX-License-Identifier: Apache-2.0
// A process's memory and its IPC, as the hooks use them.
#pragma once

#include <array>

#include "share/legacy_ipc.hpp"
#include "share_world.hpp"
#include "support/memory.hpp"
#include "support/unseen_program.hpp"

namespace cuvmm::test {

inline constexpr unsigned lazily = CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS;

class IpcWorld {
 public:
  explicit IpcWorld(const Driver& on, const MemorySettings& settings = {},
                    Duration patience = std::chrono::seconds{20})
      : clock(on, unseen_program(captures, gate)),
        memory({on, clock, captures, gate, submission_epoch, [] { return true; }}, settings),
        chunks(on),
        ipc(
            on, memory, chunks, [](const std::function<void()>& work) { work(); }, patience) {}

  CUdeviceptr allocate(Size size) {
    CUdeviceptr address = 0;
    EXPECT_EQ(memory.allocate(&address, size), Answer{CUDA_SUCCESS});
    return address;
  }
  CUipcMemHandle handle_of(CUdeviceptr address) {
    CUipcMemHandle handle{};
    EXPECT_EQ(ipc.handle_of(address, &handle), Answer{CUDA_SUCCESS});
    return handle;
  }
  CUdeviceptr open(const CUipcMemHandle& handle) {
    CUdeviceptr address = 0;
    EXPECT_EQ(ipc.open(&address, handle, lazily), Answer{CUDA_SUCCESS});
    return address;
  }

  Captures captures;
  Gate gate;
  SubmissionEpoch submission_epoch;
  StreamClock clock;
  Memory memory;
  ProgramChunks chunks;
  LegacyIpc ipc;
};

// For the role `borrows`.
inline void lend_to(Child& child, IpcWorld& world, CUdeviceptr address, Size size,
                    std::uint32_t seed) {
  fill_pattern(address, size, seed);
  GIVEN(synchronize());
  child.link().send(world.handle_of(address));
  child.link().send(std::array<std::uint32_t, 2>{seed, seed + 1});
  child.link().send(size);
}

}  // namespace cuvmm::test
