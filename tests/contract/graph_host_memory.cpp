// SPDX-License-Identifier: Apache-2.0
// Copies of graphs from and to mapped memory of the host, and of a device.
#include <array>
#include <string>

#include "streams_support.hpp"

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

CUDA_MEMCPY3D copy_of(CUdeviceptr from, CUdeviceptr to) {
  CUDA_MEMCPY3D copy{};
  copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.srcDevice = from;
  copy.dstDevice = to;
  copy.WidthInBytes = chunk_size;
  copy.Height = copy.Depth = 1;
  return copy;
}

class GraphCopiesOfHostMemory : public DriverContract {
 protected:
  // Memory for both sides of a copy.
  struct Pair {
    explicit Pair(const Sides& sides)
        : from(given_mapped(1, chunk_size, properties(sides.first))),
          to(given_mapped(1, chunk_size, properties(sides.second))) {}
    CUDA_MEMCPY3D copy() const { return copy_of(from.address(), to.address()); }
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

}  // namespace
}  // namespace cuvmm::test
