// SPDX-License-Identifier: Apache-2.0
#include "alloc/held_back.hpp"

#include <dirent.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <shared_mutex>
#include <utility>

namespace cuvmm {
namespace {

// A device to which memory is registered by its address: who moves it there breaks the transfer,
// and nobody tells us of the registration.
bool reads_memory_by_address(const char* file) {
  return std::strncmp(file, "/dev/infiniband/uverbs", 22) == 0 ||
         std::strncmp(file, "/dev/nvidia-fs", 14) == 0;
}

bool holds_such_a_device_open() {
  DIR* files = ::opendir("/proc/self/fd");
  if (files == nullptr) return true;
  bool found = false;
  while (const dirent* entry = ::readdir(files)) {
    std::array<char, 64> file{};
    if (::readlinkat(::dirfd(files), entry->d_name, file.data(), file.size() - 1) <= 0) continue;
    found = found || reads_memory_by_address(file.data());
  }
  ::closedir(files);
  return found;
}

}  // namespace

bool Memory::may_move_live_memory() const {
  if (settings_.compact == Compact::Off || !around_.sees_everything()) return false;
  return !may_be_registered_by_address();
}

bool Memory::may_be_registered_by_address() const {
  return settings_.compact != Compact::On && holds_such_a_device_open();
}

std::vector<CUcontext> Memory::HeldBack::who_may_touch() const {
  std::vector<CUcontext> contexts{context_};
  const Reading reading{memory_.contexts_lock_};
  for (const PeerAccess& access : memory_.peer_access_) {
    if (access.of == context_) contexts.push_back(access.by);
  }
  return contexts;
}

bool Memory::HeldBack::begin(std::uint64_t until) {
  if (!memory_.may_move_live_memory()) return false;
  Gate& gate = memory_.around_.gate;
  if (!gate.close(until)) return false;
  const auto contexts = who_may_touch();
  const bool done = std::all_of(contexts.begin(), contexts.end(), [&](CUcontext context) {
    return memory_.around_.clock.wait_for_all(context, until);
  });
  if (done) {
    relaxed_.emplace(memory_.around_.driver);
    in_context_.emplace(memory_.around_.driver, context_);
    if (in_context_->ok()) return true;
    in_context_.reset();
    relaxed_.reset();
  }
  gate.open();
  return false;
}

CopyBy Memory::HeldBack::copy_by() {
  const Driver& driver = memory_.around_.driver;
  if (stream_ == nullptr &&
      driver.cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS) {
    stream_ = nullptr;  // the legacy stream does as well
  }
  CUdevice device = 0;
  driver.cuCtxGetDevice_v2000(&device);
  return {.stream = stream_, .device = device};
}

void Memory::HeldBack::end_stream() {
  const CUstream stream = std::exchange(stream_, nullptr);
  if (stream == nullptr) return;
  const InContext in_context{memory_.around_.driver, context_};
  if (in_context.ok()) memory_.around_.driver.cuStreamDestroy(stream);
}

void Memory::HeldBack::end() {
  in_context_.reset();
  relaxed_.reset();
  memory_.around_.gate.open();
}

}  // namespace cuvmm
