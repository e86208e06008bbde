// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "base/lock.hpp"
#include "sim/address_space.hpp"
#include "sim/device.hpp"
#include "sim/registry.hpp"

namespace cuvmm::sim {

class Context;
struct Stream;
struct Event;
struct Graph;
struct GraphExec;
class Module;
class Pool;
class SharedCard;

// The simulated driver in this process: created at the first call, never destroyed.
class Process {
 public:
  static Process& get();

  // cuInit. Reserves addresses and creates the devices, once.
  CUresult start();
  bool started() const { return started_.load(std::memory_order_acquire); }
  static void after_fork_in_child();
  // A forked child must not use anything that its parent had started. If the parent had not started
  // the driver, the child may do so itself.
  bool is_forked_child() const { return forked_.load(std::memory_order_relaxed); }

  int device_count() const { return static_cast<int>(devices_.size()); }
  // Returns nullptr if there is no such device.
  Device* device(int ordinal);
  Device* device_numbered(int number);  // on the machine

  // nullptr if the devices are not shared with other processes.
  SharedCard* card() const { return card_.get(); }
  // For calls that need no cuInit: joins the card first if the process has not started.
  SharedCard* card_before_start();

  AddressSpace& space() { return space_; }
  Backing& host_backing() { return host_backing_; }

  Registry<Context, CUcontext> contexts;
  Registry<Stream, CUstream> streams;
  Registry<Event, CUevent> events;
  Registry<Chunk, CUmemGenericAllocationHandle> chunks;
  Registry<Module, CUmodule> modules;
  Registry<Pool, CUmemoryPool> pools;
  Registry<Graph, CUgraph> graphs;
  Registry<GraphExec, CUgraphExec> graph_execs;

  // Guards primary contexts, the pools of devices, and start().
  Lock lock{LockOrder::SimProcess};

 private:
  Process();
  CUresult join_card();
  void begin_as_forked_child();
  std::atomic<bool> started_{false};
  std::atomic<bool> forked_{false};
  std::unique_ptr<SharedCard> card_;
  std::vector<std::unique_ptr<Device>> devices_;
  AddressSpace space_;
  Backing host_backing_;
};

inline AddressSpace& space() {
  return Process::get().space();
}

}  // namespace cuvmm::sim
