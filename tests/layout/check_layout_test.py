#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The layout check can fail: each rule is broken once in a generated tree."""

import sys
import tempfile
import unittest
from pathlib import Path

sys.dont_write_bytecode = True
sys.path.insert(0, str(Path(__file__).parent))
import layout_rules as rules  # noqa: E402
from check_layout import Tree  # noqa: E402
from check_links import broken_links  # noqa: E402

LICENSE = "// SPDX-License-Identifier: Apache-2.0\n"


class LayoutCheck(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.root = Path(self.folder.name)
        self.plant("src/base/size.hpp", "")
        self.plant("src/driver/driver.hpp", '#include "base/size.hpp"\n')
        self.plant("src/driver/driver_api.def", "")
        self.plant("src/driver/cuda.hpp", "#include <cuda.h>\n")
        self.plant("src/vmm/chunk.hpp", '#include "driver/driver.hpp"\n#include "base/size.hpp"\n')
        self.plant("src/sim/device.hpp", '#include <cuda.h>\n#include "driver/driver_api.def"\n')

    def plant(self, name, text, license=LICENSE):
        file = self.root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(license + text)

    def breaches(self):
        tree = Tree(self.root)
        tree.check()
        return tree.breaches

    def assert_one_breach(self, *parts):
        breaches = self.breaches()
        self.assertEqual(len(breaches), 1, breaches)
        for part in parts:
            self.assertIn(part, breaches[0])

    def test_a_good_tree_passes(self):
        self.assertEqual(self.breaches(), [])

    def test_an_include_of_a_higher_folder_is_a_breach_with_file_and_line(self):
        self.plant("src/base/log.cpp", '\n#include "vmm/chunk.hpp"\n')
        self.assert_one_breach("src/base/log.cpp:3:", "base includes", "of vmm")

    def test_a_version_that_is_not_the_projects_is_a_breach(self):
        self.plant("CMakeLists.txt", "project(cuvmm VERSION 1.2.3 LANGUAGES CXX)\n", LICENSE.replace("//", "#"))
        for name in rules.VERSIONS:
            license = LICENSE.replace("//", "#")
            self.plant(name, 'version = "1.2.3"\n', license)
        self.assertEqual(self.breaches(), [])
        self.plant("python/cuvmm/_version.py", '__version__ = "1.2.2"\n', LICENSE.replace("//", "#"))
        self.assert_one_breach("python/cuvmm/_version.py:2:", "says version 1.2.2")

    def test_a_path_through_the_parent_folder_does_not_hide_where_it_leads(self):
        self.plant("src/base/log.cpp", '#include "../vmm/chunk.hpp"\n')
        self.assert_one_breach("src/base/log.cpp:2:", "of vmm")

    def test_the_simulated_driver_sees_only_the_lists_of_driver(self):
        self.plant("src/sim/stream.cpp", '#include "driver/driver.hpp"\n')
        self.assert_one_breach("src/sim/stream.cpp:2:", "sim includes", "of driver")

    def test_an_example_sees_public_headers_only(self):
        self.plant("include/cuvmm/sim.h", "")
        self.plant("examples/fill.cpp", '#include "cuvmm/sim.h"\n#include "base/size.hpp"\n')
        self.assert_one_breach("examples/fill.cpp:3:", "examples includes", "of base")

    def test_cuda_headers_come_through_one_file(self):
        self.plant("src/vmm/mapping.cpp", "#include <cuda.h>\n")
        self.assert_one_breach("src/vmm/mapping.cpp:2:", "cuda.h")

    def test_an_include_that_leads_nowhere_is_a_breach(self):
        self.plant("src/vmm/mapping.cpp", '#include "vmm/gone.hpp"\n')
        self.assert_one_breach("src/vmm/mapping.cpp:2:", "no file of the project")

    def test_a_folder_outside_the_table_is_a_breach(self):
        self.plant("src/misc/stuff.hpp", "")
        self.assert_one_breach("src/misc/stuff.hpp", "src/misc is not in")

    def test_a_file_without_its_licence_line_is_a_breach(self):
        self.plant("tools/run.py", "", license="")
        self.assert_one_breach("tools/run.py:1:", "SPDX")

    def test_a_long_file_needs_its_reason(self):
        self.plant("src/vmm/long.cpp", "int x;\n" * 601)
        self.assert_one_breach("src/vmm/long.cpp:1:", "602 lines")

    def test_a_long_file_with_its_reason_passes(self):
        self.plant("src/vmm/long.cpp", "// More than 600 lines because it is one table.\n" + "\n" * 600)
        self.assertEqual(self.breaches(), [])

    def test_a_moderately_long_file_is_only_a_warning(self):
        self.plant("src/vmm/long.cpp", "int x;\n" * 401)
        tree = Tree(self.root)
        self.assertTrue(tree.check())
        self.assertEqual(len(tree.warnings), 1)

    def test_only_the_mapping_core_changes_what_backs_an_address(self):
        call = "void f() { driver.cuMemMap(1, 2, 0, 3, 0); }\n"
        self.plant("src/vmm/maps.cpp", call)
        self.assertEqual(self.breaches(), [])
        self.plant("src/alloc/maps.cpp", call)
        self.assert_one_breach("src/alloc/maps.cpp:2:", "calls cuMemMap")

    def test_a_type_is_defined_once(self):
        self.plant("src/pool/place.hpp", "namespace cuvmm {\nenum class Place : int {\n")
        self.plant("src/vmm/place.hpp", "namespace cuvmm {\nclass Place final : Base {\n")
        self.assert_one_breach("src/vmm/place.hpp:3:", "Place is defined in src/pool/place.hpp too")

    def test_a_type_name_is_unique_across_namespaces(self):
        self.plant("src/vmm/one.hpp", "namespace cuvmm {\nstruct Thing {\n};\n}\n")
        self.plant("src/trace/one.hpp", "namespace cuvmm::other {\nstruct Thing {\n};\n}\n")
        self.assert_one_breach("src/vmm/one.hpp:3:", "Thing is defined in src/trace/one.hpp too")

    def test_the_simulated_driver_has_its_own_names(self):
        self.plant("src/vmm/one.hpp", "namespace cuvmm {\nstruct Thing {\n};\n}\n")
        self.plant("src/sim/one.hpp", "namespace cuvmm::sim {\nstruct Thing {\n};\n}\n")
        self.assertEqual(self.breaches(), [])

    def test_hidden_folders_except_ci_are_skipped(self):
        self.plant(".own/run.sh", "", license="")
        self.assertEqual(self.breaches(), [])
        self.plant(".ci/run", "", license="")
        self.assert_one_breach(".ci/run:1:")

    def test_paths_of_the_workplace_are_found_in_documents_too(self):
        self.plant("docs/notes.md", "see ../sha" + "red/notes\n", license="")
        self.assert_one_breach("docs/notes.md:1:")


class LinksCheck(unittest.TestCase):
    def test_finds_the_links_that_lead_nowhere(self):
        with tempfile.TemporaryDirectory() as folder:
            page, other = Path(folder) / "page.md", Path(folder) / "other.md"
            other.write_text("# Two words, `code`\n```\n# no heading\n```\n## Twice\n## Twice\n")
            page.write_text("[a](other.md) [b](other.md#two-words-code) [c](https://x.org/y.md) [d](#own)\n# Own\n"
                            "[e](other.md#twice-1) [f](missing.md) [g](other.md#no-heading) [h](#none)\n"
                            "`[i](missing.md)`\n```\n[j](missing.md)\n```\n")
            self.assertEqual(list(broken_links(page)),
                             [(3, "missing.md"), (3, "other.md#no-heading"), (3, "#none")])


if __name__ == "__main__":
    unittest.main()
