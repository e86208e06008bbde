// SPDX-License-Identifier: Apache-2.0
// The keys by which the node service finds out which processes share memory or events.
#pragma once

#include <cstring>
#include <span>

#include "node/message.hpp"
#include "share/ipc_handle.hpp"
#include "share/process.hpp"

namespace cuvmm::lease {

// Returns a digest of the handle. It need not hide the handle, since the service may know it.
inline node::ShareKey share_key_of(std::span<const std::byte> handle, std::uint64_t where = 0) {
  node::ShareKey key;
  for (std::size_t half = 0; half < 2; ++half) {
    std::uint64_t hash = 0xcbf29ce484222325 ^ where ^ (half * 0x9e3779b97f4a7c15);  // FNV-1a
    for (const std::byte byte : handle) {
      hash = (hash ^ std::to_integer<std::uint64_t>(byte)) * 0x100000001b3;
    }
    hash = (hash ^ hash >> 33) * 0xff51afd7ed558ccd;
    hash ^= hash >> 33;
    std::memcpy(key.data() + half * sizeof hash, &hash, sizeof hash);
  }
  return key;
}

// The driver may distinguish handles of different processes only by PID, and PIDs recur in other
// namespaces.
inline node::ShareKey share_key_of_drivers(std::span<const std::byte> handle) {
  return share_key_of(handle, share::namespace_of_processes());
}

// All memory of one process has one key.
inline node::ShareKey share_key_of(const CUipcMemHandle& bytes) {
  auto handle = share::IpcHandle::read(bytes);
  if (!handle.is_ours()) return share_key_of_drivers(std::as_bytes(std::span{&bytes, 1}));
  handle.memory = 0;
  handle.secret = {};
  return share_key_of(std::as_bytes(std::span{&handle, 1}));
}

inline node::ShareKey share_key_of(const CUipcEventHandle& handle) {
  return share_key_of_drivers(std::as_bytes(std::span{&handle, 1}));
}

// All memory that is granted through one socket has one key.
inline node::ShareKey share_key_of(const share::Token& token) {
  return share_key_of(std::as_bytes(std::span{&token, 1}));
}

}  // namespace cuvmm::lease
