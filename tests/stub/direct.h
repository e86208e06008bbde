// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <stddef.h>

// 0 where there is no device.
size_t total_by_direct_calls(void);
int copies_by_direct_calls(void);
