// SPDX-License-Identifier: Apache-2.0
// Allocations and frees.
#include <algorithm>

#include "order/program.hpp"
#include "order/report.hpp"

namespace cuvmm::order {
namespace {

constexpr std::size_t kib = 1024;
constexpr std::size_t mib = 1024 * kib;

}  // namespace

// Many small sizes, and some that need more than one chunk of 2 MiB.
std::size_t Program::any_size() {
  const std::size_t odd = chance_.percent(20) ? 512 * chance_.below(8) : 0;
  if (chance_.percent(large_share_))
    return mib + row_bytes * chance_.below(2 * mib / row_bytes) + odd;
  if (chance_.percent(30)) return row_bytes * (1 + chance_.below(64)) + odd;
  return row_bytes * (1 + chance_.below(8)) + odd;
}

Block* Program::any_block() {
  if (memory_.live.empty()) return nullptr;
  return &*std::next(memory_.live.begin(), static_cast<long>(chance_.below(memory_.live.size())));
}

// The pool may have made the allocation wait for a free, which the model treats as possible. If it
// has not, the model learns so here.
void Program::look_whether_it_waits(Stream stream) {
  if (chance_.percent(50)) query(stream);
  if (chance_.percent(30)) open_gate_on(stream);
}

Block* Program::allocate_on(Stream stream, std::size_t size, int from_pool, Use use) {
  Block block;
  block.size = size;
  block.pool = from_pool;
  const WorldPool& pool = world_.pools()[static_cast<std::size_t>(block.pool)];
  const bool is_default =
      pool.is_default && pool.device == world_.device_of(world_.streams()[stream]);
  const CUresult answer = call(stream, "cuMemAllocAsync", [&] {
    if (is_default) return cuMemAllocAsync(&block.address, size, handle(stream));
    return cuMemAllocFromPoolAsync(&block.address, size, pool.handle, handle(stream));
  });
  trace("%s: allocate %zu bytes of pool %d: %#llx%s", name(stream), size, block.pool, block.address,
        answer == CUDA_ERROR_OUT_OF_MEMORY ? ", out of memory" : "");
  if (answer == CUDA_ERROR_OUT_OF_MEMORY) {
    ++counts_.refused;
    // Short of memory, the pool may have made the stream wait for frees that did not help.
    if (memory_.may_depend(from_pool)) {
      model_.submit_allocation(in_model(stream), memory_.possibly_behind_all_frees());
    }
    return nullptr;
  }
  must(answer, "cuMemAllocAsync");

  const Past before = model_.next_on(in_model(stream));
  const auto grant = memory_.check_grant(model_, block, in_model(stream), before);
  const Node node = model_.submit_allocation(in_model(stream), grant.also);
  block.written_by(node);
  block.granted_behind = before;
  block.granted_behind |= grant.also;
  Block& added = memory_.add(std::move(block));
  ++counts_.granted;
  if (grant.is_reuse) ++counts_.reused;
  if (grant.is_behind_blocked_work) ++counts_.reused_while_blocked;
  if (grant.also.possibly.any()) look_whether_it_waits(stream);
  if (use == Use::Filled) fill(added, stream);
  return &added;
}

void Program::allocate() {
  if (memory_.live_bytes() >= most_bytes_) return;
  const Stream stream = any_stream();
  allocate_on(stream, any_size(), any_pool_for(stream));
}

// Asks for memory that would fit but must not be reused yet.
void Program::allocate_what_is_blocked(const Past* behind) {
  if (memory_.live_bytes() >= most_bytes_) return;
  const auto tempting = memory_.tempt(model_, chance_, behind);
  if (tempting) allocate_on(any_stream(), tempting->size, tempting->pool);
}

// The program never uses the block, so the next owner need not come after more than this block did.
void Program::allocate_and_free() {
  if (memory_.live_bytes() >= most_bytes_) return;
  const Stream stream = any_stream();
  Block* const block = allocate_on(stream, any_size(), any_pool_for(stream), Use::None);
  if (block == nullptr) return;
  free_now(*block, stream, block->granted_behind);
  if (chance_.percent(50)) query(stream);
}

// More than the device has left, unless nothing is live. The refusal orders nothing. Only a small
// simulated device refuses fast.
void Program::ask_for_too_much() {
  const Stream stream = any_stream();
  std::size_t whole = 0;
  must(cuDeviceTotalMem(&whole, world_.device_of(world_.streams()[stream])), "cuDeviceTotalMem");
  if (whole > 256 * mib) return;
  Block* const block = allocate_on(stream, whole, any_pool_for(stream), Use::None);
  if (block != nullptr) free_now(*block, stream, block->granted_behind);
}

void Program::allocate_blocking() {
  if (memory_.live_bytes() >= most_bytes_) return;
  Block block;
  block.size = any_size();
  block.context = any_context();
  const CUresult answer = call_on(0, block.context, "cuMemAlloc",
                                  [&] { return cuMemAlloc(&block.address, block.size); });
  trace("allocate %zu bytes in context %zu: %#llx%s", block.size, block.context, block.address,
        answer == CUDA_ERROR_OUT_OF_MEMORY ? ", out of memory" : "");
  if (answer == CUDA_ERROR_OUT_OF_MEMORY) {
    ++counts_.refused;
    return;
  }
  must(answer, "cuMemAlloc");
  const auto grant = memory_.check_grant(model_, block, MemoryBooks::on_no_stream, Past{});
  ++counts_.granted;
  if (grant.is_reuse) ++counts_.reused;
  Block& added = memory_.add(std::move(block));
  fill(added, any_stream_of(added.context));
}

void Program::free_on(Block& block, Stream stream) {
  if (chance_.percent(70)) check_part(block, stream);
  free_now(block, stream, model_.next_on(in_model(stream)));
}

void Program::free_now(Block& block, Stream stream, const Past& after) {
  trace("%s: free block %d", name(stream), block.number);
  must_call(stream, "cuMemFreeAsync",
            [&] { return cuMemFreeAsync(block.address, handle(stream)); });
  model_.submit_free(in_model(stream));
  memory_.freed(block, after, in_model(stream));
}

void Program::free_in_order() {
  Block* const block = any_block();
  if (block == nullptr) return;
  const Stream stream = stream_behind(block->uses, block);
  if (stream != no_stream) free_on(*block, stream);
}

// cuMemFree of pool memory does not wait, so only a block whose uses are all complete may be freed.
void Program::free_at_once() {
  for (Block& block : memory_.live) {
    if (block.pool == Block::blocking || !model_.is_complete(block.uses)) continue;
    trace("free block %d at once", block.number);
    const MustReturn watch{"cuMemFree of pool memory"};
    must(cuMemFree(block.address), "cuMemFree");
    memory_.remove(block);
    return;
  }
}

// cuMemFree of blocking memory waits for all work submitted so far in the context that owns it.
void Program::free_blocking() {
  const auto block = std::find_if(memory_.live.begin(), memory_.live.end(),
                                  [](const Block& one) { return one.pool == Block::blocking; });
  if (block == memory_.live.end()) return;
  const CUdeviceptr address = block->address;
  const std::size_t context = block->context;
  if (!model_.is_behind(model_.work_of_context(context), block->uses)) return;
  Past all = model_.work_of_context(context);
  all.possibly |= model_.work_of_all().possibly;
  if (!model_.is_possibly_blocked(all)) {
    trace("free block %d, which waits for all work of its context", block->number);
    const MustReturn watch{"cuMemFree"};
    must(cuMemFree(address), "cuMemFree");
    model_.learn_complete(all);
    memory_.remove(*block);
    return;
  }
  if (!can_begin_wait()) return;
  trace("free block %d in another thread", block->number);
  is_freeing_ = true;
  memory_.freed(*block, all);
  begin_wait(
      "cuMemFree",
      [this, context] {
        Past past = model_.work_of_context(context);
        past.possibly |= model_.work_of_all().possibly;
        return past;
      },
      [address] { return cuMemFree(address); }, [this] { is_freeing_ = false; });
}

}  // namespace cuvmm::order
