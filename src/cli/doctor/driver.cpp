// SPDX-License-Identifier: Apache-2.0
// Checks the driver, its devices, and their virtual memory management.
#include "driver/driver.hpp"

#include <fmt/core.h>

#include "base/printable.hpp"
#include "base/size.hpp"
#include "cli/doctor/finding.hpp"
#include "cli/driver_here.hpp"
#include "cli/install_places.hpp"
#include "driver/device_attribute.hpp"

namespace cuvmm::cli {
namespace {

Finding has(const char* what, bool is_there, Verdict without, const char* remedy) {
  return {is_there ? Verdict::Good : without, what, is_there ? "yes" : "no",
          is_there ? "" : remedy};
}

void look_at_device(const Driver& driver, CUdevice device, Findings& findings) {
  char name[128] = "";
  size_t memory = 0;
  driver.cuDeviceGetName(name, sizeof name, device);
  driver.cuDeviceTotalMem(&memory, device);
  findings.push_back({Verdict::Good, fmt::format("device {}", device),
                      fmt::format("{}, {}", name, print_size(memory)), ""});
  const auto can = [&](CUdevice_attribute what) {
    return device_attribute_or(0, driver, what, device) != 0;
  };
  findings.push_back(has("  virtual memory",
                         can(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED), Verdict::Bad,
                         "this device cannot: its memory stays the driver's, cuvmm only records"));
  findings.push_back(has("  sharing by descriptor",
                         can(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED),
                         Verdict::Limited,
                         "memory cannot be shared with other processes on this device"));
  findings.push_back(has("  stream-ordered memory", can(CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED),
                         Verdict::Limited, "the device has no memory pools"));
  CUmemAllocationProp wanted{};
  wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  wanted.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
  size_t granule = 0;
  const CUresult asked =
      driver.cuMemGetAllocationGranularity(&granule, &wanted, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
  findings.push_back({asked == CUDA_SUCCESS ? Verdict::Good : Verdict::Bad, "  granule",
                      asked == CUDA_SUCCESS ? print_size(granule) : "cannot be asked for",
                      asked == CUDA_SUCCESS ? "" : "update the driver"});
}

}  // namespace

Findings look_at_driver(const DoctorRequest& request) {
  std::string path = "libcuda.so.1";
  if (request.simulated) {
    const auto simulated = find_sim_directory();
    if (!simulated) return {{Verdict::Bad, "driver", simulated.error().text(), "install it"}};
    path = *simulated + "/libcuda.so.1";
  } else if (const DriverHere here = find_driver(); !here.is_there) {
    if (!here.load_error.empty()) {
      return {{Verdict::Bad, "driver", "cannot be loaded: " + printable(here.load_error),
               "install NVIDIA's driver again, or look for another libcuda.so.1 on "
               "LD_LIBRARY_PATH"}};
    }
    return {{Verdict::Limited, "driver", "this machine has none",
             "install NVIDIA's driver, or use the simulated one: cuvmm run --sim, "
             "cuvmm doctor --sim"}};
  }
  const auto driver = load_driver(path.c_str());
  if (!driver) {
    const bool is_old = driver.error().kind == ErrorKind::NotAvailable;
    return {{Verdict::Bad, "driver", driver.error().text(),
             !request.simulated ? "update NVIDIA's driver: 11.0 or newer"
             : is_old           ? "set VMM_SIM_DRIVER to 11.0 or newer"
                                : "install cuvmm again"}};
  }
  Findings findings{
      {Verdict::Good, "driver",
       fmt::format("{}.{}, {}", driver->version / 1000, driver->version % 1000 / 10, path), ""}};
  const auto begun = driver->check(driver->cuInit(0), "start the driver");
  int count = 0;
  if (!begun || driver->cuDeviceGetCount(&count) != CUDA_SUCCESS || count == 0) {
    findings.push_back({Verdict::Bad, "devices", begun ? "none" : begun.error().text(),
                        request.simulated
                            ? "look at the options of the simulated driver: cuvmm config --sim"
                            : "look at nvidia-smi; in a container, give it the devices "
                              "(--gpus all)"});
    return findings;
  }
  for (CUdevice device = 0; device < count; ++device) look_at_device(*driver, device, findings);
  return findings;
}

}  // namespace cuvmm::cli
