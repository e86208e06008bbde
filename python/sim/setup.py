# SPDX-License-Identifier: Apache-2.0
"""Builds the simulated driver with CMake and puts it into the wheel."""

import os
import shutil
import subprocess

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:
    from wheel.bdist_wheel import bdist_wheel

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LIBRARIES = ("libcuda.so.1", "libnvidia-ml.so.1")


class BuildWithDriver(build_py):
    """Adds the libraries, from the build tree in CUVMM_BUILD_DIR or a new one."""

    def run(self):
        super().run()
        tree = os.environ.get("CUVMM_BUILD_DIR")
        if not tree:
            tree = os.path.join(ROOT, "build-wheel")
            subprocess.run(["cmake", "-S", ROOT, "-B", tree, "-DCMAKE_BUILD_TYPE=RelWithDebInfo",
                            "-DCUVMM_TESTS=OFF", "-DCUVMM_BENCH=OFF"], check=True)
            subprocess.run(["cmake", "--build", tree, "--parallel", "--target", "cuvmm_sim",
                            "cuvmm_sim_nvml"], check=True)
        folder = os.path.join(os.path.abspath(self.build_lib), "cuvmm_sim", "driver")
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        for name in LIBRARIES:
            made = os.path.join(folder, name)
            shutil.copyfile(os.path.join(tree, "lib", "cuvmm", "sim", name), made)
            os.chmod(made, 0o755)
            subprocess.run(["strip", "--strip-unneeded", made], check=True)


class PlatformWheel(bdist_wheel):
    """A wheel for this machine's architecture and any Python version."""

    def finalize_options(self):
        super().finalize_options()
        self.root_is_pure = False

    def get_tag(self):
        _, _, platform = super().get_tag()
        return "py3", "none", platform


class WithDriver(Distribution):
    def has_ext_modules(self):
        return True


setup(distclass=WithDriver, cmdclass={"build_py": BuildWithDriver, "bdist_wheel": PlatformWheel})
