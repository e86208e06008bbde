// SPDX-License-Identifier: Apache-2.0
#include "sim/leaks.hpp"

#include <cstdarg>
#include <cstdio>

#include "base/size.hpp"
#include "sim/context.hpp"
#include "sim/event.hpp"
#include "sim/graph.hpp"
#include "sim/graph_memory.hpp"
#include "sim/library.hpp"
#include "sim/pool.hpp"
#include "sim/process.hpp"
#include "sim/settings.hpp"

namespace cuvmm::sim {
namespace {

class Lines {
 public:
  [[gnu::format(printf, 2, 3)]] void add(const char* format, ...) {
    char line[256];
    va_list arguments;
    va_start(arguments, format);
    std::vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    lines_.emplace_back(line);
  }
  template <class Objects>
  void add_each(const char* what, const Objects& objects) {
    for (const auto& object : objects) add("%s %p", what, static_cast<const void*>(object.get()));
  }
  std::vector<std::string> take() { return std::move(lines_); }

 private:
  std::vector<std::string> lines_;
};

const char* name_of(AllocationKind kind) {
  switch (kind) {
    case AllocationKind::Blocking:
      return "cuMemAlloc memory";
    case AllocationKind::Async:
      return "stream-ordered memory";
    case AllocationKind::Managed:
      return "managed memory";
    case AllocationKind::PinnedHost:
      return "pinned host memory";
    case AllocationKind::Registered:
      return "registered host memory";
    case AllocationKind::IpcImport:
      return "memory opened by cuIpcOpenMemHandle";
    default:
      return "memory";
  }
}

// Not the program's: memory of a graph that no launch has allocated, and a module's variables.
bool is_the_programs(const Allocation& allocation) {
  switch (allocation.kind) {
    case AllocationKind::Async: {
      if (!allocation.pool.expired()) return true;
      const auto of_graph = find_graph_memory(allocation.address);
      return of_graph != nullptr && is_allocated(*of_graph);
    }
    case AllocationKind::Blocking:
    case AllocationKind::Managed:
    case AllocationKind::PinnedHost:
    case AllocationKind::Registered:
    case AllocationKind::IpcImport:
      return true;
    default:
      return false;
  }
}

void add_memory(Lines& lines) {
  Process& process = Process::get();
  for (const auto& chunk : process.chunks.all()) {
    lines.add("chunk %p of %s: %d handles", static_cast<const void*>(chunk.get()),
              print_size(chunk->size()).c_str(), chunk->handles.load());
  }
  for (const Mapping& mapping : process.space().program_mappings()) {
    lines.add("mapping at 0x%llx of %s", mapping.address, print_size(mapping.size()).c_str());
  }
  for (const auto& [address, size] : process.space().program_reservations()) {
    lines.add("reservation at 0x%llx of %s", address, print_size(size).c_str());
  }
  for (const Allocation& allocation : process.space().allocations_if(is_the_programs)) {
    lines.add("%s at 0x%llx, %s", name_of(allocation.kind), allocation.address,
              print_size(allocation.size).c_str());
  }
  for (const auto& pool : process.pools.all()) {
    if (!pool->properties().is_default) lines.add("pool %p", static_cast<const void*>(pool.get()));
  }
}

void add_contexts(Lines& lines) {
  Process& process = Process::get();
  for (const auto& context : process.contexts.all()) {
    if (!context->is_primary()) lines.add("context %p", static_cast<const void*>(context.get()));
  }
  const Holding holding{process.lock};
  for (int ordinal = 0; ordinal < process.device_count(); ++ordinal) {
    for (int i = 0; i < process.device(ordinal)->primary.retains; ++i) {
      lines.add("primary context of device %d: retained, not released", ordinal);
    }
  }
}

[[gnu::destructor]] void report_at_exit() {
  const Process& process = Process::get();
  if (!process.started() || process.is_forked_child()) return;
  if (settings().leaks != SimLeaks::Report) return;
  for (const std::string& leak : leaks()) CUVMM_LOG(Warning, "leaked: %s", leak.c_str());
}

}  // namespace

std::vector<std::string> leaks() {
  Process& process = Process::get();
  Lines lines;
  add_memory(lines);
  add_contexts(lines);
  lines.add_each("stream", process.streams.all());
  lines.add_each("event", process.events.all());
  lines.add_each("library", libraries().all());
  for (const auto& module : process.modules.all()) {
    if (!module->is_of_library()) {
      lines.add("module %p", static_cast<const void*>(module.get()));
    }
  }
  lines.add_each("graph", process.graphs.all());
  lines.add_each("executable graph", process.graph_execs.all());
  return lines.take();
}

}  // namespace cuvmm::sim
