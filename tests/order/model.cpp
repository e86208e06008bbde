// SPDX-License-Identifier: Apache-2.0
#include "order/model.hpp"

#include <algorithm>

namespace cuvmm::order {

Model::Stream Model::add_stream(StreamKind kind, std::size_t context) {
  streams_.push_back({kind, context});
  return static_cast<Stream>(streams_.size()) - 1;
}

void Model::destroy_stream(Stream stream) {
  streams_[at(stream)].is_destroyed = true;
}

Past Model::past_of(Node node) const {
  Past past = nodes_[at(node)];
  past.surely.set(at(node));
  past.possibly.set(at(node));
  return past;
}

void Model::add_last(Past& past, const StreamState& stream) const {
  if (stream.last == no_node) return;
  const Past last = past_of(stream.last);
  past.possibly |= last.possibly;
  if (!stream.is_destroyed) past.surely |= last.surely;
}

Past Model::legacy_rule(Stream stream) const {
  const StreamKind kind = kind_of(stream);
  Past past;
  for (const StreamState& other : streams_) {
    if (other.context != streams_[at(stream)].context) continue;
    const bool comes_before = kind == StreamKind::Legacy ? is_ordered_with_legacy(other.kind)
                                                         : is_ordered_with_legacy(kind) &&
                                                               other.kind == StreamKind::Legacy;
    if (comes_before) add_last(past, other);
  }
  return past;
}

Past Model::next_on(Stream stream) const {
  Past past = legacy_rule(stream);
  add_last(past, streams_[at(stream)]);
  return past;
}

Node Model::add(Stream stream, Past past) {
  nodes_.push_back(past);
  return streams_[at(stream)].last = static_cast<Node>(nodes_.size()) - 1;
}

Node Model::submit(Stream stream, const Past& also) {
  Past past = next_on(stream);
  past |= also;
  return add(stream, past);
}

Node Model::submit_free(Stream stream) {
  const Node node = submit(stream);
  marks_.set(at(node));
  return node;
}

Node Model::submit_on_all(Stream legacy, const std::vector<Stream>& others) {
  Past past;
  for (const Stream other : others) past |= next_on(other);
  const Node node = submit(legacy, past);
  for (const Stream other : others) streams_[at(other)].last = node;
  return node;
}

Past Model::past_of(const EventRecord& record) const {
  Past past;
  bool is_first = true;
  for (const Node candidate : record.candidates) {
    const Past one = past_of(candidate);
    past.possibly |= one.possibly;
    past.surely = is_first ? one.surely : past.surely & one.surely;
    is_first = false;
  }
  if (record.may_be_none) past.surely.reset();
  return past;
}

EventRecord Model::either(const EventRecord& first, const EventRecord& second) {
  EventRecord both = first;
  both.candidates.insert(both.candidates.end(), second.candidates.begin(), second.candidates.end());
  both.may_be_none = first.may_be_none || second.may_be_none;
  return both;
}

Node Model::submit_allocation(Stream stream, const Past& also) {
  Past past = only_possibly(legacy_rule(stream));
  add_last(past, streams_[at(stream)]);
  past |= also;
  const Node node = add(stream, past);
  marks_.set(at(node));
  return node;
}

Node Model::submit_record(Stream stream) {
  const Node before = streams_[at(stream)].last;
  const Node record = submit(stream);
  marks_.set(at(record));
  if (!is_ordered_with_legacy(kind_of(stream))) return record;
  Past past = only_possibly(past_of(record));
  if (before != no_node) past |= past_of(before);
  marks_.set(at(add(stream, past)));
  return record;
}

Node Model::submit_wait(Stream stream, const EventRecord& record) {
  const Past awaited = past_of(record);
  const bool is_barrier = kind_of(stream) == StreamKind::Legacy && is_surely_blocked(awaited);
  Past past = is_barrier ? legacy_rule(stream) : only_possibly(legacy_rule(stream));
  add_last(past, streams_[at(stream)]);
  past |= awaited;
  return add(stream, past);
}

Node Model::submit_host_function(Stream stream) {
  const Node node = submit(stream, {{}, host_functions_});
  host_functions_ |= past_of(node).possibly;
  return node;
}

Node Model::submit_gate(Stream stream) {
  const Node node = submit(stream);
  gates_.push_back({node});
  return node;
}

void Model::open(Node node) {
  for (Gate& gate : gates_) {
    if (gate.node == node) gate.is_open = true;
  }
}

void Model::opens(Node writer, Node node) {
  for (Gate& gate : gates_) {
    if (gate.node == node) gate.writer = writer;
  }
}

bool Model::depends_on(const Past& past, Node node) const {
  if (past.possibly[at(node)]) return true;
  return std::any_of(gates_.begin(), gates_.end(), [&](const Gate& gate) {
    return past.possibly[at(gate.node)] && !gate.is_open && gate.writer != no_node &&
           depends_on(past_of(gate.writer), node);
  });
}

bool Model::is_surely_closed(const Gate& gate) const {
  if (gate.is_open || complete_[at(gate.node)]) return false;
  return gate.writer == no_node || is_surely_blocked(past_of(gate.writer));
}
bool Model::is_possibly_closed(const Gate& gate) const {
  if (gate.is_open || complete_[at(gate.node)]) return false;
  return gate.writer == no_node || is_possibly_blocked(past_of(gate.writer));
}

bool Model::is_surely_blocked(const Past& past) const {
  return std::any_of(gates_.begin(), gates_.end(), [&](const Gate& gate) {
    return past.surely[at(gate.node)] && is_surely_closed(gate);
  });
}
bool Model::is_possibly_blocked(const Past& past) const {
  return std::any_of(gates_.begin(), gates_.end(), [&](const Gate& gate) {
    return past.possibly[at(gate.node)] && is_possibly_closed(gate);
  });
}

Past Model::work_of(Stream stream) const {
  Past past;
  add_last(past, streams_[at(stream)]);
  if (kind_of(stream) == StreamKind::Legacy) past |= legacy_rule(stream);
  return past;
}

Past Model::work_of_context(std::size_t context) const {
  Past past;
  for (const StreamState& stream : streams_) {
    if (stream.context == context && stream.last != no_node) past |= past_of(stream.last);
  }
  return past;
}

Past Model::work_of_all() const {
  Past past;
  for (const StreamState& stream : streams_) {
    if (stream.last != no_node) past |= past_of(stream.last);
  }
  return past;
}

// Work that is complete cannot have been blocked by anything that it possibly came after.
void Model::learn_complete(const Past& past) {
  complete_ |= past.surely;
  for (std::size_t node = 0; node < nodes_.size(); ++node) {
    if (past.surely[node]) nodes_[node].possibly = nodes_[node].surely;
  }
}

}  // namespace cuvmm::order
