"""probe.json: written, read, refused; what calibrate takes from it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from specsim.calibrate.fit import fit_profile
from specsim.calibrate.log_setup import Stated
from specsim.calibrate.logs import gather
from specsim.calibrate.sources import read_sources
from specsim.errors import CalibrationError, FormatError, InputError
from specsim.hardware import Gpu, load_gpu
from specsim.logs import LogEntry, LogRow, read_file
from specsim.probe.document import parse_probe, write_directory

LLAMA_S = {1: 4.2e-3, 4: 4.3e-3, 16: 4.6e-3, 64: 5.6e-3, 128: 7.0e-3}


def document(**changes: Any) -> dict[str, Any]:
    """A probe of Llama-3.1-8B as an H200 might give it (made up)."""
    points = [
        {
            "batch": batch,
            "width": width,
            "context_len": 1024,
            "seconds": seconds,
            "fixed_s": 4e-4,
            "layers_s": [float(f"{(seconds - 4e-4) / 32:.6g}")],
            "error": 0.002,
            "repeats": 40,
            "experts": None,
        }
        for batch, width, seconds in (
            *((b, 1, s) for b, s in LLAMA_S.items()),
            (4, 4, 4.7e-3),
        )
    ]
    target = {
        "id": "llama-3.1-8b",
        "dtype": "bf16",
        "tp": 1,
        "built": [4],
        "small": [2],
        "whole": [32],
        "graphs": True,
        "moe": None,
        "points": points,
    }
    target.update(changes.pop("target", {}))
    device = {
        "kind": "cuda",
        "name": "NVIDIA H200",
        "count": 1,
        "mem_bytes": 1.5e11,
        "cache_bytes": 5e7,
        "threads": 0,
        "clock_mhz": [1980.0, 1965.0],
        "torch": "2.13.0",
    }
    device.update(changes.pop("device", {}))
    rates = {
        "read_bytes_per_s": 4.3e12,
        "copy_bytes_per_s": 4.0e12,
        "flops": 7.2e14,
        "launch_s": 4e-6,
        "graph_launch_s": 1.5e-6,
        "gemm": [],
    }
    rates.update(changes.pop("rates", {}))
    return {
        "schema": "specsim.probe/1",
        "specsim": "0.1.0",
        "date": "2026-11-29",
        "seconds": 120.0,
        "seed": 0,
        "device": device,
        "rates": rates,
        "target": target,
        "draft": {**target, "id": "eagle3", "points": [{**points[0], "seconds": 2e-4}]},
        "extend": None,
        "allreduce": None,
        "notes": [],
        **changes,
    }


def folder(tmp_path: Path, **changes: Any) -> str:
    write_directory(tmp_path / "probed", parse_probe(document(**changes), "made"))
    return str(tmp_path / "probed")


SGLANG = Stated(engine="sglang", engine_version="0.5.9")


def test_a_written_document_reads_back(tmp_path: Path) -> None:
    path = Path(folder(tmp_path))
    text = (path / "probe.json").read_text()
    again = parse_probe(json.loads(text), "file")
    assert again == parse_probe(document(), "made")
    assert again.to_json() == text
    assert "specsim calibrate probed server.log" in (path / "README.md").read_text()
    assert [p.name for p in tmp_path.iterdir()] == ["probed"]  # nothing temporary is left
    with pytest.raises(InputError, match="exists"):
        write_directory(path, again)


def test_nothing_is_left_where_writing_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(InputError, match="No space left"):
        write_directory(tmp_path / "probed", parse_probe(document(), "made"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"schema": "specsim.probe/2"}, "schema"),
        ({"rates": {"flops": -1.0}}, "rates.flops"),
        ({"device": {"kind": "tpu"}}, "device.kind"),
        ({"target": {"points": [{"batch": 1}]}}, "target.points.0"),
    ],
)
def test_a_wrong_field_is_named(change: dict[str, Any], field: str) -> None:
    with pytest.raises(FormatError, match=field):
        parse_probe(document(**change), "file")


def test_a_probe_is_read_as_rows_and_timings(tmp_path: Path) -> None:
    (entry,) = read_file(folder(tmp_path) + "/probe.json")
    assert entry.format == "probe"
    assert [(r.batch_size, r.round_time_s) for r in entry.rows] == list(LLAMA_S.items())
    assert [(t.phase, t.batch_size) for t in entry.timings] == [("verify", 4), ("draft", 1)]
    assert entry.windows.read == 6


def test_a_cut_probe_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "probe.json"
    path.write_text(json.dumps(document(), indent=1)[:900])
    with pytest.raises(FormatError, match="cut short"):
        read_file(path)


def test_calibrate_takes_a_probe_by_itself(tmp_path: Path) -> None:
    found = read_sources([folder(tmp_path)], SGLANG)
    gpu = found.setup.hardware.gpu
    assert isinstance(gpu, Gpu)
    assert (gpu.id, gpu.read_bandwidth, gpu.bandwidth_evidence) == ("h200-sxm", 4.3e12, "measured")
    assert gpu.gemm_flops_bf16 == 7.2e14
    assert gpu.flops_fp8 == load_gpu("h200-sxm").flops_fp8  # the library's, where not measured
    assert found.setup.model.id == "llama-3.1-8b"
    assert [r.concurrency for r in found.observations] == list(LLAMA_S)
    first = found.observations[0]
    assert first.context_len == 1024
    assert first.round_time_s == pytest.approx(4.2e-3 + 15e-6)  # sampling of a request, assumed
    assert 0.05 < first.weight < 0.09  # 10 % beside the 3 % of a weight of 1
    result = fit_profile(found.setup, found.observations, "probed")
    assert np.nanmax(np.abs(result.log_error)) < 0.15  # its own stated error and a half


def test_a_server_log_outweighs_a_probe(tmp_path: Path) -> None:
    """The log's step is 20 % longer than the probe's: the fit goes most of the way."""
    (entry,) = read_file(folder(tmp_path) + "/probe.json")
    rows = tuple(
        LogRow(batch_size=float(b), output_tps=b / (1.2 * s), windows=50)
        for b, s in LLAMA_S.items()
    )
    settings = {"algorithm": "none", "model": "llama-3.1-8b", "tp": 1}
    log = LogEntry("a.log", "sglang_log", "sglang", "0.5.9", settings, rows)
    found = gather([entry, log], Stated())
    assert len(found.observations) == 10
    result = fit_profile(found.setup, found.observations, "both")
    logged = [e for o, e in zip(result.observations, result.log_error, strict=True) if o.output_tps]
    assert np.abs(logged).mean() < 0.05


@pytest.mark.parametrize(
    ("change", "stated", "reason"),
    [
        ({"target": {"tp": 8}}, {"tp": 8, "gpu_count": 8}, "one GPU's share"),
        ({"target": {"dtype": "fp32"}}, {}, "ran in fp32"),
        ({}, {"quantisation": "fp8"}, "weights are in fp8"),
        ({}, {"model": "qwen3-8b"}, "they are of llama-3.1-8b"),
        ({"target": {"moe": "loop"}}, {}, "one by one"),
    ],
)
def test_steps_of_another_server_are_no_rows(
    change: dict[str, Any], stated: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    (entry,) = read_file(folder(tmp_path, **change) + "/probe.json")
    log = LogEntry(
        "a.log",
        "sglang_log",
        "sglang",
        "0.5.9",
        {"algorithm": "none"},
        (LogRow(batch_size=1.0, output_tps=200.0, windows=9),),
    )
    found = gather([entry, log], Stated(**stated))
    assert len(found.observations) == 1
    assert any(reason in note for note in found.notes)
    gpu = found.setup.hardware.gpu
    assert isinstance(gpu, Gpu)
    assert gpu.read_bandwidth == 4.3e12  # what the hardware does holds all the same


def test_a_probe_of_other_hardware_is_not_used(tmp_path: Path) -> None:
    stated = Stated(engine="sglang", engine_version="0.5.9", gpu="h100-sxm")
    with pytest.raises(CalibrationError):
        read_sources([folder(tmp_path)], stated)
    (entry,) = read_file(tmp_path / "probed" / "probe.json")
    log = LogEntry(
        "a.log", "sglang_log", rows=(LogRow(batch_size=1.0, output_tps=200.0, windows=9),)
    )
    found = gather([entry, log], stated)
    assert found.setup.hardware.gpu == "h100-sxm"
    assert any("measured on NVIDIA H200" in note for note in found.notes)


def test_a_device_outside_the_library_is_described_by_its_probe(tmp_path: Path) -> None:
    found = read_sources([folder(tmp_path, device={"name": "Imaginary 9000"})], SGLANG)
    gpu = found.setup.hardware.gpu
    assert isinstance(gpu, Gpu)
    assert (gpu.name, gpu.mem_bytes, gpu.bandwidth) == ("Imaginary 9000", 1.5e11, 4.3e12)


def test_the_allreduce_of_as_many_gpus_becomes_the_setups(tmp_path: Path) -> None:
    reduce = {
        "backend": "nccl",
        "ranks": 8,
        "graphs": True,
        "points": [
            {"size_bytes": size, "seconds": s}
            for size, s in ((8192, 9e-6), (65536, 1e-5), (1 << 20, 2.4e-5))
        ],
    }
    (entry,) = read_file(folder(tmp_path, allreduce=reduce, target={"tp": 8}) + "/probe.json")
    log = LogEntry(
        "a.log", "sglang_log", rows=(LogRow(batch_size=1.0, output_tps=300.0, windows=9),)
    )
    found = gather([entry, log], Stated(engine="sglang", engine_version="0.5.9"))
    assert found.setup.hardware.allreduce == ((8192, 9e-6), (65536, 1e-5), (1 << 20, 2.4e-5))
    other = gather([entry, log], Stated(engine="sglang", engine_version="0.5.9", tp=4))
    assert isinstance(other.setup.hardware.allreduce, str)


def test_a_setup_and_cells_of_ones_own_take_a_share_as_hardware(tmp_path: Path) -> None:
    """A tensor-parallel server's own cells beside the probe of one GPU's share."""
    setup, cells = tmp_path / "setup.toml", tmp_path / "observations.csv"
    setup.write_text(
        'schema = "specsim.setup/1"\n[hardware]\ngpu = "h200-sxm"\ngpu_count = 8\n'
        'link = "nvlink4"\n[model]\nid = "kimi-k2.5"\n'
        '[engine]\nname = "sglang"\nversion = "0.5.9"\ntp = 8\n'
    )
    cells.write_text(
        "kind,algorithm,topk,num_steps,num_draft_tokens,concurrency,output_tps\n"
        "closed_loop,none,1,0,1,1,90\n"
    )
    probed = folder(tmp_path, target={"tp": 8, "id": "kimi-k2.5"})
    found = read_sources([str(cells), probed], Stated(), str(setup))
    gpu = found.setup.hardware.gpu
    assert isinstance(gpu, Gpu)
    assert (gpu.id, gpu.read_bandwidth) == ("h200-sxm", 4.3e12)
    assert found.setup.engine.tp == 8
    assert len(found.observations) == 1
    as_folder = read_sources([str(tmp_path), probed], Stated())
    assert as_folder.setup == found.setup
    assert as_folder.observations == found.observations
    with pytest.raises(InputError, match="two calibration folders"):
        read_sources([str(tmp_path), str(tmp_path), probed], Stated())


def test_an_eager_probe_says_so(tmp_path: Path) -> None:
    (entry,) = read_file(folder(tmp_path, target={"graphs": False}) + "/probe.json")
    assert entry.codes == ("eager",)
