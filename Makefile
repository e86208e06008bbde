# SPDX-License-Identifier: Apache-2.0
# For users of make. ./dev does everything.
.PHONY: all quick test demo clean
all:
	./dev build
quick:
	./dev quick
# Both begin with the part that takes seconds.
test: quick
	./dev test
demo: quick
	./dev demo
clean:
	./dev clean
