// SPDX-License-Identifier: Apache-2.0
#include "vmm/free_chunks.hpp"

namespace cuvmm {
namespace {

Export export_of(const StoredChunk& chunk) {
  return chunk.chunk.exportable() ? Export::Yes : Export::No;
}

}  // namespace

template <class Visit>
void FreeChunks::for_each_stack(Visit visit) const {
  for (const auto& [size, stack] : local_) visit(stack, Export::No);
  for (const auto& [size, stack] : exportable_) visit(stack, Export::Yes);
}

void FreeChunks::join(StoredChunk& chunk) {
  const Size size = chunk.chunk.size();
  FreeStack& stack = stacks_of(export_of(chunk))[size];
  stack.size = size;
  ++stack.members;
  chunk.stack = &stack;
}

void FreeChunks::leave(StoredChunk& chunk) {
  if (--chunk.stack->members == 0) stacks_of(export_of(chunk)).erase(chunk.chunk.size());
  chunk.stack = nullptr;
}

void FreeChunks::push(StoredChunk& chunk) {
  FreeStack& stack = *chunk.stack;
  chunk.freed_at = ++clock_;
  chunk.older = stack.newest;
  chunk.newer = nullptr;
  (stack.newest != nullptr ? stack.newest->newer : stack.oldest) = &chunk;
  stack.newest = &chunk;
  ++stack.free_count;
  free_bytes_ += stack.size;
}

void FreeChunks::unlink(StoredChunk& chunk) {
  FreeStack& stack = *chunk.stack;
  (chunk.newer != nullptr ? chunk.newer->older : stack.newest) = chunk.older;
  (chunk.older != nullptr ? chunk.older->newer : stack.oldest) = chunk.newer;
  chunk.newer = chunk.older = nullptr;
  --stack.free_count;
  free_bytes_ -= stack.size;
}

StoredChunk* FreeChunks::pop_from(Stacks& stacks, Size size) {
  const auto found = stacks.find(size);
  if (found == stacks.end() || found->second.newest == nullptr) return nullptr;
  StoredChunk& chunk = *found->second.newest;
  unlink(chunk);
  return &chunk;
}

StoredChunk* FreeChunks::pop(Size size, Export exportable) {
  StoredChunk* chunk = pop_from(stacks_of(exportable), size);
  if (chunk == nullptr && exportable == Export::No) chunk = pop_from(exportable_, size);
  return chunk;
}

StoredChunk* FreeChunks::pop_oldest() {
  StoredChunk* oldest = nullptr;
  for_each_stack([&](const FreeStack& stack, Export) {
    if (stack.oldest == nullptr) return;
    if (oldest == nullptr || stack.oldest->freed_at < oldest->freed_at) oldest = stack.oldest;
  });
  if (oldest != nullptr) unlink(*oldest);
  return oldest;
}

std::size_t FreeChunks::free_count() const {
  std::size_t count = 0;
  for_each_stack([&](const FreeStack& stack, Export) { count += stack.free_count; });
  return count;
}

InvariantViolation FreeChunks::violation(const LocalChunks* local) const {
  InvariantViolation found;
  Size bytes = 0;
  for_each_stack([&](const FreeStack& stack, Export exportable) {
    const auto complain = [&](const char* what) {
      if (!found) found = "free chunks of " + std::to_string(stack.size) + " bytes: " + what;
    };
    std::size_t count = 0;
    const StoredChunk* newer = nullptr;
    for (const StoredChunk* chunk = stack.newest; chunk != nullptr; chunk = chunk->older) {
      if (++count > stack.free_count) break;  // possibly a cycle
      if (chunk->newer != newer) complain("a link back is wrong");
      if (newer != nullptr && chunk->freed_at >= newer->freed_at) complain("one is out of order");
      if (chunk->stack != &stack || chunk->local != local) complain("one lies at a wrong place");
      if (chunk->chunk.size() != stack.size) complain("one has another size");
      if (export_of(*chunk) != exportable) complain("one is exportable and the others not");
      if (chunk->references.load() != 0) complain("a free chunk is still referenced");
      if (chunk->exported.load()) complain("one has been exported");
      bytes += stack.size;
      newer = chunk;
    }
    if (stack.oldest != newer) complain("the oldest is not at the end");
    if (count != stack.free_count) complain("they are counted wrongly");
    if (stack.members < count) complain("there are more than there are chunks");
    if (stack.members == 0) complain("nobody has any");
  });
  if (!found && bytes != free_bytes_) found = "free chunks: their bytes are counted wrongly";
  return found;
}

}  // namespace cuvmm
