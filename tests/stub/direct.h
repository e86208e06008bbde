// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stddef.h>

// Returns 0 if there is no device.
size_t total_by_direct_calls(void);
int copies_by_direct_calls(void);
