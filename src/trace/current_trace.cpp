// SPDX-License-Identifier: Apache-2.0
#include "trace/current_trace.hpp"

#include <atomic>

#include "trace/writer.hpp"

namespace cuvmm {
namespace {

constinit std::atomic<TraceWriter*> current{nullptr};

}  // namespace

TraceWriter* current_trace() {
  return current.load();
}

void set_current_trace(TraceWriter* writer) {
  current.store(writer);
}

void name_in_trace(TraceSubject subject, std::uint64_t number, std::string text) {
  TraceWriter* const writer = current_trace();
  if (writer == nullptr) return;
  TraceFacts facts;
  facts.names.push_back({.subject = subject, .number = number, .text = std::move(text)});
  writer->add(std::move(facts));
}

}  // namespace cuvmm
