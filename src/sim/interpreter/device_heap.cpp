// SPDX-License-Identifier: Apache-2.0
#include "sim/interpreter/device_heap.hpp"

#include <memory>
#include <unordered_map>

#include "base/lock.hpp"
#include "base/made_once.hpp"

namespace cuvmm::sim {
namespace {

constexpr Size heap_bytes = 8 * MiB;

struct DeviceHeap {
  struct Block {
    std::unique_ptr<std::byte[]> bytes;
    Size size = 0;
  };
  Lock lock{LockOrder::SimDeviceHeap};  // guards the members below
  std::unordered_map<std::uint64_t, Block> blocks;
  Size taken = 0;
};

DeviceHeap& device_heap() {
  static constinit MadeOnce<DeviceHeap> heap;
  return heap.get();
}

}  // namespace

std::uint64_t take_from_device_heap(Size size) {
  DeviceHeap& heap = device_heap();
  const Holding holding{heap.lock};
  if (size == 0 || size > heap_bytes - heap.taken) return 0;
  auto bytes = std::make_unique<std::byte[]>(size);
  const auto address = reinterpret_cast<std::uint64_t>(bytes.get());
  heap.blocks[address] = {.bytes = std::move(bytes), .size = size};
  heap.taken += size;
  return address;
}

bool give_to_device_heap(std::uint64_t address) {
  DeviceHeap& heap = device_heap();
  const Holding holding{heap.lock};
  const auto found = heap.blocks.find(address);
  if (found == heap.blocks.end()) return false;
  heap.taken -= found->second.size;
  heap.blocks.erase(found);
  return true;
}

}  // namespace cuvmm::sim
