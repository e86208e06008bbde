# SPDX-License-Identifier: Apache-2.0
# For those who type make. All of it is in ./dev.
.PHONY: all quick test demo clean
all:
	./dev build
quick:
	./dev quick
# Both begin with what takes seconds.
test: quick
	./dev test
demo: quick
	./dev demo
clean:
	./dev clean
