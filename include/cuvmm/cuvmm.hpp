// SPDX-License-Identifier: Apache-2.0
// The C++ API of libcuvmm. There is one header per subject; this one includes them all.
#pragma once

#include "cuvmm/client.hpp"
#include "cuvmm/elastic_pool.hpp"
#include "cuvmm/engine.hpp"
#include "cuvmm/pause.hpp"
#include "cuvmm/resizable.hpp"
#include "cuvmm/result.hpp"
#include "cuvmm/share.hpp"
#include "cuvmm/shared_pool.hpp"
#include "cuvmm/version.h"
