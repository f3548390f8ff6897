"""probe.json of ``specsim probe``: step times by batch, all-reduce, and what the hardware does."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from specsim.errors import FormatError
from specsim.logs.entry import Diagnosis, LogEntry, LogRow, Timing, WindowCount
from specsim.logs.json_values import json_values
from specsim.logs.source import as_lines

if TYPE_CHECKING:
    from specsim.probe.document import ProbeDocument, Stack


def read_probe(lines: Iterable[bytes] | Iterable[str], path: str = "-") -> list[LogEntry]:
    """Read one probe.json.

    Rows are plain decode steps (one token a request); verify steps, draft steps and draft extends
    are timings beside them: what a round costs besides these the probe cannot know.

    Parameters
    ----------
    lines
        Lines with their ends.
    path
        Name for the entry.

    Raises
    ------
    FormatError
        If it is damaged or of another schema; names the field.
    """
    from specsim.probe.document import parse_probe  # pydantic: other files are read without it

    value = next(iter(json_values(as_lines(lines))), None)
    if not isinstance(value, dict):
        raise FormatError(path, "is cut short or damaged", "restore the file, or probe anew")
    document = parse_probe(value, path)
    device, rates, target = document.device, document.rates, document.target
    settings: dict[str, object] = {
        "model": target.id,
        "gpu": device.name,
        "gpu_count": device.count,
        "tp": target.tp,
        "algorithm": "none",
        "dtype": target.dtype,
        "device": device.kind,
        "mem_bytes": device.mem_bytes,
        "read_bandwidth": rates.read_bytes_per_s,
        "gemm_flops": rates.flops,
        "launch_s": rates.graph_launch_s or rates.launch_s,
        "moe": target.moe,
        "date": document.date,
    }
    rows = tuple(
        LogRow(
            batch_size=float(point.batch),
            round_time_s=point.seconds,
            windows=point.repeats,
            cuda_graph=target.graphs,
            extra={"context_len": float(point.context_len), "error": point.error},
        )
        for point in target.points
        if point.width == 1
    )
    return [
        LogEntry(
            path=path,
            format="probe",
            settings={key: value for key, value in settings.items() if value is not None},
            rows=rows,
            windows=WindowCount(len(target.points), len(rows), _dropped(target)),
            timings=_timings(document),
            diagnoses=_diagnoses(document),
        )
    ]


def _dropped(target: Stack) -> dict[str, int]:
    verify = sum(point.width > 1 for point in target.points)
    return {"verify steps: timings, no rows": verify} if verify else {}


def _timings(document: ProbeDocument) -> tuple[Timing, ...]:
    found = [
        Timing(
            phase=phase,
            seconds=point.seconds,
            count=point.repeats,
            batch_size=point.batch,
            name=f"{stack.id}, {point.width} tokens each, {point.context_len} of context",
        )
        for phase, stack in (
            ("verify", document.target),
            ("draft", document.draft),
            ("extend", document.extend),
        )
        if stack is not None
        for point in stack.points
        if phase != "verify" or point.width > 1
    ]
    reduce = document.allreduce
    if reduce is not None:
        found += [
            Timing(
                phase="allreduce",
                seconds=point.seconds,
                size_bytes=point.size_bytes,
                ranks=reduce.ranks,
                name=f"torch.distributed {reduce.backend}",
            )
            for point in reduce.points
        ]
    return tuple(found)


def _diagnoses(document: ProbeDocument) -> tuple[Diagnosis, ...]:
    if document.device.kind == "cuda" and not document.target.graphs:
        return (Diagnosis("eager", "the steps ran without CUDA graphs: launches are in the times"),)
    return ()
