// SPDX-License-Identifier: Apache-2.0
// A reference model of the order of CUDA's streams. It knows no memory and calls no driver.
//
// Every operation that a program submits is a node. A node comes after
//   - the node before it on its stream;
//   - on the legacy stream: the last node of every blocking and per-thread stream of its context;
//     on a blocking or per-thread stream: the last node of its context's legacy stream;
//   - the last record of an event, if the node is a wait for that event.
// A copy or set on the legacy stream that names another context's blocking memory is a node of that
// context's legacy stream as well.
// Nothing else orders: no value wait, priority, or blocking call of the host.
//
// Some programs do not determine an order: two threads race, or the driver may add a dependency or
// leave one out. A node therefore has two sets: what it surely and what it possibly comes after.
//
// A gate is a node that completes only when the program opens it, or when the node that opens it
// has run. A node behind a closed gate is blocked. Every other node eventually completes by itself.
//
// What the model cannot see: when work really runs, and other processes.
#pragma once

#include <bitset>
#include <cstddef>
#include <vector>

namespace cuvmm::order {

enum class StreamKind : unsigned char { NonBlocking, Blocking, PerThread, Legacy };

using Node = int;
inline constexpr Node no_node = -1;
inline constexpr std::size_t most_nodes = 1536;
using Nodes = std::bitset<most_nodes>;

// Nodes with everything that comes before them.
struct Past {
  Nodes surely;
  Nodes possibly;  // includes `surely`

  Past& operator|=(const Past& other) {
    surely |= other.surely;
    possibly |= other.possibly;
    return *this;
  }
};

// An event means its last record. After a race, or once a graph has recorded it, several records
// may be the last.
struct EventRecord {
  std::vector<Node> candidates;  // empty: never recorded
  bool may_be_none = false;
};

class Model {
 public:
  using Stream = int;

  Stream add_stream(StreamKind kind, std::size_t context = 0);
  // A destroyed stream's pending work goes on. Whether the legacy stream still waits for it is
  // open.
  void destroy_stream(Stream stream);
  StreamKind kind_of(Stream stream) const { return streams_[at(stream)].kind; }

  // What the next operation on the stream comes after.
  Past next_on(Stream stream) const;
  // Submits an operation. `also`: what it comes after in addition to the rules of streams.
  Node submit(Stream stream, const Past& also = {});
  // Submits a stream-ordered free.
  Node submit_free(Stream stream);
  // Frees, allocations and records: they touch no memory themselves and block nothing.
  const Nodes& marks() const { return marks_; }
  // Submits one operation to several legacy streams at once.
  Node submit_on_all(Stream legacy, const std::vector<Stream>& others);
  // Measured: an allocation of memory that no pending work has used may be no work of its stream,
  // so that the rule of the legacy stream does not apply to it.
  Node submit_allocation(Stream stream, const Past& also);
  // Measured: the event comes after the legacy stream's work, yet a query of the blocking stream
  // that it is recorded on may not.
  Node submit_record(Stream stream);
  // The driver may omit a wait for completed work.
  Node submit_wait(Stream stream, const EventRecord& record);
  // Host functions of different streams possibly run in the order of their submission.
  Node submit_host_function(Stream stream);
  static EventRecord either(const EventRecord& first, const EventRecord& second);
  Past past_of(const EventRecord& record) const;
  Past past_of(Node node) const;  // including the node itself
  std::size_t size() const { return nodes_.size(); }

  Node submit_gate(Stream stream);
  void open(Node gate);
  // The node opens the gate when it runs. Must not depend on it (depends_on).
  void opens(Node writer, Node gate);
  bool depends_on(const Past& past, Node gate) const;

  bool is_surely_blocked(const Past& past) const;
  bool is_possibly_blocked(const Past& past) const;

  // The work that a wait for the stream covers. The legacy stream stands for all blocking and
  // per-thread streams of its context, including those of threads that have ended.
  Past work_of(Stream stream) const;
  Past work_of_context(std::size_t context) const;
  Past work_of_all() const;

  // The program has learnt that all of this is complete.
  void learn_complete(const Past& past);
  // All of it is complete or surely comes before whatever comes after `past`.
  bool is_behind(const Past& past, const Nodes& nodes) const {
    return (nodes & ~(past.surely | complete_)).none();
  }
  bool is_complete(const Nodes& nodes) const { return (nodes & ~complete_).none(); }

 private:
  struct StreamState {
    StreamKind kind;
    std::size_t context;
    bool is_destroyed = false;
    Node last = no_node;
  };
  struct Gate {
    Node node;
    bool is_open = false;
    Node writer = no_node;
  };
  static std::size_t at(int index) { return static_cast<std::size_t>(index); }
  static bool is_ordered_with_legacy(StreamKind kind) {
    return kind == StreamKind::Blocking || kind == StreamKind::PerThread;
  }
  Node add(Stream stream, Past past);
  void add_last(Past& past, const StreamState& stream) const;
  Past legacy_rule(Stream stream) const;
  static Past only_possibly(Past past) {
    past.surely.reset();
    return past;
  }
  bool is_surely_closed(const Gate& gate) const;
  bool is_possibly_closed(const Gate& gate) const;

  std::vector<StreamState> streams_;
  std::vector<Past> nodes_;  // what comes before each node, excluding the node
  std::vector<Gate> gates_;
  Nodes host_functions_;  // and what they possibly come after
  Nodes complete_;
  Nodes marks_;
};

}  // namespace cuvmm::order
