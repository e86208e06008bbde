// SPDX-License-Identifier: Apache-2.0
// Copies of graphs from and to mapped memory of the host, and of a device.
#include <array>
#include <string>

#include "streams_support.hpp"
#include "support/child.hpp"
#include "support/kernels.hpp"
#include "support/memory.hpp"

namespace cuvmm::test {
namespace {

constexpr Size chunk_size = 2 * MiB;

enum class On { Device, Host };
using Sides = std::pair<On, On>;  // from, to
constexpr std::array<Sides, 4> all_sides{{{On::Device, On::Device},
                                          {On::Host, On::Device},
                                          {On::Device, On::Host},
                                          {On::Host, On::Host}}};

std::string name_of(const Sides& sides) {
  const auto letter = [](On on) { return on == On::Host ? "host" : "device"; };
  return std::string{letter(sides.first)} + " to " + letter(sides.second);
}

CUmemAllocationProp properties(On on) {
  if (on == On::Device) return chunk_properties();
  return chunk_properties(
      host_node_location(std::max(0, attribute(CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID))));
}

class GraphCopiesOfHostMemory : public DriverContract {
 protected:
  // Memory for both sides of a copy.
  struct Pair {
    explicit Pair(const Sides& sides)
        : from(given_mapped(1, chunk_size, properties(sides.first))),
          to(given_mapped(1, chunk_size, properties(sides.second))) {}
    CUDA_MEMCPY3D copy() const { return linear_copy(from.address(), to.address(), chunk_size); }
    GivenMapped from;
    GivenMapped to;
  };
  // A graph of one copy.
  struct CopyGraph {
    CopyGraph(const CUDA_MEMCPY3D& copy, CUcontext context) {
      GIVEN(driver().cuGraphAddMemcpyNode(&node, graph, nullptr, 0, &copy, context));
    }
    GivenGraph graph;
    CUgraphNode node = nullptr;
  };

  void expect_copies(const GivenExec& exec, CUdeviceptr from, CUdeviceptr to) {
    const GivenStream stream;
    fill_pattern(from, chunk_size, ++seed_);
    ASSERT_CUDA(synchronize());
    ASSERT_CUDA(exec.launch(stream));
    ASSERT_CUDA(driver().cuStreamSynchronize(stream));
    expect_pattern(to, chunk_size, seed_);
  }

 private:
  std::uint32_t seed_ = 0;
};

// Host and device memory are different kinds of copies to the driver, which an update cannot
// change.
TEST_F(GraphCopiesOfHostMemory, KeepTheirKindInAnUpdate) {
  NEEDS_ATTRIBUTE(CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
  for (const Sides& first : all_sides) {
    for (const Sides& second : all_sides) {
      SCOPED_TRACE(name_of(first) + ", then " + name_of(second));
      const Pair before{first};
      const Pair after{second};
      const CUDA_MEMCPY3D copy = after.copy();
      const CopyGraph graph{before.copy(), primary()};
      const GivenExec exec{graph.graph};
      const GivenExec other{graph.graph};
      const CopyGraph next{copy, primary()};
      CUgraphExecUpdateResultInfo outcome{};
      if (first == second) {
        EXPECT_CUDA(driver().cuGraphExecMemcpyNodeSetParams(exec, graph.node, &copy, primary()));
        EXPECT_CUDA(driver().cuGraphExecUpdate(other, next.graph, &outcome));
        expect_copies(exec, after.from.address(), after.to.address());
        expect_copies(other, after.from.address(), after.to.address());
      } else {
        EXPECT_ANSWER(CUDA_ERROR_INVALID_VALUE,
                      driver().cuGraphExecMemcpyNodeSetParams(exec, graph.node, &copy, primary()));
        EXPECT_ANSWER(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE,
                      driver().cuGraphExecUpdate(other, next.graph, &outcome));
        EXPECT_EQ(outcome.result, CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED);
        expect_copies(exec, before.from.address(), before.to.address());
      }
    }
  }
}

TEST_F(GraphCopiesOfHostMemory, AreOfAnotherKindIfAnyPartIsOnTheHost) {
  NEEDS_ATTRIBUTE(CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
  const Pair before{{On::Device, On::Device}};
  const CopyGraph graph{before.copy(), primary()};
  for (const Sides& parts : all_sides) {
    const GivenExec exec{graph.graph};
    SCOPED_TRACE(parts.first == On::Host ? "first on the host" : "first on the device");
    SCOPED_TRACE(parts.second == On::Host ? "second on the host" : "second on the device");
    auto range = given_reservation(2 * chunk_size);
    auto first = given_chunk(chunk_size, properties(parts.first));
    auto second = given_chunk(chunk_size, properties(parts.second));
    auto begin = given_mapping(range.address(), first);
    auto end = given_mapping(range.address() + chunk_size, second);
    ASSERT_CUDA(set_access(range.address(), range.size()));
    const CUDA_MEMCPY3D copy =
        linear_copy(range.address() + chunk_size / 2, before.to.address(), chunk_size);
    const bool is_all_on_device = parts == Sides{On::Device, On::Device};
    EXPECT_ANSWER(is_all_on_device ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE,
                  driver().cuGraphExecMemcpyNodeSetParams(exec, graph.node, &copy, primary()));
  }
}

// A side of a copy whose memory is exchanged: a chunk of the device and one of the host take turns
// at the same addresses.
class ExchangedMemory {
 public:
  explicit ExchangedMemory(On on) {
    GIVEN(driver().cuMemAddressReserve(&address_, chunk_size, 0, 0, 0));
    map(on);
  }
  ~ExchangedMemory() {
    unmap();
    driver().cuMemAddressFree(address_, chunk_size);
  }
  ExchangedMemory(const ExchangedMemory&) = delete;
  ExchangedMemory& operator=(const ExchangedMemory&) = delete;

  CUdeviceptr address() const { return address_; }
  void go(On on) {
    GIVEN(synchronize());
    unmap();
    map(on);
  }

 private:
  void map(On on) const {
    const GivenChunk chunk{chunk_size, properties(on)};
    GIVEN(driver().cuMemMap(address_, chunk_size, 0, chunk.handle(), 0));
    GIVEN(set_access(address_, chunk_size));
  }
  void unmap() const { driver().cuMemUnmap(address_, chunk_size); }

  CUdeviceptr address_ = 0;
};

// In a process of its own: where the driver copies on the host, it would touch the addresses
// itself.
CHILD_ROLE(exchanges_memory_under_an_instance) {
  GIVEN(driver().cuInit(0));
  PrimaryContext context;
  const auto before = link.receive<std::array<On, 2>>();
  const auto after = link.receive<std::array<On, 2>>();
  ExchangedMemory from{before[0]};
  ExchangedMemory to{before[1]};
  const GivenGraph graph;
  CUgraphNode node = nullptr;
  const CUDA_MEMCPY3D copy = linear_copy(from.address(), to.address(), chunk_size);
  GIVEN(driver().cuGraphAddMemcpyNode(&node, graph, nullptr, 0, &copy, context.get()));
  const GivenExec exec{graph};
  from.go(after[0]);
  to.go(after[1]);
  const GivenStream stream;
  fill_pattern(from.address(), chunk_size, 5);
  GIVEN(synchronize());
  GIVEN(exec.launch(stream));
  GIVEN(driver().cuStreamSynchronize(stream));
  expect_pattern(to.address(), chunk_size, 5);
}

TEST_F(GraphCopiesOfHostMemory, CopyWhatIsMappedAtTheSameAddressesLater) {
  NEEDS_ATTRIBUTE(CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
  for (const Sides& first : all_sides) {
    for (const Sides& second : all_sides) {
      SCOPED_TRACE(name_of(first) + ", then " + name_of(second));
      Child child{"exchanges_memory_under_an_instance"};
      child.link().send(std::array{first.first, first.second});
      child.link().send(std::array{second.first, second.second});
      EXPECT_EQ(child.wait(), 0);
    }
  }
}

enum class AddedBy { Call, Capture };

CUgraph graph_of_copy(AddedBy by, CUdeviceptr from, CUdeviceptr to, CUcontext context) {
  CUgraph graph = nullptr;
  if (by == AddedBy::Capture) {
    const GivenStream stream;
    GIVEN(driver().cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    GIVEN(driver().cuMemcpyDtoDAsync(to, from, chunk_size, stream));
    GIVEN(driver().cuStreamEndCapture(stream, &graph));
    return graph;
  }
  CUgraphNode node = nullptr;
  const CUDA_MEMCPY3D copy = linear_copy(from, to, chunk_size);
  GIVEN(driver().cuGraphCreate(&graph, 0));
  GIVEN(driver().cuGraphAddMemcpyNode(&node, graph, nullptr, 0, &copy, context));
  return graph;
}

CUgraphNode only_node(CUgraph graph) {
  CUgraphNode node = nullptr;
  std::size_t count = 1;
  GIVEN(driver().cuGraphGetNodes(graph, &node, &count));
  return node;
}

bool may_become_copy_of(CUgraph graph, AddedBy by, On kind, CUcontext context) {
  const ExchangedMemory from{On::Device};
  const ExchangedMemory to{kind};
  const GivenExec exec{graph};
  const CUgraph next = graph_of_copy(by, from.address(), to.address(), context);
  CUgraphExecUpdateResultInfo outcome{};
  const CUresult answer = driver().cuGraphExecUpdate(exec, next, &outcome);
  driver().cuGraphDestroy(next);
  EXPECT_TRUE(answer == CUDA_SUCCESS || answer == CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE) << answer;
  return answer == CUDA_SUCCESS;
}

// In a process of its own, like the one above.
CHILD_ROLE(exchanges_memory_of_an_added_copy) {
  GIVEN(driver().cuInit(0));
  const PrimaryContext context;
  for (const AddedBy by : {AddedBy::Call, AddedBy::Capture}) {
    for (const On added : {On::Device, On::Host}) {
      const On later = added == On::Device ? On::Host : On::Device;
      SCOPED_TRACE(by == AddedBy::Call ? "added by a call" : "added by a capture");
      SCOPED_TRACE(added == On::Device ? "on the device" : "on the host");
      const ExchangedMemory from{On::Device};
      ExchangedMemory to{added};
      const CUgraph graph = graph_of_copy(by, from.address(), to.address(), context.get());
      to.go(later);
      EXPECT_TRUE(may_become_copy_of(graph, by, added, context.get()));
      EXPECT_FALSE(may_become_copy_of(graph, by, later, context.get()));
      // Set again as it is, the copy becomes the other kind.
      CUDA_MEMCPY3D copy{};
      GIVEN(driver().cuGraphMemcpyNodeGetParams(only_node(graph), &copy));
      EXPECT_CUDA(driver().cuGraphMemcpyNodeSetParams(only_node(graph), &copy));
      EXPECT_FALSE(may_become_copy_of(graph, by, added, context.get()));
      EXPECT_TRUE(may_become_copy_of(graph, by, later, context.get()));
      {
        const GivenExec exec{graph};
        const GivenStream stream;
        fill_pattern(from.address(), chunk_size, 7);
        GIVEN(synchronize());
        EXPECT_CUDA(exec.launch(stream));
        EXPECT_CUDA(driver().cuStreamSynchronize(stream));
        expect_pattern(to.address(), chunk_size, 7);
      }
      driver().cuGraphDestroy(graph);
    }
  }
}

TEST_F(GraphCopiesOfHostMemory, AreOfTheKindThatTheirMemoryHadWhenTheyWereAdded) {
  NEEDS_ATTRIBUTE(CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
  Child child{"exchanges_memory_of_an_added_copy"};
  EXPECT_EQ(child.wait(), 0);
}

}  // namespace
}  // namespace cuvmm::test
