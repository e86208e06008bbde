// SPDX-License-Identifier: Apache-2.0
// Makes the driver calls of an elastic key-value cache (kvcached): tensors are reserved addresses,
// and each of their pages is backed by a chunk of its own while it is in use, or else by one chunk
// that all unused pages share. A page that cannot be had gets the shared chunk back.
//
//   cuvmm_test_paged_cache [MIB]    MIB: other memory that it allocates first
#include <cuda.h>

#include <map>

#include "stages.hpp"

namespace {

constexpr std::size_t MiB = std::size_t{1} << 20;
constexpr std::size_t page_size = 2 * MiB;
constexpr CUdeviceptr preferred = 0x1000000000;

void check(CUresult answer, const char* what) {
  if (answer != CUDA_SUCCESS) stages::fail(what, answer);
}

CUresult create_page(CUmemGenericAllocationHandle& page) {
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, {0}};
  return cuMemCreate(&page, page_size, &properties, 0);
}

void map_page(CUdeviceptr address, CUmemGenericAllocationHandle page) {
  check(cuMemMap(address, page_size, 0, page, 0), "cuMemMap");
  const CUmemAccessDesc access{{CU_MEM_LOCATION_TYPE_DEVICE, {0}},
                               CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  check(cuMemSetAccess(address, page_size, &access, 1), "cuMemSetAccess");
}

void unmap_page(CUdeviceptr address) {
  check(cuMemUnmap(address, page_size), "cuMemUnmap");
}

void expect_holds(CUdeviceptr address, std::uint32_t seed, const char* claim) {
  std::vector<std::uint32_t> host(page_size / 4);
  check(cuMemcpyDtoH(host.data(), address, page_size), "read");
  stages::expect(host == stages::words(page_size, seed), claim);
}

void write(CUdeviceptr address, std::uint32_t seed) {
  const std::vector<std::uint32_t> host = stages::words(page_size, seed);
  check(cuMemcpyHtoD(address, host.data(), page_size), "write");
}

class Tensor {
 public:
  Tensor(CUdeviceptr wanted, std::size_t pages, CUmemGenericAllocationHandle shared)
      : pages_{pages}, shared_{shared} {
    check(cuMemAddressReserve(&base_, pages * page_size, page_size, wanted, 0), "reserve");
    for (std::size_t i = 0; i < pages; ++i) map_page(at(i), shared_);
  }

  CUdeviceptr at(std::size_t index) const { return base_ + index * page_size; }

  CUresult use(std::size_t index, std::uint32_t seed) {
    unmap_page(at(index));
    CUmemGenericAllocationHandle page = 0;
    const CUresult answer = create_page(page);
    if (answer != CUDA_SUCCESS) {
      map_page(at(index), shared_);
      return answer;
    }
    map_page(at(index), page);
    used_[index] = {page, seed};
    write(at(index), seed);
    return CUDA_SUCCESS;
  }

  void give_up(std::size_t index) { check(cuMemRelease(retain(index).page), "cuMemRelease"); }

  // The page's chunk is kept while the address shows the shared one.
  void give_up_and_change_mind(std::size_t index, const char* stage) {
    const Used kept = retain(index);
    stages::reach(stage);
    unmap_page(at(index));
    map_page(at(index), kept.page);
    used_[index] = kept;
  }

  void expect_contents(std::uint32_t seed_of_shared) const {
    for (std::size_t i = 0; i < pages_; ++i) {
      const auto used = used_.find(i);
      if (used != used_.end()) {
        expect_holds(at(i), used->second.seed, "a used page keeps its contents");
      } else {
        expect_holds(at(i), seed_of_shared, "an unused page shows the shared chunk");
      }
    }
  }

  // One call unmaps all pages; the chunks are released after it.
  void end() {
    check(cuMemUnmap(base_, pages_ * page_size), "cuMemUnmap of all pages");
    check(cuMemAddressFree(base_, pages_ * page_size), "cuMemAddressFree");
    for (const auto& [index, used] : used_) check(cuMemRelease(used.page), "cuMemRelease");
    used_.clear();
  }

  std::size_t used() const { return used_.size(); }

 private:
  struct Used {
    CUmemGenericAllocationHandle page;
    std::uint32_t seed;
  };

  Used retain(std::size_t index) {
    const Used kept = used_.at(index);
    unmap_page(at(index));
    map_page(at(index), shared_);
    used_.erase(index);
    return kept;
  }

  CUdeviceptr base_ = 0;
  std::size_t pages_;
  CUmemGenericAllocationHandle shared_;
  std::map<std::size_t, Used> used_;
};

void use_until_full(Tensor& tensor, std::size_t pages) {
  std::size_t index = 0;
  while (index < pages) {
    const CUresult answer = tensor.use(index, 1000 + static_cast<std::uint32_t>(index));
    if (answer == CUDA_ERROR_OUT_OF_MEMORY) break;
    check(answer, "cuMemCreate");
    ++index;
  }
  std::printf("%zu pages of %zu MiB\n", index, pages * page_size / MiB);
}

}  // namespace

int main(int count, char** words) {
  constexpr std::size_t pages = 24;
  const std::size_t other_size = count > 1 ? std::strtoull(words[1], nullptr, 10) * MiB : 0;
  CUdevice device = 0;
  CUcontext context = nullptr;
  check(cuInit(0), "cuInit");
  check(cuDeviceGet(&device, 0), "cuDeviceGet");
  check(cuDevicePrimaryCtxRetain(&context, device), "retain");
  check(cuCtxSetCurrent(context), "cuCtxSetCurrent");

  CUdeviceptr other = 0;
  if (other_size != 0) check(cuMemAlloc(&other, other_size), "cuMemAlloc");
  CUmemGenericAllocationHandle shared = 0;
  check(create_page(shared), "the shared chunk");
  Tensor keys{preferred, pages, shared};
  Tensor values{preferred + pages * page_size, pages, shared};
  write(keys.at(3), 7);  // seen at every address of both
  keys.expect_contents(7);
  values.expect_contents(7);
  stages::reach("reserved");
  keys.expect_contents(7);
  values.expect_contents(7);
  write(values.at(pages - 1), 8);

  for (std::size_t i = 0; i < 6; ++i) {
    check(keys.use(2 * i, 100 + static_cast<std::uint32_t>(i)), "a page");
    check(values.use(2 * i, 200 + static_cast<std::uint32_t>(i)), "a page");
  }
  stages::reach("in use");
  keys.expect_contents(8);
  values.expect_contents(8);

  check(cuCtxSynchronize(), "cuCtxSynchronize");
  keys.give_up(4);
  values.give_up(4);
  keys.give_up_and_change_mind(6, "given up for now");
  keys.expect_contents(8);
  values.expect_contents(8);
  stages::reach("fewer in use");
  keys.expect_contents(8);
  write(keys.at(1), 9);
  values.expect_contents(9);

  keys.end();
  values.expect_contents(9);
  Tensor more{preferred, pages, shared};
  use_until_full(more, pages);
  stages::reach("full");
  more.expect_contents(9);
  values.expect_contents(9);
  more.end();
  values.end();
  check(cuMemRelease(shared), "cuMemRelease");
  if (other_size != 0) check(cuMemFree(other), "cuMemFree");
  check(cuDevicePrimaryCtxRelease(device), "release");
  stages::reach("freed");
  return 0;
}
