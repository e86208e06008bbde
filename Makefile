# SPDX-License-Identifier: Apache-2.0
# For those who type make. All of it is in ./dev.
.PHONY: all test clean
all:
	./dev build
test:
	./dev test
clean:
	./dev clean
