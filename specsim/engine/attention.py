"""Attention kernels: which one an engine takes where none is stated, and how it verifies.

The rows of ``attention.csv``, of which the first that fits holds, were read in the wheels: vLLM
0.24.0 ``platforms/cuda.py:84`` (priorities) and ``v1/attention/backends`` (what each takes), SGLang
0.5.9 ``server_args.py:1772`` [@attention-kernels].
"""

from dataclasses import dataclass

from specsim.engine.rules import EngineSpec, rows

HOPPER, BLACKWELL = 9, 10  # compute capabilities, whole part, with kernels of their own


@dataclass(frozen=True, slots=True)
class AttentionKernel:
    """What reads the KV cache."""

    name: str = ""  # as on the command line, lower case; fa2 is FlashAttention 2; empty if unknown
    # In a verification one thread block walks over the whole cache of a sequence: FlashAttention 2
    # and Triton's kernels split it over the GPU only where a request has one query
    walks: bool = False
    # The CPU reads the lengths back and lays out every forward of a speculating round: FlashInfer's
    # own kernels in vLLM, not TensorRT-LLM's, which it calls through it on capability 10. SGLang
    # plans too, but trees on its FlashInfer take no longer than chains on FlashAttention 3
    planned: bool = False
    # An indexer picks what each query attends to: tokens of one request read entries of their own
    picks: bool = False

    @property
    def notes(self) -> tuple[str, ...]:
        """What to tell of it beside a setting that speculates."""
        walks = f"attention by {self.name or 'this kernel'} verifies a sequence in one thread block"
        plans = "FlashInfer's forwards are laid out by the CPU, some ms per speculating round"
        return (
            *([f"{walks}: dear at long contexts"] if self.walks else []),
            *([f"{plans}; a 16-bit KV cache takes another kernel"] if self.planned else []),
        )


def attention_kernel(
    engine: EngineSpec, compute_capability: float | None, latent: bool, small_kv: bool
) -> AttentionKernel:
    """Return the kernel that is stated, or else taken by default on NVIDIA's GPUs.

    The compute capability is None where the GPU is none of NVIDIA's, or nobody says; the cache is
    one of `latent` attention, or `small_kv`: of 8 bits or fewer per number.
    """
    major = None if compute_capability is None else int(compute_capability)
    name = engine.backend.removesuffix("_vllm_v1")
    if not name and major is not None:
        name = next(
            (
                row["backend"]
                for row in rows("attention", engine.name)
                if row["latent"] == str(int(latent))
                and row["capability"] in ("", str(major))
                and row["eight_bit"] in ("", str(int(small_kv)))
            ),
            "",
        )
    if name == "flash_attn" and major not in (None, HOPPER, BLACKWELL):
        name = "fa2"
    return AttentionKernel(
        name,
        walks=name == "fa2" or ("triton" in name and not latent),
        planned=engine.name == "vllm" and name == "flashinfer" and major != BLACKWELL,
    )
