// SPDX-License-Identifier: Apache-2.0
// Translates a trace's records into events of device memory: blocks beginning and ending, memory
// mapped and unmapped, and totals.
#pragma once

#include <optional>
#include <unordered_map>

#include "trace/context_ends.hpp"
#include "trace/program_chunk_walk.hpp"
#include "view/live_blocks.hpp"

namespace cuvmm::view {

struct Span {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  Size size() const { return end - begin; }
  bool operator==(const Span&) const = default;
};

struct MemorySums {
  Size requested = 0;  // of the live blocks
  Size granted = 0;
  Size physical = 0;  // device memory: chunks, and the driver's own allocations
  Size spilled = 0;   // belongs to the devices, but lies elsewhere
  bool operator==(const MemorySums&) const = default;
};

class MemorySink {
 public:
  virtual ~MemorySink() = default;
  virtual void began(const LiveBlock&) {}
  virtual void ended(const LiveBlock&, [[maybe_unused]] std::uint64_t time) {}
  // `chunk` is behind the whole span; 0 if there are several or it is unknown.
  virtual void mapped(const Span&, [[maybe_unused]] std::uint64_t chunk,
                      [[maybe_unused]] std::uint64_t time) {}
  virtual void unmapped(const Span&, [[maybe_unused]] std::uint64_t time) {}
  // Called after each change of the totals.
  virtual void counted(const MemorySums&, [[maybe_unused]] std::uint64_t time) {}
};

class MemoryWalk {
 public:
  // For one device, or for all together.
  explicit MemoryWalk(MemorySink& sink, std::optional<std::int16_t> device = {})
      : sink_(sink), device_(device), program_chunks_(device) {}

  void add(const TraceRecord& record);

  const LiveBlocks& live() const { return live_; }
  const MemorySums& sums() const { return sums_; }

 private:
  std::int16_t device_of(const TraceRecord& record) const;
  void add_from_elsewhere(const TraceRecord& record);
  void begin(const TraceRecord& record);
  void end(std::uint64_t address, std::uint64_t time);
  void end_context(std::uint32_t context, std::uint64_t time);
  void follow_program_chunks(const TraceRecord& record);
  void create(const TraceRecord& record);
  void release(const TraceRecord& record);
  void spill(const TraceRecord& record);
  void fetch(const TraceRecord& record);
  void add_physical(Size bytes) { sums_.physical += bytes; }
  void take_physical(Size bytes);

  MemorySink& sink_;
  const std::optional<std::int16_t> device_;
  LiveBlocks live_;
  std::unordered_map<std::uint64_t, Size> chunks_;  // cuvmm's own, by handle
  ProgramChunkWalk program_chunks_;
  ContextEnds context_ends_;
  MemorySums sums_;
};

}  // namespace cuvmm::view
