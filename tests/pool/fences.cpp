// SPDX-License-Identifier: Apache-2.0
// Fences that are added while another thread waits for earlier ones.
#include <functional>
#include <thread>

#include "pool_world.hpp"
#include "support/kernels.hpp"

namespace cuvmm::test {
namespace {

// Called before and after each wait for an event.
std::function<void()> before_wait;
std::function<void()> after_wait;

CUresult CUDAAPI wait_for_event(CUevent event) {
  if (before_wait) before_wait();
  const CUresult answer = driver().cuEventSynchronize(event);
  if (after_wait) after_wait();
  return answer;
}

class PoolFencesTest : public VmmTest {
 protected:
  void SetUp() override {
    VmmTest::SetUp();
    made = std::make_unique<GivenStream>();
    stream = *made;
    hooked = driver();
    hooked.cuEventSynchronize = &wait_for_event;
    world = std::make_unique<PoolWorld>(hooked);
    pool = world->elastic(8);
    ASSERT_OK(pool->allocate_at({0, 4096}, {.evictable = Evictable::Yes}));
    ASSERT_OK(pool->allocate_at({world->granule() + 8192, 4096}));
  }
  void TearDown() override {
    before_wait = nullptr;
    after_wait = nullptr;
    for (const auto& work : running) work->end();
    running.clear();
    made.reset();
    pool.reset();
    world.reset();
    VmmTest::TearDown();
  }
  void submit_fenced_work() {
    running.push_back(std::make_unique<SlowWork>(kernels(), stream));
    GIVEN(driver().cuMemsetD8Async(pool->base_address(), 7, 4096, stream));
    ASSERT_OK(pool->fence(stream));
  }
  Result<void> evict() {
    TRY(pool->evict(1));
    return {};
  }
  Result<void> compact() {
    TRY(pool->compact());
    return {};
  }

  Driver hooked{};
  std::unique_ptr<PoolWorld> world;
  std::unique_ptr<ElasticPool> pool;
  std::unique_ptr<GivenStream> made;
  CUstream stream = nullptr;
  std::vector<std::unique_ptr<SlowWork>> running;
};

TEST_F(PoolFencesTest, NothingIsUnmappedBeforeAFenceThatWasAddedDuringTheWait) {
  for (const auto& change : {std::function<Result<void>()>{[&] { return compact(); }},
                             std::function<Result<void>()>{[&] { return pool->park(); }}}) {
    submit_fenced_work();
    running.back()->end();
    int waits = 0;
    before_wait = [&] { running.back()->end(); };
    after_wait = [&] {
      if (++waits == 1) submit_fenced_work();
    };
    ASSERT_OK(change());
    EXPECT_GE(waits, 2);
    EXPECT_CUDA(driver().cuStreamQuery(stream));
  }
}

TEST_F(PoolFencesTest, NothingChangesWhileFencesKeepComing) {
  submit_fenced_work();
  before_wait = [&] { running.back()->end(); };
  after_wait = [&] { submit_fenced_work(); };
  EXPECT_EQ(outcome(compact()), "timed out");
  EXPECT_EQ(outcome(evict()), "timed out");
  EXPECT_EQ(outcome(pool->park()), "timed out");
  EXPECT_TRUE(pool->is_mapped({0, 4096}));
  EXPECT_EQ(pool->stats().physical, 2 * world->granule());
  EXPECT_SOUND(*pool);
  after_wait = nullptr;
}

}  // namespace
}  // namespace cuvmm::test
