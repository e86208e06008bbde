# SPDX-License-Identifier: Apache-2.0
"""Builds the wheel's compiled parts with CMake, which pyproject.toml cannot express."""

import os
import shutil
import subprocess

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:
    from wheel.bdist_wheel import bdist_wheel

ROOT = os.path.dirname(os.path.abspath(__file__))
# Installed files that a Python package does not need.
LEFT_OUT = ("include", "share", os.path.join("lib", "cmake"), os.path.join("lib", "pkgconfig"))


class BuildWithParts(build_py):
    """Adds the compiled parts, from the build tree in CUVMM_BUILD_DIR or a new one."""

    def run(self):
        super().run()
        tree = os.environ.get("CUVMM_BUILD_DIR")
        if not tree:
            tree = os.path.join(ROOT, "build-wheel")
            subprocess.run(["cmake", "-S", ROOT, "-B", tree, "-DCMAKE_BUILD_TYPE=RelWithDebInfo",
                            "-DCUVMM_TESTS=OFF", "-DCUVMM_BENCH=OFF"], check=True)
            subprocess.run(["cmake", "--build", tree, "--parallel"], check=True)
        parts = os.path.join(os.path.abspath(self.build_lib), "cuvmm", "_parts")
        shutil.rmtree(parts, ignore_errors=True)
        subprocess.run(["cmake", "--install", tree, "--prefix", parts, "--component", "cuvmm",
                        "--strip"], check=True)
        for name in LEFT_OUT:
            shutil.rmtree(os.path.join(parts, name), ignore_errors=True)


class PlatformWheel(bdist_wheel):
    """A wheel for this machine's architecture and any Python version."""

    def finalize_options(self):
        super().finalize_options()
        self.root_is_pure = False

    def get_tag(self):
        _, _, platform = super().get_tag()
        return "py3", "none", platform


class WithParts(Distribution):
    def has_ext_modules(self):
        return True


setup(distclass=WithParts, cmdclass={"build_py": BuildWithParts, "bdist_wheel": PlatformWheel})
