// SPDX-License-Identifier: Apache-2.0
// What a program does with its memory.
#include <algorithm>

#include "order/program.hpp"
#include "order/report.hpp"

namespace cuvmm::order {
namespace {

CUresult set_rows(const Block& block, std::uint32_t pattern, CUstream stream) {
  return cuMemsetD2D32Async(block.address, row_bytes, pattern, row_words, block.rows(), stream);
}

CUresult copy_rows(const Block& block, std::size_t first, std::size_t rows, std::uint32_t* to,
                   CUstream stream) {
  CUDA_MEMCPY2D copy{};
  copy.srcMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = block.address + first * row_bytes;
  copy.srcPitch = row_bytes;
  copy.dstMemoryType = CU_MEMORYTYPE_HOST;
  copy.dstHost = to;
  copy.dstPitch = row_words * sizeof *to;
  copy.WidthInBytes = copy.dstPitch;
  copy.Height = rows;
  return cuMemcpy2DAsync(&copy, stream);
}

}  // namespace

void Program::fill(Block& block, Stream stream) {
  const auto pattern = static_cast<std::uint32_t>(chance_.next());
  trace("%s: fill block %d with %08x", name(stream), block.number, pattern);
  must_call(stream, "cuMemsetD2D32Async", [&] { return set_rows(block, pattern, handle(stream)); });
  block.written_by(model_.submit(in_model(stream)));
  block.zones = {{block.rows(), pattern}};
}

void Program::fill_again() {
  Block* const block = any_block();
  if (block == nullptr) return;
  const Stream stream = stream_behind(block->uses, block);
  if (stream != no_stream) fill(*block, stream);
}

MemoryBooks::Expected Program::expect_rows(const Block& block) {
  constexpr std::size_t most_rows = 32;
  const std::size_t first = chance_.below(block.rows());
  const std::size_t rows = std::min(block.rows() - first, most_rows);
  MemoryBooks::Expected expected{memory_.result_words_used, first, {}, block.number};
  for (std::size_t row = first; row < first + rows; ++row) {
    expected.rows.push_back(block.pattern_of(row));
  }
  memory_.result_words_used += rows * row_words;
  return expected;
}

void Program::check_part(Block& block, Stream stream) {
  if (memory_.result_words_used + 2048 > World::result_words) return;
  MemoryBooks::Expected expected = expect_rows(block);
  trace("%s: check block %d, %zu rows from %zu", name(stream), block.number, expected.rows.size(),
        expected.first_row);
  must_call(stream, "cuMemcpy2DAsync", [&] {
    return copy_rows(block, expected.first_row, expected.rows.size(),
                     world_.results() + expected.first_word, handle(stream));
  });
  block.used_by(submit_copy(stream, block, block));
  memory_.expected.push_back(std::move(expected));
}

void Program::check() {
  Block* const block = any_block();
  if (block == nullptr) return;
  const Stream stream = stream_behind(block->writes);
  if (stream != no_stream) check_part(*block, stream);
}

Node Program::submit_copy(Stream stream, const Block& one, const Block& other) {
  std::vector<Model::Stream> owners;
  const bool is_legacy = model_.kind_of(in_model(stream)) == StreamKind::Legacy;
  for (Stream named = 0; is_legacy && named < streams_.size(); ++named) {
    if (model_.kind_of(in_model(named)) != StreamKind::Legacy) continue;
    for (const Block* block : {&one, &other}) {
      if (owns(stream, *block) || context_of(named) != block->context) continue;
      owners.push_back(in_model(named));
      break;
    }
  }
  return model_.submit_on_all(in_model(stream), owners);
}

void Program::copy(Block& from, Block& to, Stream stream) {
  const std::size_t rows = std::min(from.rows(), to.rows());
  trace("%s: copy block %d to block %d", name(stream), from.number, to.number);
  must_call(stream, "cuMemcpyDtoDAsync", [&] {
    return cuMemcpyDtoDAsync(to.address, from.address, rows * row_bytes, handle(stream));
  });
  const Node node = submit_copy(stream, from, to);
  from.used_by(node);
  to.written_by(node);

  std::vector<Block::Zone> zones;
  for (const Block::Zone& zone : from.zones) {
    zones.push_back({std::min(zone.end, rows), zone.pattern});
    if (zone.end >= rows) break;
  }
  for (const Block::Zone& zone : to.zones) {
    if (zone.end > rows) zones.push_back(zone);
  }
  to.zones = std::move(zones);
}

void Program::copy_between() {
  Block* const from = any_block();
  Block* const to = any_block();
  if (from == nullptr || from == to) return;
  const Stream stream = stream_behind(from->writes | to->uses);
  if (stream != no_stream) copy(*from, *to, stream);
}

// As a vector grows: allocate a larger block, copy, and free the old block.
void Program::grow() {
  Block* const old = any_block();
  if (old == nullptr || old->size > most_bytes_ / 4) return;
  const Stream stream = stream_behind(old->uses, old);
  if (stream == no_stream) return;
  Block* const larger =
      allocate_on(stream, old->size + old->size / 2 + row_bytes, any_pool_for(stream));
  if (larger == nullptr) return;
  copy(*old, *larger, stream);
  free_on(*old, stream);
}

// Captured work orders nothing. Its launch is one operation.
void Program::launch_graph() {
  if (!waits_.empty()) return;  // a wait for the context breaks captures
  Block* const block = any_block();
  if (block == nullptr || memory_.result_words_used + 2048 > World::result_words) return;
  const Stream stream = stream_behind(block->uses, block);
  // Its nodes are of the first context.
  if (stream == no_stream || context_of(stream) != 0) return;

  const auto pattern = static_cast<std::uint32_t>(chance_.next());
  const bool records = chance_.percent(40);
  const std::size_t tempting = any_tempting_event();
  const std::size_t event = world_.events()[tempting].context == 0 ? tempting : any_event_of(0);
  block->zones = {{block->rows(), pattern}};
  MemoryBooks::Expected expected = expect_rows(*block);
  Graph graph{};
  {
    const MustReturn watch{"a capture"};
    const CUstream captured = world_.capture_stream();
    must(cuStreamBeginCapture(captured, CU_STREAM_CAPTURE_MODE_RELAXED), "cuStreamBeginCapture");
    must(set_rows(*block, pattern, captured), "cuMemsetD2D32Async");
    must(copy_rows(*block, expected.first_row, expected.rows.size(),
                   world_.results() + expected.first_word, captured),
         "cuMemcpy2DAsync");
    if (records) {
      must(
          cuEventRecordWithFlags(world_.events()[event].handle, captured, CU_EVENT_RECORD_EXTERNAL),
          "cuEventRecordWithFlags");
    }
    must(cuStreamEndCapture(captured, &graph.graph), "cuStreamEndCapture");
    must(cuGraphInstantiate(&graph.exec, graph.graph, 0), "cuGraphInstantiate");
  }
  trace("%s: launch a graph that fills block %d with %08x and checks it%s", name(stream),
        block->number, pattern, records ? ", and records event" : "");
  must_call(stream, "cuGraphLaunch", [&] { return cuGraphLaunch(graph.exec, handle(stream)); });
  const Node node = model_.submit(in_model(stream));
  block->written_by(node);
  memory_.expected.push_back(std::move(expected));
  graphs_.push_back(graph);
  if (!records) return;
  trace("    event %zu", event);
  const Past before = model_.past_of(events_[event]);
  events_[event] = Model::either(events_[event], {{node}, true});
  event_is_recorded_anew(event);
  ask_after(event);
  allocate_what_is_blocked(&before);
}

}  // namespace cuvmm::order
