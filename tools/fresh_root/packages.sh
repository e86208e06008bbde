# SPDX-License-Identifier: Apache-2.0
# In the root that builds, after wheel.sh: the Debian packages, of what is in build/.
cd /cuvmm/build
cpack -G DEB -B /tmp/packages
cp /tmp/packages/*.deb /exchange/
ls /exchange/cuvmm_*.deb /exchange/libcuvmm-dev_*.deb
