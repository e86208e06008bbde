// SPDX-License-Identifier: Apache-2.0
// One random, legal program: it runs the model beside the driver and compares the two at every
// step. Gates hold work back and open late, in a random order, so that memory that changes hands
// too early, or a wait that ends too early, shows at once.
//
// What it cannot see: overlapping calls of threads, except waits and races of events; the
// per-thread flavour of calls without a stream; kernels, whose pointers a driver cannot see; peer
// access to blocking memory, which other contexts only copy; sharing between processes; contexts
// that end; order errors that no gate exposes and no compared word reveals.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "order/chance.hpp"
#include "order/memory_books.hpp"
#include "order/model.hpp"
#include "order/waits.hpp"
#include "order/world.hpp"

namespace cuvmm::order {

struct ProgramSettings {
  std::size_t operations = 200;                    // submitted to streams, before the end
  std::size_t most_bytes = std::size_t{16} << 20;  // live at once
  bool is_verbose = false;
  // Streams and threads end only when they are idle: on a card their end may wait for blocked work.
  bool ends_idle_streams_only = false;
};

// Totals over all programs of the process.
struct Counts {
  std::uint64_t operations = 0;
  std::uint64_t granted = 0;
  std::uint64_t reused = 0;  // of memory freed in the same program
  std::uint64_t reused_while_blocked = 0;
  std::uint64_t refused = 0;  // out of memory
  std::uint64_t compared_words = 0;
  std::uint64_t waits = 0;  // that waited behind a closed gate
};

class Program {
 public:
  Program(World& world, std::uint64_t seed, const ProgramSettings& settings, Counts& counts);
  void run();

 private:
  using Stream = std::size_t;  // an index of streams_
  struct StreamState {
    Model::Stream in_model;
    std::string name;
  };
  struct Gate {
    Node node;
    std::size_t word;
  };
  struct Graph {
    CUgraph graph;
    CUgraphExec exec;
  };

  // program.cpp: the choice of operations, and the end.
  void choose_pools();
  void one_operation();
  void end();
  void compare_results();
  void tell_closed_gates() const;

  // program_order.cpp: gates, events, waits and queries.
  void close_gate();
  void open_gate();
  void open_gate_by_a_stream();
  void open_gate_on(Stream stream);
  void record_event();
  void record_anew();
  void wait_for_event();
  void race_for_event();
  void query_stream();
  void query_event();
  void ask_after(std::size_t event);
  // Usually an event that stands behind a blocked free.
  std::size_t any_tempting_event();
  void synchronize_stream();
  void synchronize_event();
  void synchronize_context();
  void run_host_function();
  Stream any_recording_stream(std::size_t event);
  bool may_end(Stream stream) const;
  void replace_stream();
  void replace_thread();

  // program_memory.cpp: allocations and frees.
  void allocate();
  void allocate_what_is_blocked(const Past* behind = nullptr);
  void tempt() { allocate_what_is_blocked(); }
  void allocate_and_free();
  void ask_for_too_much();
  void allocate_blocking();
  void free_in_order();
  void free_at_once();
  void free_blocking();

  // program_use.cpp: uses of memory.
  void fill_again();
  void check();
  void copy_between();
  void grow();
  void launch_graph();

  // Streams.
  Stream any_stream();
  Stream any_created_stream();
  Stream any_stream_of(std::size_t context);
  CUstream handle(Stream stream) const { return world_.streams()[stream].handle; }
  const char* name(Stream stream) const { return streams_[stream].name.c_str(); }
  Model::Stream in_model(Stream stream) const { return streams_[stream].in_model; }
  // Makes the call on a thread that may use the stream; the call must return.
  CUresult call(Stream stream, const char* what, const std::function<CUresult()>& call);
  CUresult call_on(int thread, std::size_t context, const char* what,
                   const std::function<CUresult()>& call);
  void must_call(Stream stream, const char* what, const std::function<CUresult()>& call);
  CUresult query(Stream stream);
  void record(std::size_t event, Stream stream);
  void wait(Stream stream, std::size_t event);
  // Makes `to` come after `nodes`. Returns false if no single stream comes after all of them.
  bool hand_over(const Nodes& nodes, Stream to);
  // A stream whose next work comes after these nodes, by a wait if necessary. With an owner: a
  // stream that may fill and free the block.
  Stream stream_behind(const Nodes& nodes, const Block* owner = nullptr);
  bool owns(Stream stream, const Block& block) const;
  // A copy that names these blocks.
  Node submit_copy(Stream stream, const Block& one, const Block& other);
  std::size_t context_of(Stream stream) const { return world_.streams()[stream].context; }
  std::size_t any_context() { return chance_.below(world_.contexts().size()); }
  std::size_t any_event_of(std::size_t context);
  static constexpr Stream no_stream = static_cast<Stream>(-1);

  // Memory.
  enum class Use : std::uint8_t { None, Filled };
  Block* allocate_on(Stream stream, std::size_t size, int from_pool, Use use = Use::Filled);
  Block* any_block();
  void fill(Block& block, Stream stream);
  MemoryBooks::Expected expect_rows(const Block& block);
  void check_part(Block& block, Stream stream);
  void copy(Block& from, Block& to, Stream stream);
  void free_on(Block& block, Stream stream);
  void free_now(Block& block, Stream stream, const Past& after);
  std::size_t any_size();
  int any_pool_for(Stream stream);
  void look_whether_it_waits(Stream stream);

  // Waits in other threads.
  void begin_wait(const char* what, std::function<Past()> covered, std::function<CUresult()> call,
                  std::function<void()> afterwards = {});
  bool can_begin_wait() const;
  void event_is_recorded_anew(std::size_t event);
  void wait_for(const char* what, int thread, std::size_t context, std::function<Past()> covered,
                std::function<CUresult()> call);
  void synchronize_everything();
  void look_after_waits();
  void compare_query(const char* what, CUresult answer, const Past& asked);
  CUdeviceptr word_on_device(std::size_t word) const {
    return world_.gates_on_device() + word * sizeof(std::uint32_t);
  }

  World& world_;
  Chance chance_;
  const ProgramSettings settings_;
  Counts& counts_;

  Model model_;
  std::vector<StreamState> streams_;  // as world_.streams()
  std::vector<EventRecord> events_;   // as world_.events()
  std::vector<Gate> closed_;          // to be opened by the host
  std::size_t words_used_ = 0;
  std::vector<Graph> graphs_;
  MemoryBooks memory_;
  unsigned large_share_ = 0;    // of allocations, in percent
  std::size_t most_bytes_ = 0;  // live at once
  std::vector<PendingWait> waits_;
  // Another thread waits in cuMemFree. On a card most calls that submit work then wait for it, so
  // the program submits none.
  bool is_freeing_ = false;
};

}  // namespace cuvmm::order
