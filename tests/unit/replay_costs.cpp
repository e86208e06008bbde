// SPDX-License-Identifier: Apache-2.0
// The models charge what the simulated driver charges.
#include "replay/measured_card.hpp"
#include "unit/vmm_world.hpp"

namespace cuvmm::test {
namespace {

using replay::CardCall;
using replay::microseconds_of;

class ModelledCosts : public DriverContract {
 protected:
  void SetUp() override {
    NEEDS_SIMULATED_DRIVER();
    DriverContract::SetUp();
  }
};

template <class Step>
double charged(Step step) {
  const double before = sim()->modelled_microseconds();
  step();
  return sim()->modelled_microseconds() - before;
}

TEST_F(ModelledCosts, MatchTheSimulatedDriverForBlockingMemory) {
  for (const Size size : {2 * MiB, 20 * MiB, 300 * MiB, GiB, 3 * GiB / 2}) {
    SCOPED_TRACE(print_size(size));
    CUdeviceptr address = 0;
    const double allocate = charged([&] { GIVEN(driver().cuMemAlloc(&address, size)); });
    const double free = charged([&] { GIVEN(driver().cuMemFree(address)); });
    EXPECT_NEAR(allocate, microseconds_of(CardCall::Allocate, size), 0.01);
    EXPECT_NEAR(free, microseconds_of(CardCall::Free, size), 0.01);
  }
}

TEST_F(ModelledCosts, MatchTheSimulatedDriverForMappedMemory) {
  for (const Size size : {2 * MiB, 20 * MiB, 100 * MiB, GiB}) {
    SCOPED_TRACE(print_size(size));
    const CUmemAllocationProp properties{.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                         .location = Location::device(0).cuda()};
    const CUmemAccessDesc access{Location::device(0).cuda(), CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUdeviceptr address = 0;
    CUmemGenericAllocationHandle handle = 0;
    GIVEN(driver().cuMemAddressReserve(&address, size, 0, 0, 0));
    const double create =
        charged([&] { GIVEN(driver().cuMemCreate(&handle, size, &properties, 0)); });
    const double map = charged([&] {
      GIVEN(driver().cuMemMap(address, size, 0, handle, 0));
      GIVEN(driver().cuMemSetAccess(address, size, &access, 1));
    });
    const double unmap = charged([&] { GIVEN(driver().cuMemUnmap(address, size)); });
    const double release = charged([&] { GIVEN(driver().cuMemRelease(handle)); });
    GIVEN(driver().cuMemAddressFree(address, size));
    EXPECT_NEAR(create, microseconds_of(CardCall::Create, size), 0.01);
    EXPECT_NEAR(map, microseconds_of(CardCall::MapAndAccess, size), 0.01);
    // The simulated driver charges an unmap the same whatever its size.
    EXPECT_NEAR(unmap, microseconds_of(CardCall::Unmap, 2 * MiB), 0.01);
    EXPECT_NEAR(release, microseconds_of(CardCall::Release, size), 0.01);
  }
}

}  // namespace
}  // namespace cuvmm::test
