"""What llama.cpp's kernels ask of a core for each weight, and what Arm's cores can do.

The counts of instructions are those of its kernels of 2026-10 (gcc 12, ``-O3 -mcpu=cortex-a76``).
"""

from __future__ import annotations

from typing import NamedTuple

from armload.boards.specs import CpuCluster


class Kernel(NamedTuple):
    """Vector instructions per weight of a type, with ``sdot``.

    Attributes:
        bits: per weight.
        plain: of a dot product with the weights as they lie in the file.
        repacked: of a token, with rows interleaved when the model is loaded.
        prompt: of a prompt's token, the same; ``matrix_prompt`` with ``smmla``.
    """

    bits: float
    plain: float
    repacked: float | None = None
    prompt: float | None = None
    matrix_prompt: float | None = None


KERNELS = {
    "F32": Kernel(32, 0.5),
    "F16": Kernel(16, 0.25),
    "BF16": Kernel(16, 0.5),
    "Q4_0": Kernel(4.5, 0.41, 0.18, 0.10, 0.08),
    "Q4_1": Kernel(5, 0.45),
    "Q5_0": Kernel(5.5, 0.54),
    "Q5_1": Kernel(6, 0.62),
    "Q8_0": Kernel(8.5, 0.28, 0.12, 0.11, 0.08),
    "Q2_K": Kernel(2.625, 0.50),
    "Q3_K": Kernel(3.4375, 0.56),
    "Q4_K": Kernel(4.5, 0.28, 0.20, 0.15, 0.12),
    "Q5_K": Kernel(5.5, 0.49, 0.38, 0.20, 0.17),
    "Q6_K": Kernel(6.5625, 0.60, 0.41, 0.20, 0.18),
    "IQ1_S": Kernel(1.5625, 0.65),
    "IQ1_M": Kernel(1.75, 0.80),
    "IQ2_XXS": Kernel(2.0625, 0.54),
    "IQ2_XS": Kernel(2.3125, 0.54),
    "IQ2_S": Kernel(2.5625, 0.82),
    "IQ3_XXS": Kernel(3.0625, 0.74),
    "IQ3_S": Kernel(3.4375, 1.11),
    "IQ4_NL": Kernel(4.5, 0.42, 0.25, 0.14, 0.11),
    "IQ4_XS": Kernel(4.25, 0.30),
    "MXFP4": Kernel(4.25, 0.42, 0.25, 0.14, 0.11),
    "TQ1_0": Kernel(1.6875, 0.40),
    "TQ2_0": Kernel(2.0625, 0.22),
}
UNKNOWN_KERNEL = Kernel(4.5, 0.50)
REPACKED = frozenset(name for name, kernel in KERNELS.items() if kernel.repacked)

WITHOUT_SDOT = 0.25
"""Further instructions per weight where ``smull`` and ``sadalp`` do the work of ``sdot``."""


class Core(NamedTuple):
    """What decides a core's speed here.

    Attributes:
        vectors_per_cycle: instructions on 128 bits that it starts.
        generation: whether cores of its kind have ``sdot``, and ``smmla``.
        on_mesh: a server's, whose memory serves many: what one core copies says nothing of it.
        read_bytes_per_cycle: that an in-order core reads at most, which waits for every miss; none
            for others, which wait for the memory.
    """

    vectors_per_cycle: float
    generation: int
    on_mesh: bool = False
    read_bytes_per_cycle: float | None = None


PLAIN_GENERATION, DOT_GENERATION, MATRIX_GENERATION = range(3)

# Arm's software optimisation guides; of others, what has been published about their pipelines. On a
# Cortex-A53 or A55, a load of 128 bits blocks the pipeline for two cycles, and what depends on a
# result waits for it. What in-order cores read is from sbc-bench's results for eight chips.
CORES = {
    "Cortex-A35": Core(0.5, PLAIN_GENERATION, read_bytes_per_cycle=1.7),
    "Cortex-A53": Core(0.5, PLAIN_GENERATION, read_bytes_per_cycle=1.7),
    "Cortex-A57": Core(2, PLAIN_GENERATION),
    "Cortex-A72": Core(2, PLAIN_GENERATION),
    "Cortex-A73": Core(2, PLAIN_GENERATION),
    "Cortex-A55": Core(0.5, DOT_GENERATION, read_bytes_per_cycle=3.8),
    "Cortex-A75": Core(2, DOT_GENERATION),
    "Cortex-A76": Core(2, DOT_GENERATION),
    "Cortex-A77": Core(2, DOT_GENERATION),
    "Cortex-A78": Core(2, DOT_GENERATION),
    "Cortex-A78AE": Core(2, DOT_GENERATION),
    "Cortex-A78C": Core(2, DOT_GENERATION),
    "Cortex-X1": Core(4, DOT_GENERATION),
    "Cortex-X1C": Core(4, DOT_GENERATION),
    "Carmel": Core(2, PLAIN_GENERATION),
    "Neoverse-N1": Core(2, DOT_GENERATION, on_mesh=True),
    "TaiShan-v110": Core(2, DOT_GENERATION, on_mesh=True),
    "Firestorm": Core(4, DOT_GENERATION),
    "Icestorm": Core(2, DOT_GENERATION),
    "Cortex-A510": Core(1, MATRIX_GENERATION, read_bytes_per_cycle=6.0),
    "Cortex-A520": Core(1, MATRIX_GENERATION, read_bytes_per_cycle=6.0),
    "Cortex-A710": Core(2, MATRIX_GENERATION),
    "Cortex-A715": Core(2, MATRIX_GENERATION),
    "Cortex-A720": Core(2, MATRIX_GENERATION),
    "Cortex-A725": Core(2, MATRIX_GENERATION),
    "Cortex-X2": Core(4, MATRIX_GENERATION),
    "Cortex-X3": Core(4, MATRIX_GENERATION),
    "Cortex-X4": Core(4, MATRIX_GENERATION),
    "Cortex-X925": Core(6, MATRIX_GENERATION),
    "Neoverse-N2": Core(2, MATRIX_GENERATION, on_mesh=True),
    "Neoverse-N3": Core(2, MATRIX_GENERATION, on_mesh=True),
    "Neoverse-V1": Core(4, MATRIX_GENERATION, on_mesh=True),
    "Neoverse-V2": Core(4, MATRIX_GENERATION, on_mesh=True),
    "Neoverse-V3": Core(4, MATRIX_GENERATION, on_mesh=True),
    "Ampere-1": Core(2, MATRIX_GENERATION, on_mesh=True),
    "Ampere-1a": Core(2, MATRIX_GENERATION, on_mesh=True),
    "Oryon": Core(4, MATRIX_GENERATION),
}
UNKNOWN_CORE = Core(2, DOT_GENERATION)

FLOATS = frozenset({"F32", "F16", "BF16"})
WITHOUT_HALF_ARITHMETIC = 2.0
"""Times as many instructions where 16-bit floats are widened first, as before ARMv8.2."""


def known_core(name: str) -> Core | None:
    """Return what is known of a core; none of an unknown one."""
    # Apple's have names such as Firestorm-M1-Pro.
    return CORES.get(name) or CORES.get(name.partition("-")[0])


def core_of(cluster: CpuCluster) -> Core:
    """Return what is known, or else assumed, of a cluster's cores."""
    return known_core(cluster.name) or UNKNOWN_CORE


def vectors_per_weight(type_name: str, core: Core, *, is_repacked: bool, is_prompt: bool) -> float:
    """Return the vector instructions of a token for each weight."""
    kernel = KERNELS.get(type_name, UNKNOWN_KERNEL)
    if core.generation == PLAIN_GENERATION:
        return kernel.plain + WITHOUT_SDOT
    by_generation = kernel.matrix_prompt if core.generation == MATRIX_GENERATION else kernel.prompt
    repacked = by_generation if is_prompt else kernel.repacked
    return repacked if is_repacked and repacked else kernel.plain


def vectors_per_product(type_name: str, core: Core) -> float:
    """Return the vector instructions of a multiplication with a weight that is not repacked."""
    if type_name not in FLOATS:
        return vectors_per_weight(type_name, core, is_repacked=False, is_prompt=True)
    is_narrow = type_name != "F32" and core.generation == PLAIN_GENERATION
    return KERNELS[type_name].plain * (WITHOUT_HALF_ARITHMETIC if is_narrow else 1.0)
