"""Builds the compiled core; everything else about the package is in pyproject.toml.

Environment switches, each off unless set to 1:
    SC2GYM_DEBUG      bounds checks, assertions and debug symbols, no optimisation
    SC2GYM_SANITIZE   AddressSanitizer and UndefinedBehaviorSanitizer
    SC2GYM_COVERAGE   line tracing, so that coverage sees into the Cython code
"""

import os
from pathlib import Path

import numpy
from Cython.Build import cythonize
from setuptools import Extension, setup


def _switched_on(name: str) -> bool:
    return os.environ.get(name, "0") not in ("", "0")


debug, sanitize, coverage = map(
    _switched_on, ("SC2GYM_DEBUG", "SC2GYM_SANITIZE", "SC2GYM_COVERAGE")
)

compile_args = ["-O0", "-g3", "-UNDEBUG"] if debug else ["-O3"]
# A multiplication and an addition made one, as some processors can, round otherwise: frames are
# the same to the bit on all of them.
compile_args.append("-ffp-contract=off")
link_args = []
macros = [("NPY_NO_DEPRECATED_API", "NPY_1_7_API_VERSION")]
if sanitize:
    flags = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]
    compile_args += [*flags, "-fno-omit-frame-pointer", "-g"]
    link_args += flags
if coverage:
    macros.append(("CYTHON_TRACE_NOGIL", "1"))

setup(
    ext_modules=cythonize(
        [
            Extension(
                f"sc2gym._fast.{source.stem}",
                [str(source)],
                include_dirs=[numpy.get_include()],
                define_macros=macros,
                extra_compile_args=compile_args,
                extra_link_args=link_args,
            )
            for source in sorted(Path("sc2gym/_fast").glob("*.pyx"))
        ],
        compiler_directives={
            "language_level": 3,
            "embedsignature": True,
            "linetrace": coverage,
            # A switch for the whole build turns every unchecked access back into a checked one.
            **({"boundscheck": True, "wraparound": False} if debug else {}),
        },
        force=debug or sanitize or coverage,
    ),
)
