// SPDX-License-Identifier: Apache-2.0
#include "schedule/schedule_world.hpp"

namespace cuvmm::test {

const Driver& hooked() {
  static const Driver table = [] {
    driver();  // loads the simulated driver
    driver_source().path.store(driver_path().c_str());
    const LoaderDoors doors{
        .open = [](const char* path) { return ::dlopen(path, RTLD_NOW | RTLD_GLOBAL); },
        .symbol =
            [](void* library, const char* symbol) {
              void* door = hook::door_for_symbol(library, symbol, &::dlsym).address;
              return door != nullptr ? door : ::dlsym(library, symbol);
            }};
    return MUST(load_driver(driver_path().c_str(), doors), "the simulated driver is there");
  }();
  return table;
}

}  // namespace cuvmm::test
