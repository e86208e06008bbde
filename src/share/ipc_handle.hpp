// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstring>
#include <string>

#include "driver/cuda.hpp"
#include "share/token.hpp"

namespace cuvmm::share {

// The contents of a 64-byte CUipcMemHandle for our memory: which process to ask, and how. The bytes
// are the same for every request, since programs compare them.
struct IpcHandle {
  static constexpr std::uint64_t ours = 0x3143'5049'6d6d'7675;  // "uvmmIPC1"

  std::uint64_t kind = 0;
  std::uint32_t process = 0;
  std::uint32_t reserved = 0;
  std::uint64_t instance = 0;  // distinguishes a forked child, and a reused pid
  std::uint64_t memory = 0;
  Token token;   // of the process
  Token secret;  // of the memory

  static IpcHandle read(const CUipcMemHandle& bytes) {
    IpcHandle handle;
    std::memcpy(static_cast<void*>(&handle), &bytes, sizeof handle);
    return handle;
  }
  bool is_ours() const { return kind == ours; }
  void write(CUipcMemHandle* bytes) const { std::memcpy(bytes, this, sizeof *this); }

  // The name of the process's socket in its folder.
  std::string socket_name() const {
    constexpr const char* digits = "0123456789abcdef";
    std::string name = ipc_prefix + std::to_string(process) + "-";
    for (int shift = 60; shift >= 0; shift -= 4) name += digits[instance >> shift & 15];
    return name;
  }
  static constexpr const char* ipc_prefix = "ipc-";
};
static_assert(sizeof(IpcHandle) == sizeof(CUipcMemHandle));

}  // namespace cuvmm::share
