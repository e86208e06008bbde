// SPDX-License-Identifier: Apache-2.0
// The memory of one program: which blocks are live, behind which work others were freed, and which
// words must be read. Finds a block that is handed out too early.
//
// What it cannot see: reuse of physical memory at another address. Only the words reveal that.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <list>
#include <optional>
#include <vector>

#include "order/chance.hpp"
#include "order/model.hpp"

namespace cuvmm::order {

// Words are written and read in rows: the first two words of each row of a block.
inline constexpr std::size_t row_bytes = 4096;
inline constexpr std::size_t row_words = 2;

struct Block {
  static constexpr int blocking = -1;

  int number = 0;
  CUdeviceptr address = 0;
  std::size_t size = 0;
  int pool = blocking;      // an index of the world's pools
  std::size_t context = 0;  // the owning context, if it is blocking memory
  // Nodes that must be complete before the block is read, and before it is written or freed.
  Nodes writes;
  Nodes uses;
  Past granted_behind;  // what its allocation comes after
  // Rows up to `end` hold the pattern.
  struct Zone {
    std::size_t end;
    std::uint32_t pattern;
  };
  std::vector<Zone> zones;

  std::size_t rows() const { return size / row_bytes; }
  std::uint32_t pattern_of(std::size_t row) const;
  void used_by(Node node) { uses.set(static_cast<std::size_t>(node)); }
  void written_by(Node node) {
    writes.set(static_cast<std::size_t>(node));
    used_by(node);
  }
};

struct PoolRules {
  bool follows_events = true;
  bool is_opportunistic = true;
  bool may_depend = true;  // the pool may make an allocation wait for a free
};

class MemoryBooks {
 public:
  std::vector<PoolRules> rules;  // of each pool

  std::list<Block> live;
  std::size_t live_bytes() const { return live_bytes_; }

  struct Grant {
    Past also;  // what the allocation comes after in addition to the rules of streams
    bool is_reuse = false;
    bool is_behind_blocked_work = false;
  };
  // The driver has allocated this block. `before`: what the allocation comes after. Ends the
  // process if the block may not be allocated yet.
  Grant check_grant(const Model& model, const Block& block, Model::Stream stream,
                    const Past& before);
  Block& add(Block block);
  // Whether the pool may make a stream wait for frees on other streams.
  bool may_depend(int pool) const { return rules[static_cast<std::size_t>(pool)].may_depend; }
  Past possibly_behind_all_frees() const { return {{}, all_frees_.possibly}; }

  // Freed memory whose last work is blocked: its next user must come after that work.
  struct Temptation {
    std::size_t size;
    int pool;
  };
  // With a past: only memory whose last work is part of it.
  std::optional<Temptation> tempt(const Model& model, Chance& chance,
                                  const Past* behind = nullptr) const;

  // `after`: the work that the free comes after. The free itself does not count: whatever comes
  // after all of that work may have the memory too.
  static constexpr Model::Stream on_no_stream = -1;
  void freed(const Block& block, const Past& after, Model::Stream stream = on_no_stream);
  void remove(const Block& block);  // unconditionally

  // Words that a copy is going to write to the results.
  struct Expected {
    std::size_t first_word;  // of the results
    std::size_t first_row;   // of the block
    std::vector<std::uint32_t> rows;
    int block;
  };
  std::vector<Expected> expected;
  std::size_t result_words_used = 0;

 private:
  struct Freed {
    CUdeviceptr begin;
    CUdeviceptr end;
    int pool;
    int number;
    Past after;
    Model::Stream stream;  // the stream of the free
  };
  void check_reuse(const Model& model, const Block& block, Model::Stream stream,
                   const Freed& freed) const;
  std::vector<Freed> freed_;
  Past all_frees_;
  std::size_t live_bytes_ = 0;
  int last_number_ = 0;
};

}  // namespace cuvmm::order
