// SPDX-License-Identifier: Apache-2.0
#include "sim/interpreter/thread_block.hpp"

#include <algorithm>
#include <ctime>

#include "sim/views.hpp"

namespace cuvmm::sim {
namespace {

unsigned warps_of(const GridLaunch& launch) {
  return (launch.threads() + warp_size - 1) / warp_size;
}

std::uint64_t now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 +
         static_cast<std::uint64_t>(now.tv_nsec);
}

constexpr std::size_t alignment = 64;
constexpr Size reserved_shared_bytes = KiB;

}  // namespace

ThreadBlock::ThreadBlock(const GridLaunch& launch)
    : launch_(launch),
      view_offset_(
          reinterpret_cast<std::uint64_t>(Views::at(launch.device, device_addresses_begin)) -
          device_addresses_begin) {
  const Program& program = *launch.program;
  const unsigned warps = warps_of(launch);
  registers_.resize(std::size_t{warps} * program.register_bytes + alignment);
  shared_.resize(program.shared_bytes + launch.dynamic_shared_bytes +
                 (program.uses_reserved_shared ? reserved_shared_bytes : 0));
  local_.resize(program.local_bytes * warps * warp_size);
  auto* begin = reinterpret_cast<std::byte*>(
      round_up(reinterpret_cast<std::uintptr_t>(registers_.data()), std::uintptr_t{alignment}));
  warps_.reserve(warps);
  for (unsigned i = 0; i < warps; ++i) {
    warps_.emplace_back(*this, begin + std::size_t{i} * program.register_bytes, i, 0);
    for (const UsedConstant& constant : program.constants) {
      if (constant.width == 0) {
        warps_[i].predicate(constant.at) = constant.bits != 0 ? all_lanes : 0;
        continue;
      }
      for (unsigned lane = 0; lane < warp_size; ++lane) {
        warps_[i].write(constant.at, constant.width, lane, constant.bits);
      }
    }
  }
}

void ThreadBlock::begin(std::uint64_t number) {
  number_ = number;
  place_ = {static_cast<unsigned>(number % launch_.grid[0]),
            static_cast<unsigned>(number / launch_.grid[0] % launch_.grid[1]),
            static_cast<unsigned>(number / launch_.grid[0] / launch_.grid[1])};
  barriers_ = {};
  for (auto& saved_by_thread : saved_) saved_by_thread.clear();
  living_ = launch_.threads();
  const Program& program = *launch_.program;
  auto* registers = reinterpret_cast<std::byte*>(
      round_up(reinterpret_cast<std::uintptr_t>(registers_.data()), std::uintptr_t{alignment}));
  const auto count = static_cast<unsigned>(warps_.size());
  warps_.clear();
  for (unsigned i = 0; i < count; ++i) {
    const unsigned lanes = std::min(warp_size, launch_.threads() - i * warp_size);
    const std::uint32_t mask = lanes == warp_size ? all_lanes : (1U << lanes) - 1;
    warps_.emplace_back(*this, registers + std::size_t{i} * program.register_bytes, i, mask);
    set_special_registers(warps_.back());
  }
}

std::array<unsigned, 3> ThreadBlock::thread_of(const Warp& warp, unsigned lane) const {
  const unsigned thread = warp.number() * warp_size + lane;
  return {thread % launch_.block[0], thread / launch_.block[0] % launch_.block[1],
          thread / launch_.block[0] / launch_.block[1]};
}

void ThreadBlock::set_special_registers(Warp& warp) {
  for (const UsedSpecialRegister& used : launch_.program->special_registers) {
    for (unsigned lane = 0; lane < warp_size; ++lane) {
      const auto thread = thread_of(warp, lane);
      const std::uint32_t bit = 1U << lane;
      std::uint64_t value = 0;
      switch (used.which) {
        case SpecialRegister::TidX:
          value = thread[0];
          break;
        case SpecialRegister::TidY:
          value = thread[1];
          break;
        case SpecialRegister::TidZ:
          value = thread[2];
          break;
        case SpecialRegister::NtidX:
          value = launch_.block[0];
          break;
        case SpecialRegister::NtidY:
          value = launch_.block[1];
          break;
        case SpecialRegister::NtidZ:
          value = launch_.block[2];
          break;
        case SpecialRegister::CtaidX:
          value = place_[0];
          break;
        case SpecialRegister::CtaidY:
          value = place_[1];
          break;
        case SpecialRegister::CtaidZ:
          value = place_[2];
          break;
        case SpecialRegister::NctaidX:
          value = launch_.grid[0];
          break;
        case SpecialRegister::NctaidY:
          value = launch_.grid[1];
          break;
        case SpecialRegister::NctaidZ:
          value = launch_.grid[2];
          break;
        case SpecialRegister::LaneId:
          value = lane;
          break;
        case SpecialRegister::WarpId:
          value = warp.number();
          break;
        case SpecialRegister::NwarpId:
          value = warps_of(launch_);
          break;
        case SpecialRegister::SmId:
          value = number_ % 132;
          break;
        case SpecialRegister::NsmId:
          value = 132;
          break;
        case SpecialRegister::Clock:
        case SpecialRegister::Clock64:
        case SpecialRegister::GlobalTimer:
          value = now_ns();
          break;
        case SpecialRegister::LaneMaskEq:
          value = bit;
          break;
        case SpecialRegister::LaneMaskLt:
          value = bit - 1;
          break;
        case SpecialRegister::LaneMaskLe:
          value = bit | (bit - 1);
          break;
        case SpecialRegister::LaneMaskGe:
          value = ~(bit - 1);
          break;
        case SpecialRegister::LaneMaskGt:
          value = ~(bit | (bit - 1));
          break;
        case SpecialRegister::DynamicSharedSize:
          value = launch_.dynamic_shared_bytes;
          break;
        case SpecialRegister::TotalSharedSize:
          value = program().shared_bytes + launch_.dynamic_shared_bytes;
          break;
        case SpecialRegister::ReservedSharedBegin:
          value = shared_.size() - reserved_shared_bytes;
          break;
        case SpecialRegister::ReservedSharedEnd:
          value = shared_.size();
          break;
        case SpecialRegister::ReservedSharedSize:
          value = reserved_shared_bytes;
          break;
        case SpecialRegister::ParameterBase:
          value = reinterpret_cast<std::uint64_t>(launch_.parameters);
          break;
        case SpecialRegister::DynamicSharedBase:
          value = program().shared_bytes;
          break;
        case SpecialRegister::GridWorkspaceLow:
          value = launch_.workspace & 0xffffffff;
          break;
        case SpecialRegister::GridWorkspaceHigh:
          value = launch_.workspace >> 32;
          break;
        case SpecialRegister::GridId:
        case SpecialRegister::GridId64:
        case SpecialRegister::Zero:
          break;
      }
      warp.write(used.at, used.width, lane, value);
    }
  }
}

ThreadBlock::State ThreadBlock::run(std::uint64_t instructions_each) {
  for (;;) {
    bool has_moved = false;
    bool is_out_of_time = false;
    for (Warp& warp : warps_) {
      if (!warp.can_run()) continue;
      has_moved = true;
      running_ = &warp;
      is_out_of_time |= warp.run(instructions_each) == Warp::State::OutOfTime;
    }
    if (living_ == 0) return State::Done;
    if (!has_moved) return State::Stuck;
    if (is_out_of_time) return State::OutOfTime;
  }
}

std::byte* ThreadBlock::shared(std::uint64_t offset, Size size) {
  if (offset > shared_.size() || size > shared_.size() - offset) return nullptr;
  return shared_.data() + offset;
}

std::byte* ThreadBlock::local_begin(const Warp& warp, unsigned lane) {
  return local_.data() + (std::size_t{warp.number()} * warp_size + lane) * program().local_bytes;
}

std::byte* ThreadBlock::local(const Warp& warp, unsigned lane, std::uint64_t offset, Size size) {
  const Size bytes = program().local_bytes;
  if (offset > bytes || size > bytes - offset) return nullptr;
  return local_begin(warp, lane) + offset;
}

std::vector<std::byte>& ThreadBlock::saved(const Warp& warp, unsigned lane) {
  if (saved_.empty()) saved_.resize(warps_.size() * warp_size);
  return saved_[std::size_t{warp.number()} * warp_size + lane];
}

void ThreadBlock::arrive(Warp& warp, unsigned barrier, unsigned threads, unsigned expected,
                         std::uint64_t contribution) {
  if (barrier >= barriers) {
    fail_kernel(warp, 0, CUDA_ERROR_LAUNCH_FAILED, "there is no such barrier", barrier);
  }
  BlockBarrier& here = barriers_[barrier];
  here.arrived += threads;
  here.expected = expected;
  here.result += contribution;
  open_if_complete(barrier);
}

void ThreadBlock::thread_ended(unsigned threads) {
  living_ -= threads;
  for (unsigned barrier = 0; barrier < barriers; ++barrier) open_if_complete(barrier);
}

void ThreadBlock::open_if_complete(unsigned barrier) {
  BlockBarrier& here = barriers_[barrier];
  if (here.arrived == 0) return;
  if (here.arrived < (here.expected == 0 ? living_ : here.expected)) return;
  const std::uint64_t result = here.result;
  here = {};
  for (Warp& warp : warps_) warp.release(barrier, result);
}

}  // namespace cuvmm::sim
