// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <unordered_map>

#include "base/size.hpp"
#include "trace/record.hpp"

namespace cuvmm {

// The device memory of the chunks that the program manages itself. Such a chunk takes memory until
// the program has released all its references and unmapped it everywhere; most programs release
// their only reference as soon as the chunk is mapped.
class ProgramChunkWalk {
 public:
  // For one device, or for all together.
  explicit ProgramChunkWalk(std::optional<std::int16_t> device) : device_(device) {}

  void add(const TraceRecord& record);

  Size bytes() const { return bytes_; }
  Size bytes_on(std::int16_t device) const;
  // The device of the chunk that a Map maps; nothing if the chunk is none of these.
  std::optional<std::int16_t> device_of(const TraceRecord& map) const;

 private:
  struct Chunk {
    Size size = 0;
    std::int16_t device = no_device;
    std::uint64_t references = 1;  // the program's
    std::uint64_t places = 0;      // where it is mapped
    bool is_counted = false;       // its memory is on the device, and part of bytes_
  };
  using ChunkHandle = std::shared_ptr<Chunk>;
  struct Place {
    Size size = 0;
    ChunkHandle chunk;
  };

  void create(const TraceRecord& record);
  void release(const TraceRecord& record);
  void retain(const TraceRecord& record);
  void map(const TraceRecord& record);
  void unmap(std::uint64_t address, Size size);
  ChunkHandle named(std::uint64_t name) const;
  ChunkHandle mapped_at(std::uint64_t address) const;
  void count(Chunk& chunk);
  void discount(Chunk& chunk);
  void drop_reference(Chunk& chunk);
  void end_if_unused(Chunk& chunk);

  const std::optional<std::int16_t> device_;
  std::unordered_map<std::uint64_t, ChunkHandle> names_;  // by the program's handle
  std::map<std::uint64_t, Place> places_;                 // by address
  Size bytes_ = 0;
  std::unordered_map<std::int16_t, Size> bytes_by_device_;
};

}  // namespace cuvmm
