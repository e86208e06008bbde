#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
exec "$(dirname "$(readlink -f "$0")")/dev" test "$@"
