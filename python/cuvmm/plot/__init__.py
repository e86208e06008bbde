# SPDX-License-Identifier: Apache-2.0
"""Pictures of traces. `cuvmm plot` reads and thins the traces and hands the data over here."""
