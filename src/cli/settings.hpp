// SPDX-License-Identifier: Apache-2.0
// What the command line sets for programs that it starts or describes.
#pragma once

#include <string>

namespace cuvmm::cli {

char lower_of(char letter);

// Sets an option in the environment. A value that the library would refuse is refused here, where
// somebody can still mend it. `as` is what stands on the command line.
bool set_option(const std::string& name, const std::string& value, const std::string& as);

// --sim=devices=2,memory=8G as VMM_SIM_DEVICES and VMM_SIM_MEMORY; "true" is --sim alone.
bool set_simulation(const std::string& text);

}  // namespace cuvmm::cli
