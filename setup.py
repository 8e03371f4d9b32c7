"""Builds the compiled parts. None of them is required: a failure leaves them out and says so.

``fastnplm.kernels.native`` is csrc/native.pyx, with the .pxi files it includes, over C kernels.
Each file in ``KERNELS`` is compiled once for each instruction set the compiler knows, under names
that end in the instruction set's (csrc/target.h); csrc/dispatch.c chooses among them when the
kernels are first used. Nothing is compiled for the machine that builds.

``FASTNPLM_REQUIRE_NATIVE=1`` makes a failure to build an error.
"""

import os
import platform
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

SOURCES = "csrc"
KERNELS = ("gather", "hidden", "packed", "words", "scatter", "cross_entropy", "noise")
KERNELS += ("negative", "negative_example", "negative_gang")
KERNELS += ("softmax_step", "softmax_float32", "softmax_bf16", "softmax_forward", "softmax_top_k")
KERNELS += ("table",)
ONCE = ("dispatch", "groups", "threads")

FLAGS = ["-std=gnu11", "-O3", "-fvisibility=hidden"]
FLAGS += ["-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math"]  # see csrc/target.h
V4 = ["-march=x86-64-v4", "-mprefer-vector-width=512"]
V4_BY_PARTS = [
    "-march=haswell",
    *(f"-mavx512{part}" for part in ("f", "bw", "cd", "dq", "vl")),
    "-mprefer-vector-width=512",
]
# For each instruction set the flags to try in turn: older compilers know the parts, not the level.
TARGETS = {
    "x86_64": {
        "baseline": (["-march=x86-64-v2"], ["-msse4.2", "-mpopcnt"]),
        "avx2": (["-march=x86-64-v3"], ["-march=haswell"]),
        "avx512": (V4, V4_BY_PARTS),
        "avx512bf16": ([*V4, "-mavx512bf16"], [*V4_BY_PARTS, "-mavx512bf16"]),
    },
    "aarch64": {"neon": ([],)},
    "other": {"baseline": ([],)},
}
MACHINE = """
#if defined(__x86_64__)
x86_64
#elif defined(__aarch64__)
aarch64
#else
other
#endif
"""
OPENMP = """
#include <omp.h>
int threads(void);
int threads(void) {
    int count = 0;
#pragma omp parallel num_threads(2)
    count = omp_get_num_threads();
    return count;
}
"""


def say(line):
    print(f"fastnplm: {line}", file=sys.stderr, flush=True)


class Build(build_ext):
    """Builds what the compiler can, target by target, and leaves out the rest with a line each."""

    def finalize_options(self):
        super().finalize_options()
        self.required = os.environ.get("FASTNPLM_REQUIRE_NATIVE", "") not in ("", "0")

    def build_extension(self, ext):
        try:
            if ext.name == "fastnplm.kernels.native":
                self.add_kernels(ext)
            elif self.compiler.compiler_type == "unix":
                ext.extra_compile_args = ["-O3", "-fvisibility=hidden", "-Wno-unused-parameter"]
            super().build_extension(ext)
        except Exception as error:
            if self.required:
                raise
            reason = str(error).strip().splitlines()[-1] if str(error).strip() else repr(error)
            say(f"{ext.name} was NOT built ({reason}); fastnplm works without it, but slower")

    def add_kernels(self, ext):
        """Compile the kernel sources for every target and hand the objects to the extension."""
        compile_command = list(self.compiler.compiler_so)
        with tempfile.TemporaryDirectory() as folder:
            machine = probe_machine(compile_command, folder)
            openmp = self.probe_openmp(compile_command, folder)
            targets = probe_targets(compile_command, folder, machine)
        if not targets:
            raise RuntimeError("the compiler has no target with GNU C vector extensions")
        headers = [path for path in ext.depends if path.endswith(".h")]
        define = [f"-DFASTNPLM_HAS_{name.upper()}" for name in targets]
        jobs = [(name, kernel) for name in targets for kernel in KERNELS]
        jobs += [(None, source) for source in ONCE]

        def compile_one(job):
            target, stem = job
            source = f"{SOURCES}/{stem}.c"
            out = os.path.join(self.build_temp, target or "once", f"{stem}.o")
            inputs = [source, __file__, *headers]
            newest = max(map(os.path.getmtime, inputs))
            if not self.force and os.path.exists(out) and os.path.getmtime(out) > newest:
                return out
            os.makedirs(os.path.dirname(out), exist_ok=True)
            flags = [*FLAGS, *openmp, "-I" + SOURCES]
            flags += [*targets[target], f"-DFASTNPLM_TARGET={target}"] if target else define
            command = [*compile_command, *flags, "-c", source, "-o", out]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.stderr:
                print(done.stderr, file=sys.stderr, end="")
            if done.returncode:
                raise RuntimeError(f"compiling {source} for {target or 'all targets'} failed")
            return out

        with ThreadPoolExecutor(os.cpu_count() or 1) as workers:
            ext.extra_objects = list(workers.map(compile_one, jobs))
        # Cython's own C: its warnings are not ours
        ext.extra_compile_args = [*FLAGS[:3], *openmp, "-Wno-unused-parameter"]
        ext.extra_link_args = openmp
        say(f"kernels for {', '.join(targets)}; threads: {'OpenMP' if openmp else 'one only'}")

    def probe_openmp(self, compile_command, folder):
        """The flags for OpenMP, [] where the compiler or its run time has none."""
        source = os.path.join(folder, "openmp.c")
        with open(source, "w") as file:
            file.write(OPENMP)
        built = source + ".o"
        shared = source + ".so"
        compiled = attempt([*compile_command, "-fopenmp", "-c", source, "-o", built])
        link = [*self.compiler.linker_so, built, "-fopenmp", "-o", shared]
        if compiled and attempt(link):
            return ["-fopenmp"]
        say("the compiler has no OpenMP; the kernels will run on one thread")
        return []


def attempt(command):
    """Whether a compiler's command succeeds."""
    try:
        return subprocess.run(command, capture_output=True).returncode == 0
    except OSError:
        return False


def probe_machine(compile_command, folder):
    """What the compiler compiles for: asked of its preprocessor, so cross-compiling is right."""
    source = os.path.join(folder, "machine.c")
    with open(source, "w") as file:
        file.write(MACHINE)
    try:
        done = subprocess.run([*compile_command, "-E", source], capture_output=True, text=True)
    except OSError as error:
        raise RuntimeError(f"no C compiler: {error}") from None
    words = done.stdout.split()
    if done.returncode or not words or words[-1] not in TARGETS:
        raise RuntimeError(f"{compile_command[0]} is not a C compiler that this build knows")
    return words[-1]


def probe_targets(compile_command, folder, machine):
    """The targets the compiler accepts, each with its flags."""
    source = os.path.join(folder, "target.c")
    with open(source, "w") as file:
        file.write("typedef float v __attribute__((vector_size(64)));\nv f(v a);\n")
        file.write("v f(v a) { return a + 1.0f; }\n")
    found = {}
    for name, choices in TARGETS[machine].items():
        for flags in choices:
            if attempt([*compile_command, *flags, "-c", source, "-o", source + ".o"]):
                found[name] = flags
                break
        else:
            say(f"the compiler cannot compile for {name}; left out")
    return found


def extension(name, *sources):
    """One optional extension; it is rebuilt when anything in csrc changes."""
    depends = sorted(
        f"{SOURCES}/{entry}"
        for entry in os.listdir(SOURCES)
        if entry.endswith((".c", ".h", ".pxi")) and entry not in ("native.c", "text.c")
    )
    paths = [f"{SOURCES}/{source}" for source in sources]
    return Extension(name, paths, depends=depends, optional=True)


extensions = [extension("fastnplm.kernels.native", "native.pyx")]
# The reader's inner loops: no kernels, so no instruction sets to choose from.
extensions.append(extension("fastnplm._text", "text.pyx", "lexicon.c"))
if platform.python_implementation() != "CPython":
    extensions = []
    say("native kernels are built for CPython only")

setup(ext_modules=extensions, cmdclass={"build_ext": Build})
