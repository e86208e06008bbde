// SPDX-License-Identifier: Apache-2.0
// With VMM_SPILL, memory that calls name moves to the device, and memory that no call has named for
// a long time moves out.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "alloc/last_uses.hpp"
#include "engine/control.hpp"
#include "hook_sim/doors.hpp"
#include "hook_sim/simulated.hpp"
#include "hook_sim/told.hpp"
#include "support/kernels.hpp"
#include "support/memory.hpp"

namespace cuvmm::test {
namespace {

// Leaves a quarter of the device free to work with.
constexpr Size block = 192 * MiB;

class PlacedByUse : public ::testing::Test {
 protected:
  void SetUp() override {
    const char* const spill = std::getenv("VMM_SPILL");
    if (spill == nullptr || std::string{spill} == "off") GTEST_SKIP() << "nothing is spilled";
    if (std::getenv("VMM_MODE") != std::string{"vmm"}) GTEST_SKIP() << "nothing is served";
    open_driver();
    through_door<Call::cuInit>(0u);
    ASSERT_EQ(through_door<Call::cuDevicePrimaryCtxRetain>(&context_, 0), CUDA_SUCCESS);
    ASSERT_EQ(through_door<Call::cuCtxSetCurrent>(context_), CUDA_SUCCESS);
    kernels_.emplace();
  }

  static CUdeviceptr given(std::uint32_t word, Size size = block) {
    CUdeviceptr address = 0;
    EXPECT_EQ(through_door<Call::cuMemAlloc_v2>(&address, size), CUDA_SUCCESS);
    EXPECT_EQ(through_door<Call::cuMemsetD32_v2>(address, word, size / 4), CUDA_SUCCESS);
    return address;
  }
  static Size bytes_near(CUdeviceptr address, Size size = block) {
    Size near = 0;
    for (const HeldChunk& one : Engine::get()->serving()->memory.holdings().chunks(0)) {
      const bool is_ours = one.address >= address && one.address < address + size;
      if (is_ours && residency(one.where, 0) == Residency::Near) near += one.size;
    }
    return near;
  }
  static void expect_word(CUdeviceptr address, std::uint32_t word) {
    for (const Size at : {Size{0}, block / 2, block - 4}) {
      std::uint32_t there = 0;
      EXPECT_EQ(through_door<Call::cuMemcpyDtoH_v2>(&there, address + at, sizeof there),
                CUDA_SUCCESS);
      EXPECT_EQ(there, word);
    }
  }

  // Of two blocks one lies far. Uses that one, and expects the two to change places.
  void expect_to_come_in(const std::function<void(CUdeviceptr)>& use) {
    const CUdeviceptr first = given(1);
    const CUdeviceptr second = given(2);
    const bool first_is_far = bytes_near(first) < bytes_near(second);
    const CUdeviceptr hot = first_is_far ? first : second;
    const CUdeviceptr cold = first_is_far ? second : first;
    const Size before = bytes_near(hot);
    ASSERT_LT(before, block / 2);
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds{240};
    while (bytes_near(hot) <= before && std::chrono::steady_clock::now() < until) {
      for (int times = 0; times < 16; ++times) use(hot);  // each use names only its first address
      std::this_thread::sleep_for(std::chrono::milliseconds{20});
    }
    EXPECT_GT(bytes_near(hot), before);
    expect_word(cold, first_is_far ? 2 : 1);
    expect_word(hot, first_is_far ? 1 : 2);
    EXPECT_EQ(through_door<Call::cuMemFree_v2>(first), CUDA_SUCCESS);
    EXPECT_EQ(through_door<Call::cuMemFree_v2>(second), CUDA_SUCCESS);
  }

  CUcontext context_ = nullptr;
  std::optional<Kernels> kernels_;
};

TEST_F(PlacedByUse, QueriesAnswerDeviceMemory) {
  const CUdeviceptr first = given(1);
  const CUdeviceptr second = given(2);
  ASSERT_LT(bytes_near(first) + bytes_near(second), 2 * block);
  for (const CUdeviceptr address : {first, second}) {
    expect_to_be_told_of_device_memory(address);
    EXPECT_EQ(through_door<Call::cuMemFree_v2>(address), CUDA_SUCCESS);
  }
}

TEST_F(PlacedByUse, MemoryNamedByCopiesMovesIn) {
  expect_to_come_in([](CUdeviceptr address) {
    std::uint32_t word = 0;
    EXPECT_EQ(through_door<Call::cuMemcpyDtoH_v2>(&word, address + 8, sizeof word), CUDA_SUCCESS);
  });
}

TEST_F(PlacedByUse, MemoryNamedByKernelsMovesIn) {
  const CUfunction kernel = kernels_->add_one;
  expect_to_come_in([&](CUdeviceptr address) {
    std::uint32_t none = 0;
    void* parameters[] = {&address, &none};
    EXPECT_EQ(through_door<Call::cuLaunchKernel>(kernel, 1u, 1u, 1u, 1u, 1u, 1u, 0u,
                                                 CUstream{nullptr}, static_cast<void**>(parameters),
                                                 static_cast<void**>(nullptr)),
              CUDA_SUCCESS);
  });
}

TEST_F(PlacedByUse, MemoryNamedInPackedParametersMovesIn) {
  const CUfunction kernel = kernels_->add_one;
  expect_to_come_in([&](CUdeviceptr address) {
    struct {
      CUdeviceptr address;
      std::uint32_t count;
      std::uint32_t padding;
    } bytes{address, 0, 0};
    std::size_t size = sizeof bytes;
    void* list[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &bytes, CU_LAUNCH_PARAM_BUFFER_SIZE, &size,
                    CU_LAUNCH_PARAM_END};
    EXPECT_EQ(
        through_door<Call::cuLaunchKernel>(kernel, 1u, 1u, 1u, 1u, 1u, 1u, 0u, CUstream{nullptr},
                                           static_cast<void**>(nullptr), static_cast<void**>(list)),
        CUDA_SUCCESS);
  });
}

// The free rest of a chunk that holds some of the program's memory is no room for other memory.
class SmallLimitPlacedByUse : public PlacedByUse {};

TEST_F(SmallLimitPlacedByUse, CopiedMemoryMovesInWhileOtherMemoryFillsChunksInPart) {
  constexpr Size size = 8 * MiB;
  std::vector<CUdeviceptr> all(12);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const CUresult given = i % 3 == 2 ? through_door<Call::cuMemAllocAsync>(&all[i], size, nullptr)
                                      : through_door<Call::cuMemAlloc_v2>(&all[i], size);
    ASSERT_EQ(given, CUDA_SUCCESS);
    ASSERT_EQ(through_door<Call::cuMemsetD32_v2>(all[i], 1, size / 4), CUDA_SUCCESS);
  }
  CUgraph graph = nullptr;
  CUgraphNode node = nullptr;
  CUgraphExec exec = nullptr;
  ASSERT_EQ(through_door<Call::cuGraphCreate>(&graph, 0u), CUDA_SUCCESS);
  const CUDA_MEMCPY3D first = linear_copy(all[0], all[1], size);
  ASSERT_EQ(through_door<Call::cuGraphAddMemcpyNode>(&node, graph, nullptr, 0, &first, context_),
            CUDA_SUCCESS);
  ASSERT_EQ(through_door<Call::cuGraphInstantiateWithFlags>(&exec, graph, 0), CUDA_SUCCESS);
  for (std::size_t i = 0; i < 60; ++i) {
    const CUDA_MEMCPY3D next =
        linear_copy(all[i * 5 % all.size()], all[(i * 5 + 7) % all.size()], size);
    EXPECT_EQ(through_door<Call::cuGraphExecMemcpyNodeSetParams>(exec, node, &next, context_),
              CUDA_SUCCESS)
        << "update " << i;
    EXPECT_EQ(through_door<Call::cuGraphLaunch>(exec, nullptr), CUDA_SUCCESS);
  }
  EXPECT_EQ(through_door<Call::cuCtxSynchronize>(), CUDA_SUCCESS);
  through_door<Call::cuGraphExecDestroy>(exec);
  through_door<Call::cuGraphDestroy>(graph);
  for (const CUdeviceptr one : all) EXPECT_EQ(through_door<Call::cuMemFree_v2>(one), CUDA_SUCCESS);
}

// To the driver, spilled memory is memory of the host, and a copy from there another kind of copy.
class GraphsPlacedByUse : public PlacedByUse {
 protected:
  static constexpr Size small = 32 * MiB;

  void SetUp() override {
    PlacedByUse::SetUp();
    if (IsSkipped()) return;
    // As by another process: the device then has less free memory than this one leaves it.
    if (std::getenv("VMM_LIMIT") == nullptr) {
      ASSERT_EQ(of_driver("cuMemAlloc_v2", &unseen_, std::size_t{128 * MiB}), CUDA_SUCCESS);
    }
    for (std::uint32_t word = 1; word <= 12; ++word) blocks_.push_back(given(word, small));
    ASSERT_EQ(through_door<Call::cuGraphCreate>(&graph_, 0u), CUDA_SUCCESS);
  }
  void TearDown() override {
    if (exec_ != nullptr) through_door<Call::cuGraphExecDestroy>(exec_);
    if (graph_ != nullptr) through_door<Call::cuGraphDestroy>(graph_);
    for (const CUdeviceptr one : blocks_) through_door<Call::cuMemFree_v2>(one);
    if (unseen_ != 0) of_driver("cuMemFree_v2", unseen_);
  }
  // A call past cuvmm.
  template <class... Arguments>
  static CUresult of_driver(const char* name, Arguments... arguments) {
    void* const function = ::dlsym(open_driver(), name);
    return reinterpret_cast<CUresult (*)(Arguments...)>(function)(arguments...);
  }
  static bool is_near(CUdeviceptr address) { return bytes_near(address, small) == small; }
  // The first block that lies there, except for those in `but`.
  CUdeviceptr block_that_is(bool near, std::initializer_list<CUdeviceptr> but = {}) const {
    for (const CUdeviceptr one : blocks_) {
      const bool is_excluded = std::find(but.begin(), but.end(), one) != but.end();
      if (one != 0 && is_near(one) == near && !is_excluded) return one;
    }
    ADD_FAILURE() << "there is none";
    return 0;
  }
  static CUDA_MEMCPY3D copy(CUdeviceptr from, CUdeviceptr to) {
    return linear_copy(from, to, small);
  }
  void add_copy(CUdeviceptr from, CUdeviceptr to) {
    const CUDA_MEMCPY3D wanted = copy(from, to);
    ASSERT_EQ(
        through_door<Call::cuGraphAddMemcpyNode>(&node_, graph_, nullptr, 0, &wanted, context_),
        CUDA_SUCCESS);
  }
  void instantiate() {
    ASSERT_EQ(through_door<Call::cuGraphInstantiateWithFlags>(&exec_, graph_, 0), CUDA_SUCCESS);
  }
  void expect_copied(CUdeviceptr from, CUdeviceptr to) const {
    ASSERT_EQ(through_door<Call::cuGraphLaunch>(exec_, nullptr), CUDA_SUCCESS);
    ASSERT_EQ(through_door<Call::cuCtxSynchronize>(), CUDA_SUCCESS);
    for (const Size at : {Size{0}, small - 4}) {
      std::uint32_t words[2] = {};
      through_door<Call::cuMemcpyDtoH_v2>(&words[0], from + at, sizeof words[0]);
      through_door<Call::cuMemcpyDtoH_v2>(&words[1], to + at, sizeof words[1]);
      EXPECT_EQ(words[0], words[1]);
      EXPECT_EQ(words[0], word_of(from));
    }
  }
  void use(CUdeviceptr block) const {
    through_door<Call::cuMemsetD32_v2>(block, word_of(block), std::size_t{1});
  }
  // Until later uses count as later. The engine's thread counts the moments, which takes it long on
  // a busy machine.
  static void rest() {
    const auto until = std::chrono::steady_clock::now() + std::chrono::seconds{60};
    const auto wait_until = [until](const auto& condition) {
      while (!condition() && std::chrono::steady_clock::now() < until) {
        std::this_thread::sleep_for(std::chrono::milliseconds{10});
      }
    };
    wait_until([] { return LastUses::watched() != nullptr; });
    const LastUses* const uses = LastUses::watched();
    ASSERT_NE(uses, nullptr) << "nobody notes uses";
    const LastUses::Moment began = uses->now();
    wait_until([uses, began] { return uses->now() >= began + 3; });
  }
  // Updates the instance to copies from another block.
  void expect_takes_device_memory(CUdeviceptr to, std::initializer_list<CUdeviceptr> but) {
    const CUdeviceptr from = block_that_is(true, but);
    const CUDA_MEMCPY3D wanted = copy(from, to);
    EXPECT_EQ(through_door<Call::cuGraphExecMemcpyNodeSetParams>(exec_, node_, &wanted, context_),
              CUDA_SUCCESS);
    expect_copied(from, to);
  }
  std::uint32_t word_of(CUdeviceptr block) const {
    return 1 + static_cast<std::uint32_t>(std::find(blocks_.begin(), blocks_.end(), block) -
                                          blocks_.begin());
  }

  CUdeviceptr unseen_ = 0;
  std::vector<CUdeviceptr> blocks_;
  CUgraph graph_ = nullptr;
  CUgraphNode node_ = nullptr;
  CUgraphExec exec_ = nullptr;
};

TEST_F(GraphsPlacedByUse, AnUpdateToSpilledMemoryMovesItIn) {
  const CUdeviceptr from = block_that_is(true);
  const CUdeviceptr to = block_that_is(true, {from});
  add_copy(from, to);
  instantiate();
  const CUdeviceptr spilled = block_that_is(false);
  const CUDA_MEMCPY3D wanted = copy(spilled, to);
  EXPECT_EQ(through_door<Call::cuGraphExecMemcpyNodeSetParams>(exec_, node_, &wanted, context_),
            CUDA_SUCCESS);
  EXPECT_TRUE(is_near(spilled));
  expect_copied(spilled, to);

  const CUdeviceptr next = block_that_is(false);
  CUgraphNodeParams parameters{};
  parameters.type = CU_GRAPH_NODE_TYPE_MEMCPY;
  parameters.memcpy.copyCtx = context_;
  parameters.memcpy.copyParams = copy(next, to);
  EXPECT_EQ(through_door<Call::cuGraphExecNodeSetParams>(exec_, node_, &parameters), CUDA_SUCCESS);
  expect_copied(next, to);
}

TEST_F(GraphsPlacedByUse, AnUpdateToMemoryThatAResumeLeftOnTheHostMovesItIn) {
  const CUdeviceptr one = block_that_is(true);
  const CUdeviceptr two = block_that_is(true, {one});
  const CUdeviceptr three = block_that_is(true, {one, two});
  for (CUdeviceptr& block : blocks_) {
    if (block == one || block == two || block == three) continue;
    ASSERT_EQ(through_door<Call::cuMemFree_v2>(block), CUDA_SUCCESS);
    block = 0;
  }
  Control& control = *Engine::get()->control();
  ASSERT_EQ(control.spilled().physical_in_use, 0u);
  ASSERT_TRUE(control.pause(Duration{20'000'000}, Strict::No).ok());
  std::vector<CUdeviceptr> taken(1);
  while (of_driver("cuMemAlloc_v2", &taken.back(), std::size_t{small}) == CUDA_SUCCESS) {
    taken.push_back(0);
  }
  const auto give_back = [&](std::size_t down_to) {
    for (; taken.size() > down_to; taken.pop_back()) of_driver("cuMemFree_v2", taken.back());
  };
  give_back(taken.size() - 3);  // the last is 0: two of the three have room
  const auto resumed = control.resume(Partly::Yes);
  give_back(0);
  ASSERT_TRUE(resumed.ok()) << resumed.error().text();

  const CUdeviceptr far = block_that_is(false);
  const CUdeviceptr from = block_that_is(true);
  const CUdeviceptr to = block_that_is(true, {from});
  add_copy(from, to);
  instantiate();
  const CUDA_MEMCPY3D wanted = copy(far, to);
  EXPECT_EQ(through_door<Call::cuGraphExecMemcpyNodeSetParams>(exec_, node_, &wanted, context_),
            CUDA_SUCCESS);
  EXPECT_TRUE(is_near(far));
  expect_copied(far, to);
}

TEST_F(GraphsPlacedByUse, AnUpdateOfAChildToSpilledMemoryMovesItIn) {
  const CUdeviceptr from = block_that_is(true);
  const CUdeviceptr to = block_that_is(true, {from});
  const auto child_that_copies = [&](CUdeviceptr source) {
    CUgraph child = nullptr;
    CUgraphNode node = nullptr;
    const CUDA_MEMCPY3D wanted = copy(source, to);
    EXPECT_EQ(through_door<Call::cuGraphCreate>(&child, 0u), CUDA_SUCCESS);
    EXPECT_EQ(through_door<Call::cuGraphAddMemcpyNode>(&node, child, nullptr, 0, &wanted, context_),
              CUDA_SUCCESS);
    return child;
  };
  const CUgraph first = child_that_copies(from);
  ASSERT_EQ(through_door<Call::cuGraphAddChildGraphNode>(&node_, graph_, nullptr, 0, first),
            CUDA_SUCCESS);
  instantiate();

  const CUdeviceptr spilled = block_that_is(false);
  const CUgraph second = child_that_copies(spilled);
  EXPECT_EQ(through_door<Call::cuGraphExecChildGraphNodeSetParams>(exec_, node_, second),
            CUDA_SUCCESS);
  expect_copied(spilled, to);

  const CUdeviceptr next = block_that_is(false);
  const CUgraph third = child_that_copies(next);
  CUgraphNodeParams parameters{};
  parameters.type = CU_GRAPH_NODE_TYPE_GRAPH;
  parameters.graph.graph = third;
  EXPECT_EQ(through_door<Call::cuGraphExecNodeSetParams>(exec_, node_, &parameters), CUDA_SUCCESS);
  expect_copied(next, to);
  for (const CUgraph one : {first, second, third}) through_door<Call::cuGraphDestroy>(one);
}

TEST_F(GraphsPlacedByUse, SpilledMemoryMovesInBeforeTheGraphIsInstantiated) {
  const CUdeviceptr spilled = block_that_is(false);
  const CUdeviceptr to = block_that_is(true);
  add_copy(spilled, to);
  EXPECT_FALSE(is_near(spilled));
  instantiate();
  EXPECT_TRUE(is_near(spilled));
  expect_takes_device_memory(to, {spilled, to});
}

// A copy is of the kind that its memory had when it was added.
TEST_F(GraphsPlacedByUse, ACopyThatWasAddedWhileItsMemoryWasSpilledTakesDeviceMemory) {
  const CUdeviceptr spilled = block_that_is(false);
  const CUdeviceptr to = block_that_is(true);
  add_copy(spilled, to);
  CUgraph other = nullptr;
  ASSERT_EQ(through_door<Call::cuGraphClone>(&other, graph_), CUDA_SUCCESS);
  instantiate();
  ASSERT_TRUE(is_near(spilled));
  const CUdeviceptr third = block_that_is(true, {spilled, to});
  for (CUdeviceptr& one : blocks_) {
    if (!is_near(one)) through_door<Call::cuMemFree_v2>(std::exchange(one, 0));
  }
  std::erase(blocks_, CUdeviceptr{0});
  ASSERT_EQ(Engine::get()->control()->spilled().physical_in_use, 0u);
  CUgraphExec of_other = nullptr;
  ASSERT_EQ(through_door<Call::cuGraphInstantiateWithFlags>(&of_other, other, 0), CUDA_SUCCESS);
  CUgraphNode node = nullptr;
  ASSERT_EQ(through_door<Call::cuGraphNodeFindInClone>(&node, node_, other), CUDA_SUCCESS);
  const CUDA_MEMCPY3D wanted = copy(third, to);
  EXPECT_EQ(through_door<Call::cuGraphExecMemcpyNodeSetParams>(of_other, node, &wanted, context_),
            CUDA_SUCCESS);
  through_door<Call::cuGraphExecDestroy>(of_other);
  through_door<Call::cuGraphDestroy>(other);
}

TEST_F(GraphsPlacedByUse, CopiesOfMoreThanTheDeviceTakeDeviceMemoryToo) {
  std::vector<CUgraphNode> nodes;
  for (std::size_t i = 1; i < blocks_.size(); ++i) {
    add_copy(blocks_[i - 1], blocks_[i]);
    nodes.push_back(node_);
  }
  instantiate();
  const CUdeviceptr from = block_that_is(true);
  const CUDA_MEMCPY3D wanted = copy(from, block_that_is(true, {from}));
  const auto update = [&](CUgraphNode node) {
    return through_door<Call::cuGraphExecMemcpyNodeSetParams>(exec_, node, &wanted, context_);
  };
  for (CUgraphNode node : nodes) {
    CUresult answer = update(node);
    // On a busy machine the moves may have taken so long that there are none for 10 s.
    for (int tries = 0; tries < 3 && answer != CUDA_SUCCESS; ++tries) {
      std::this_thread::sleep_for(std::chrono::seconds{10});
      answer = update(node);
    }
    EXPECT_EQ(answer, CUDA_SUCCESS);
  }
}

TEST_F(GraphsPlacedByUse, AllFormsOfInstantiationMoveMemoryIn) {
  CUDA_GRAPH_INSTANTIATE_PARAMS parameters{};
  const std::function<CUresult()> forms[] = {
      [&] {
        return through_door<Call::cuGraphInstantiate>(&exec_, graph_, nullptr, nullptr,
                                                      std::size_t{0});
      },
      [&] {
        return through_door<Call::cuGraphInstantiate_v2>(&exec_, graph_, nullptr, nullptr,
                                                         std::size_t{0});
      },
      [&] { return through_door<Call::cuGraphInstantiateWithParams>(&exec_, graph_, &parameters); },
  };
  const CUdeviceptr to = block_that_is(true);
  add_copy(block_that_is(false), to);
  for (const auto& form : forms) {
    const CUdeviceptr spilled = block_that_is(false);
    const CUDA_MEMCPY3D wanted = copy(spilled, to);
    ASSERT_EQ(through_door<Call::cuGraphMemcpyNodeSetParams>(node_, &wanted), CUDA_SUCCESS);
    ASSERT_EQ(form(), CUDA_SUCCESS);
    EXPECT_TRUE(is_near(spilled));
    through_door<Call::cuGraphExecDestroy>(std::exchange(exec_, nullptr));
  }
}

TEST_F(GraphsPlacedByUse, MemoryOfAllCopiesIsOnTheDeviceTogether) {
  const CUdeviceptr first = block_that_is(false);
  const CUdeviceptr second = block_that_is(false, {first});
  const CUdeviceptr to = block_that_is(true);
  add_copy(first, to);
  CUgraph child = nullptr;
  ASSERT_EQ(through_door<Call::cuGraphCreate>(&child, 0u), CUDA_SUCCESS);
  CUgraphNode inner = nullptr;
  const CUDA_MEMCPY3D wanted = copy(second, to);
  ASSERT_EQ(through_door<Call::cuGraphAddMemcpyNode>(&inner, child, nullptr, 0, &wanted, context_),
            CUDA_SUCCESS);
  CUgraphNode embedded = nullptr;
  ASSERT_EQ(through_door<Call::cuGraphAddChildGraphNode>(&embedded, graph_, nullptr, 0, child),
            CUDA_SUCCESS);
  instantiate();
  EXPECT_TRUE(is_near(first));
  EXPECT_TRUE(is_near(second));
  through_door<Call::cuGraphDestroy>(child);
}

// Memory that a graph needs does not leave for the memory that the next one needs.
TEST_F(GraphsPlacedByUse, OneGraphsMemoryStaysWhenAnothersMovesIn) {
  const CUdeviceptr first = block_that_is(false);
  const CUdeviceptr to = block_that_is(true);
  rest();
  for (const CUdeviceptr one : blocks_) {
    if (is_near(one)) use(one);
  }
  rest();
  add_copy(first, to);
  instantiate();
  ASSERT_TRUE(is_near(first));
  const CUdeviceptr next = block_that_is(false);
  const CUDA_MEMCPY3D wanted = copy(next, to);
  EXPECT_EQ(through_door<Call::cuGraphExecMemcpyNodeSetParams>(exec_, node_, &wanted, context_),
            CUDA_SUCCESS);
  EXPECT_TRUE(is_near(first));
  EXPECT_TRUE(is_near(next));
}

TEST_F(GraphsPlacedByUse, AnUpdateFromACaptureMovesMemoryIn) {
  const CUdeviceptr to = block_that_is(true);
  const CUdeviceptr from = block_that_is(true, {to});
  const auto captured = [&](CUdeviceptr source) {
    CUstream stream = nullptr;
    CUgraph graph = nullptr;
    EXPECT_EQ(through_door<Call::cuStreamCreate>(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    EXPECT_EQ(through_door<Call::cuStreamBeginCapture_v2>(stream, CU_STREAM_CAPTURE_MODE_RELAXED),
              CUDA_SUCCESS);
    EXPECT_EQ(through_door<Call::cuMemcpyDtoDAsync_v2>(to, source, small, stream), CUDA_SUCCESS);
    EXPECT_EQ(through_door<Call::cuStreamEndCapture>(stream, &graph), CUDA_SUCCESS);
    through_door<Call::cuStreamDestroy_v2>(stream);
    return graph;
  };
  through_door<Call::cuGraphDestroy>(std::exchange(graph_, captured(from)));
  instantiate();
  for (const bool by_old_form : {false, true}) {
    const CUdeviceptr spilled = block_that_is(false);
    CUgraph next = captured(spilled);
    if (by_old_form) {
      CUgraphNode node = nullptr;
      CUgraphExecUpdateResult outcome{};
      EXPECT_EQ(through_door<Call::cuGraphExecUpdate>(exec_, next, &node, &outcome), CUDA_SUCCESS);
    } else {
      CUgraphExecUpdateResultInfo outcome{};
      EXPECT_EQ(through_door<Call::cuGraphExecUpdate_v2>(exec_, next, &outcome), CUDA_SUCCESS);
    }
    EXPECT_TRUE(is_near(spilled));
    expect_copied(spilled, to);
    through_door<Call::cuGraphDestroy>(next);
  }
}

// What cannot leave is not chosen to make room.
TEST_F(GraphsPlacedByUse, PinnedMemoryIsNotMovedOut) {
  std::vector<CUdeviceptr> pinned;
  const CUdeviceptr from = block_that_is(true);
  const CUdeviceptr to = block_that_is(true, {from});
  for (const CUdeviceptr one : blocks_) {
    if (!is_near(one) || one == from || one == to) continue;
    CUipcMemHandle handle{};
    ASSERT_EQ(through_door<Call::cuIpcGetMemHandle>(&handle, one), CUDA_SUCCESS);
    pinned.push_back(one);
    if (pinned.size() == 2) break;
  }
  ASSERT_EQ(pinned.size(), 2u);
  rest();
  for (const CUdeviceptr one : blocks_) {
    if (std::find(pinned.begin(), pinned.end(), one) == pinned.end()) use(one);
  }
  add_copy(from, to);
  instantiate();
  const CUdeviceptr spilled = block_that_is(false);
  const CUDA_MEMCPY3D wanted = copy(spilled, to);
  EXPECT_EQ(through_door<Call::cuGraphExecMemcpyNodeSetParams>(exec_, node_, &wanted, context_),
            CUDA_SUCCESS);
  EXPECT_TRUE(is_near(spilled));
}

// Nothing may be moved during a capture.
TEST_F(GraphsPlacedByUse, DuringACaptureTheUpdateIsRefused) {
  const CUdeviceptr from = block_that_is(true);
  const CUdeviceptr to = block_that_is(true, {from});
  add_copy(from, to);
  instantiate();
  CUstream stream = nullptr;
  ASSERT_EQ(through_door<Call::cuStreamCreate>(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  ASSERT_EQ(through_door<Call::cuStreamBeginCapture_v2>(stream, CU_STREAM_CAPTURE_MODE_RELAXED),
            CUDA_SUCCESS);
  const CUdeviceptr spilled = block_that_is(false);
  const CUDA_MEMCPY3D wanted = copy(spilled, to);
  EXPECT_EQ(through_door<Call::cuGraphExecMemcpyNodeSetParams>(exec_, node_, &wanted, context_),
            CUDA_ERROR_INVALID_VALUE);
  CUgraph captured = nullptr;
  ASSERT_EQ(through_door<Call::cuStreamEndCapture>(stream, &captured), CUDA_SUCCESS);
  through_door<Call::cuGraphDestroy>(captured);
  through_door<Call::cuStreamDestroy_v2>(stream);
  expect_copied(from, to);
}

// The work may be waiting for what the program does next. The last test, since it makes cuvmm wait
// before it tries again.
TEST_F(GraphsPlacedByUse, AGraphIsInstantiatedWithoutTheMoveIfWorkDoesNotEnd) {
  const CUdeviceptr spilled = block_that_is(false);
  const CUdeviceptr to = block_that_is(true);
  add_copy(spilled, to);
  std::atomic<bool> may_end{false};
  ASSERT_EQ(through_door<Call::cuLaunchHostFunc>(nullptr, until_it_may, &may_end), CUDA_SUCCESS);
  instantiate();
  EXPECT_FALSE(is_near(spilled));
  may_end = true;
  EXPECT_EQ(through_door<Call::cuCtxSynchronize>(), CUDA_SUCCESS);
  // Not again for a while, unless it is needed.
  through_door<Call::cuGraphExecDestroy>(std::exchange(exec_, nullptr));
  const CUdeviceptr from = block_that_is(true, {to});
  const CUDA_MEMCPY3D near = copy(from, to);
  const CUDA_MEMCPY3D far = copy(spilled, to);
  ASSERT_EQ(through_door<Call::cuGraphMemcpyNodeSetParams>(node_, &near), CUDA_SUCCESS);
  instantiate();
  EXPECT_EQ(through_door<Call::cuGraphExecMemcpyNodeSetParams>(exec_, node_, &far, context_),
            CUDA_SUCCESS);
  EXPECT_TRUE(is_near(spilled));
  expect_copied(spilled, to);
}

}  // namespace
}  // namespace cuvmm::test
