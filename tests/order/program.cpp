// SPDX-License-Identifier: Apache-2.0
#include "order/program.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "order/report.hpp"

namespace cuvmm::order {
namespace {

std::string kind_and_number(const WorldStream& stream, std::size_t index) {
  switch (stream.kind) {
    case StreamKind::Legacy:
      return "legacy";
    case StreamKind::PerThread:
      return "thread " + std::to_string(stream.thread);
    case StreamKind::Blocking:
      return "blocking " + std::to_string(index);
    case StreamKind::NonBlocking:
      break;
  }
  return "non-blocking " + std::to_string(index);
}

std::string name_of(const World& world, std::size_t index) {
  const WorldStream& stream = world.streams()[index];
  std::string name = kind_and_number(stream, index);
  if (world.contexts().size() > 1) name += " of context " + std::to_string(stream.context);
  return name;
}

}  // namespace

Program::Program(World& world, std::uint64_t seed, const ProgramSettings& settings, Counts& counts)
    : world_(world), chance_(seed), settings_(settings), counts_(counts) {
  begin_trace(seed, settings.is_verbose);
  for (const WorldStream& stream : world_.streams()) {
    streams_.push_back(
        {model_.add_stream(stream.kind, stream.context), name_of(world_, streams_.size())});
  }
  events_.resize(world_.events().size());
  choose_pools();
  explain_hangs_by([this] { tell_closed_gates(); });
}

// Most pools may not make an allocation wait, so that the model knows the whole order.
void Program::choose_pools() {
  for (const WorldPool& pool : world_.pools()) {
    PoolRules rules;
    rules.follows_events = chance_.percent(70);
    rules.is_opportunistic = chance_.percent(70);
    rules.may_depend = chance_.percent(30);
    int follows = rules.follows_events ? 1 : 0;
    int opportunistic = rules.is_opportunistic ? 1 : 0;
    int may_depend = rules.may_depend ? 1 : 0;
    cuuint64_t threshold = chance_.percent(93) ? ~cuuint64_t{0} : 0;
    const auto set = [&](CUmemPool_attribute attribute, void* value) {
      must(cuMemPoolSetAttribute(pool.handle, attribute, value), "cuMemPoolSetAttribute");
    };
    set(CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES, &follows);
    set(CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, &opportunistic);
    set(CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, &may_depend);
    set(CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold);
    memory_.rules.push_back(rules);
  }
  constexpr std::size_t mib = std::size_t{1} << 20;
  large_share_ = chance_.percent(70) ? 1 : chance_.percent(80) ? 6 : 40;
  most_bytes_ = settings_.most_bytes / (chance_.percent(70) ? 4 : 1);
  most_bytes_ = std::max(most_bytes_, 4 * mib);
}

CUresult Program::call_on(int thread, std::size_t context, const char* what,
                          const std::function<CUresult()>& call) {
  const MustReturn watch{what};
  if (thread == WorldStream::any_thread) {
    thread = chance_.percent(97) ? 0 : chance_.between(1, World::host_threads);
  }
  CUresult answer = CUDA_SUCCESS;
  const auto call_in_context = [&] {
    const InContext current{world_.contexts()[context].handle};
    answer = call();
  };
  if (thread == 0) {
    call_in_context();
  } else {
    world_.thread(thread).run(call_in_context);
  }
  return answer;
}

CUresult Program::call(Stream stream, const char* what, const std::function<CUresult()>& call) {
  return call_on(world_.streams()[stream].thread, context_of(stream), what, call);
}

void Program::must_call(Stream stream, const char* what, const std::function<CUresult()>& call) {
  must(this->call(stream, what, call), what);
}

// The streams of other threads less often: handing a call to a thread takes time.
Program::Stream Program::any_stream() {
  for (;;) {
    const Stream stream = chance_.below(streams_.size());
    if (world_.streams()[stream].thread <= 0 || chance_.percent(30)) return stream;
  }
}

Program::Stream Program::any_created_stream() {
  for (;;) {
    const Stream stream = any_stream();
    if (world_.streams()[stream].is_created()) return stream;
  }
}

Program::Stream Program::any_stream_of(std::size_t context) {
  for (;;) {
    const Stream stream = any_stream();
    if (context_of(stream) == context) return stream;
  }
}

std::size_t Program::any_event_of(std::size_t context) {
  for (;;) {
    const std::size_t event = chance_.below(events_.size());
    if (world_.events()[event].context == context) return event;
  }
}

// Usually a pool of the stream's own device.
int Program::any_pool_for(Stream stream) {
  const auto& pools = world_.pools();
  for (;;) {
    const std::size_t pool = chance_.below(pools.size());
    const bool is_near = pools[pool].device == world_.device_of(world_.streams()[stream]);
    if (is_near || chance_.percent(15)) return static_cast<int>(pool);
  }
}

// All pools' memory is accessible to all devices. Blocking memory of another context can be copied.
bool Program::owns(Stream stream, const Block& block) const {
  return block.pool != Block::blocking || block.context == context_of(stream);
}

bool Program::hand_over(const Nodes& nodes, Stream to) {
  const Stream first = any_stream();
  for (std::size_t i = 0; i < streams_.size(); ++i) {
    const Stream from = (first + i) % streams_.size();
    if (!model_.is_behind(model_.next_on(in_model(from)), nodes)) continue;
    const std::size_t event = any_event_of(context_of(from));
    record(event, from);
    wait(to, event);
    return true;
  }
  return false;
}

Program::Stream Program::stream_behind(const Nodes& nodes, const Block* owner) {
  const bool is_bound = owner != nullptr && owner->pool == Block::blocking;
  const Stream wanted = is_bound ? any_stream_of(owner->context) : any_stream();
  if (model_.is_behind(model_.next_on(in_model(wanted)), nodes)) return wanted;
  if (chance_.percent(40)) return hand_over(nodes, wanted) ? wanted : no_stream;
  for (std::size_t i = 1; i < streams_.size(); ++i) {
    const Stream other = (wanted + i) % streams_.size();
    if (owner != nullptr && !owns(other, *owner)) continue;
    if (model_.is_behind(model_.next_on(in_model(other)), nodes)) return other;
  }
  return no_stream;
}

void Program::one_operation() {
  if (is_freeing_) return chance_.percent(80) ? open_gate() : query_stream();
  struct Choice {
    unsigned weight;
    void (Program::*operation)();
  };
  static constexpr Choice choices[] = {
      {16, &Program::allocate},           {7, &Program::tempt},
      {2, &Program::allocate_and_free},   {1, &Program::ask_for_too_much},
      {20, &Program::free_in_order},      {3, &Program::free_at_once},
      {3, &Program::allocate_blocking},   {1, &Program::free_blocking},
      {3, &Program::fill_again},          {4, &Program::check},
      {3, &Program::copy_between},        {3, &Program::grow},
      {1, &Program::launch_graph},        {9, &Program::close_gate},
      {6, &Program::open_gate},           {3, &Program::open_gate_by_a_stream},
      {4, &Program::record_event},        {2, &Program::record_anew},
      {5, &Program::wait_for_event},      {2, &Program::race_for_event},
      {4, &Program::query_stream},        {2, &Program::query_event},
      {3, &Program::synchronize_stream},  {1, &Program::synchronize_event},
      {1, &Program::synchronize_context}, {1, &Program::run_host_function},
      {1, &Program::replace_stream},
  };
  unsigned all = 0;
  for (const Choice& choice : choices) all += choice.weight;
  std::size_t chosen = chance_.below(all);
  for (const Choice& choice : choices) {
    if (chosen >= choice.weight) {
      chosen -= choice.weight;
      continue;
    }
    return (this->*choice.operation)();
  }
}

void Program::run() {
  // Operations that the end of the program may still submit.
  constexpr std::size_t spare = 400;
  const std::size_t operations = std::min(settings_.operations, most_nodes - spare);
  const std::size_t thread_ends_at = chance_.percent(10) ? chance_.below(operations) : operations;
  bool has_thread_ended = false;
  while (model_.size() < operations) {
    one_operation();
    look_after_waits();
    if (has_thread_ended || model_.size() < thread_ends_at) continue;
    has_thread_ended = true;
    replace_thread();
  }
  end();
  counts_.operations += model_.size();
}

void Program::end() {
  while (!closed_.empty()) {
    open_gate();
    look_after_waits();
    if (chance_.percent(20)) synchronize_stream();
  }
  look_after_waits();
  while (!memory_.live.empty()) {
    Block& block = memory_.live.front();
    const Stream stream = stream_behind(block.uses, &block);
    if (stream != no_stream && model_.size() + 16 < most_nodes) {
      free_on(block, stream);
      continue;
    }
    synchronize_everything();
    const MustReturn watch{"cuMemFree, with nothing blocked"};
    must(cuMemFree(block.address), "cuMemFree");
    memory_.remove(block);
  }
  synchronize_everything();
  compare_results();
  for (const Graph& graph : graphs_) {
    must(cuGraphExecDestroy(graph.exec), "cuGraphExecDestroy");
    must(cuGraphDestroy(graph.graph), "cuGraphDestroy");
  }
  std::memset(world_.gates(), 0, words_used_ * sizeof(std::uint32_t));
}

// For the report of a hang.
void Program::tell_closed_gates() const {
  for (std::size_t word = 0; word < words_used_; ++word) {
    if (world_.gates()[word] != 0) continue;
    print_lines_that_end_with("wait for word " + std::to_string(word));
    print_lines_that_end_with("write word " + std::to_string(word));
  }
}

void Program::compare_results() {
  for (const MemoryBooks::Expected& expected : memory_.expected) {
    for (std::size_t row = 0; row < expected.rows.size(); ++row) {
      for (std::size_t word = 0; word < row_words; ++word) {
        const std::uint32_t found = world_.results()[expected.first_word + row * row_words + word];
        if (found == expected.rows[row] || is_ignored("wrong contents")) continue;
        violation("wrong contents", "block %d, row %zu: expected %08x, found %08x", expected.block,
                  expected.first_row + row, expected.rows[row], found);
      }
    }
    counts_.compared_words += expected.rows.size() * row_words;
  }
}

}  // namespace cuvmm::order
