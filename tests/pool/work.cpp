// SPDX-License-Identifier: Apache-2.0
// Pools whose memory is in use all the time: several threads keep submitting work that is held for
// a while; others allocate, free, compact and grow. Every byte must be what was written last.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <random>
#include <shared_mutex>
#include <thread>

#include "driver/current_context.hpp"
#include "pool_world.hpp"
#include "support/kernels.hpp"
#include "support/scale.hpp"

namespace cuvmm::test {
namespace {

constexpr int writer_count = 3;

// Makes streams wait for words in pinned memory, and releases them late.
class LateWords {
 public:
  explicit LateWords(CUcontext context)
      : words_(writer_count), opener_([this, context] { open_late(context); }) {}
  ~LateWords() {
    done_ = true;
    opener_.join();
  }
  LateWords(const LateWords&) = delete;
  LateWords& operator=(const LateWords&) = delete;

  // Delays all work that the stream is given from now on.
  CUresult hold(int writer, CUstream stream) {
    Word& word = words_[writer];
    return driver().cuStreamWaitValue32(stream, word.flag.address(), ++word.asked,
                                        CU_STREAM_WAIT_VALUE_GEQ);
  }

 private:
  struct Word {
    HostFlag flag;
    std::atomic<std::uint32_t> asked{0};
  };

  void open_late(CUcontext context) {
    EXPECT_CUDA(driver().cuCtxSetCurrent(context));
    while (!done_) {
      for (Word& word : words_) {
        const std::uint32_t asked = word.asked;
        std::this_thread::sleep_for(std::chrono::microseconds{50});
        word.flag.set(asked);
      }
    }
    for (Word& word : words_) word.flag.set(word.asked);
  }

  std::vector<Word> words_;
  std::atomic<bool> done_{false};
  std::thread opener_;
};

// One thread's allocations, and what its stream has written to them.
class Writer {
 public:
  // `submitting`: held shared while submitting and fencing work, or reading memory. A thread that
  // compacts holds it exclusively, as the contract of compact() demands.
  using Allocate = std::function<Result<Size>(Size size, std::uint64_t random)>;
  struct Calls {
    Allocate allocate;
    std::function<Result<void>(Stretch)> deallocate;
    std::function<Result<void>(CUstream)> fence;
    CUdeviceptr base;
  };
  Writer(int index, Calls calls, LateWords& words, std::shared_mutex& submitting, Size granule)
      : index_(index),
        calls_(std::move(calls)),
        words_(words),
        submitting_(submitting),
        granule_(granule),
        random_(seed() * 1000 + static_cast<std::uint64_t>(index)) {}

  void step() {
    const std::uint64_t action = random_() % 8;
    if (live_.size() < 6 && action < 4) {
      const Size size = random_() % 6 == 0 ? granule_ + 4096 : 4096 * (1 + random_() % 32);
      const auto at = calls_.allocate(size, random_());
      if (!at.ok()) return;
      live_.push_back({{*at, size}, 0});
      write(live_.back());
    } else if (!live_.empty() && action < 7) {
      write(live_[random_() % live_.size()]);
    } else if (!live_.empty()) {
      const std::size_t which = random_() % live_.size();
      check(live_[which]);
      EXPECT_OK(calls_.deallocate(live_[which].where));
      live_.erase(live_.begin() + static_cast<std::ptrdiff_t>(which));
    }
  }
  void finish() {
    for (const Live& one : live_) check(one);
    for (const Live& one : live_) EXPECT_OK(calls_.deallocate(one.where));
  }

 private:
  struct Live {
    Stretch where;
    unsigned char value;
  };
  // In pieces, so that some of them run at any given moment.
  void write(Live& one) {
    const std::shared_lock holding{submitting_};
    EXPECT_CUDA(words_.hold(index_, stream_));
    one.value = static_cast<unsigned char>(++last_value_);
    for (Size at = 0; at < one.where.size; at += piece) {
      EXPECT_CUDA(driver().cuMemsetD8Async(calls_.base + one.where.offset + at, one.value,
                                           std::min(piece, one.where.size - at), stream_));
    }
    EXPECT_OK(calls_.fence(stream_));
  }
  void check(const Live& one) {
    const std::shared_lock holding{submitting_};
    EXPECT_CUDA(driver().cuStreamSynchronize(stream_));
    std::vector<std::byte> bytes(one.where.size);
    EXPECT_CUDA(driver().cuMemcpyDtoH(bytes.data(), calls_.base + one.where.offset, bytes.size()));
    EXPECT_EQ(std::count(bytes.begin(), bytes.end(), std::byte{one.value}),
              static_cast<std::ptrdiff_t>(bytes.size()))
        << "bytes of " << one.where.size << " at offset " << one.where.offset;
  }
  static constexpr Size piece = 16384;

  const int index_;
  const Calls calls_;
  LateWords& words_;
  std::shared_mutex& submitting_;
  const Size granule_;
  GivenStream stream_;
  std::mt19937_64 random_;
  std::vector<Live> live_;
  unsigned last_value_ = 0;
};

class PoolWork : public PoolTest {
 protected:
  // Runs one thread per writer; `beside` repeats in this thread until they are done.
  void run(const std::function<Writer::Calls(int)>& calls_of, std::uint64_t steps,
           const std::function<void(std::mt19937_64&)>& beside) {
    const CUcontext context = current_context(driver());
    LateWords words{context};
    std::atomic<int> running{writer_count};
    std::vector<std::thread> threads;
    for (int index = 0; index < writer_count; ++index) {
      threads.emplace_back([&, index] {
        EXPECT_CUDA(driver().cuCtxSetCurrent(context));
        Writer writer{index, calls_of(index), words, submitting, granule};
        for (std::uint64_t i = 0; i < steps && !HasFailure(); ++i) writer.step();
        writer.finish();
        --running;
      });
    }
    std::mt19937_64 random{seed()};
    while (running != 0) {
      beside(random);
      std::this_thread::sleep_for(std::chrono::microseconds{200});
    }
    for (std::thread& thread : threads) thread.join();
  }
  std::shared_mutex submitting;
};

TEST_F(PoolWork, AnElasticPoolNeverChangesWhatWorkUses) {
  PRINT_SEED_ON_FAILURE();
  const auto pool = world->elastic(24, {.most_capacity = 96 * granule});
  const auto calls_of = [&](int) -> Writer::Calls {
    return {.allocate = [&](Size size, std::uint64_t random) -> Result<Size> {
              if (random % 2 == 0) return pool->allocate(size);
              const Size at = (random >> 8) % (pool->capacity() - size);
              TRY(pool->allocate_at({at, size}));
              return at;
            },
            .deallocate = [&](Stretch gone) { return pool->deallocate(gone); },
            .fence = [&](CUstream stream) { return pool->fence(stream); },
            .base = pool->base_address()};
  };
  run(calls_of, scaled(1000), [&](std::mt19937_64& random) {
    if (random() % 4 != 0) {
      // In the room between allocations that share a granule.
      const Size at = random() % (pool->capacity() - 4096);
      if (pool->allocate_at({at, 4096}).ok()) {
        EXPECT_OK(pool->deallocate({at, 4096}));
      }
    } else if (random() % 8 == 0) {
      EXPECT_OK(pool->grow(std::min(pool->capacity() + granule, 96 * granule)));
    } else {
      const std::unique_lock holding{submitting};
      EXPECT_OK(pool->compact());
    }
    EXPECT_SOUND(*pool);
  });
  EXPECT_EQ(pool->stats().allocated, 0u);
  EXPECT_EQ(pool->stats().physical, 0u);
}

TEST_F(PoolWork, ASharedPoolNeverChangesWhatWorkUses) {
  PRINT_SEED_ON_FAILURE();
  const auto pool = GIVEN_VALUE(SharedPool::create(world->places, 12 * granule));
  const auto name = [](int index) { return "model " + std::to_string(index); };
  for (int index = 0; index <= writer_count; ++index) {
    GIVEN_VALUE(pool->register_model(name(index), {.capacity = 12 * granule, .priority = index}));
  }
  const auto calls_of = [&](int index) -> Writer::Calls {
    return {.allocate = [&, index](Size size, std::uint64_t random) -> Result<Size> {
              if (random % 2 == 0) return pool->allocate(name(index), size);
              const Size at = (random >> 8) % (12 * granule - size);
              TRY(pool->allocate_at(name(index), {at, size}));
              return at;
            },
            .deallocate = [&, index](Stretch gone) { return pool->deallocate(name(index), gone); },
            .fence = [&, index](CUstream stream) { return pool->fence(name(index), stream); },
            .base = *pool->base_address(name(index))};
  };
  // An extra model that never deprives the writers of memory: all of its own is evictable.
  run(calls_of, scaled(1000), [&](std::mt19937_64& random) {
    if (random() % 2 == 0) {
      (void)pool->allocate(name(writer_count), 4096 * (1 + random() % 600),
                           {.evictable = Evictable::Yes});
    } else {
      const std::unique_lock holding{submitting};
      EXPECT_OK(pool->compact(name(static_cast<int>(random() % (writer_count + 1)))));
    }
    EXPECT_SOUND(*pool);
  });
}

}  // namespace
}  // namespace cuvmm::test
