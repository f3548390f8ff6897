"""Steady decode: a batch held at a context, no prefill, measured over windows.

Windows are repeated with requests drawn anew until enough tokens have been seen. Without a length
the window is so short that the KV cache does not grow in it.
"""

import math

import numpy as np
from numpy.typing import NDArray

from specsim.acceptance import REQUESTS
from specsim.arrays import Floats
from specsim.case import Case
from specsim.metrics import REQUEST_DTYPE
from specsim.simulate.demand import Streams, running_quantiles
from specsim.simulate.pricing import RoundPricer
from specsim.simulate.records import ROUND_DTYPE, Tables
from specsim.simulate.summary import SimulationResult

HELD_ROUNDS = 64
"""Rounds of a window without a length."""

REQUEST_ROUNDS = 20_000
"""Rounds times requests to see by default: a standard error of the accept length near 0.4 %."""

LEAST_GROUPS = 8
"""Fewest groups of windows; in each group every request quantile is met alike."""


def held_batch(case: Case) -> int:
    """Count the requests that are held: as many as asked for, if slots and pool allow."""
    return min(case.load.concurrency, case.fitting)


def steady_decode(
    case: Case,
    streams: Streams,
    pricer: RoundPricer,
    requests: int | None,
    record_rounds: bool,
) -> SimulationResult:
    """Simulate windows one after another.

    `requests` are held, all windows together; None for `REQUEST_ROUNDS` of them times rounds.
    """
    batch = held_batch(case)
    context, window_s = case.load.context_len or 0.0, case.load.window_s
    most = HELD_ROUNDS
    if window_s:
        shortest = float(pricer.round_s(batch, np.array([batch * context]))[0])
        most = max(1, math.ceil(window_s / shortest))
    wanted = math.ceil(REQUEST_ROUNDS / most) if requests is None else requests
    group = math.ceil(REQUESTS / batch)
    groups = max(LEAST_GROUPS, math.ceil(wanted / (batch * group)))
    drawn = [running_quantiles(case.table, streams.quantile, batch * group) for _ in range(groups)]
    windows = []
    for quantile in np.concatenate(drawn).reshape(-1, batch):
        tokens = case.table.emitted(quantile, streams.accept.random((len(quantile), most)))
        each = tokens.sum(axis=0)
        grown = np.cumsum(each) - each if window_s else np.zeros(most)
        kv = batch * context + grown
        length = pricer.round_s(batch, kv)
        last = most
        if window_s:
            last = min(most, 1 + int(np.searchsorted(np.cumsum(length), window_s)))
        windows.append((tokens[:, :last], kv[:last], length[:last]))
    return _result(batch, group, windows, pricer, context, record_rounds)


def _result(
    batch: int,
    group: int,
    windows: list[tuple[NDArray[np.int16], Floats, Floats]],
    pricer: RoundPricer,
    context: float,
    record_rounds: bool,
) -> SimulationResult:
    tokens, kv, lengths = zip(*windows, strict=True)
    counts = [len(length) for length in lengths]
    bounds = np.concatenate([[0.0], np.cumsum(np.concatenate(lengths))])
    rounds = np.zeros(sum(counts), dtype=ROUND_DTYPE)
    rounds["start_s"], rounds["end_s"] = bounds[:-1], bounds[1:]
    rounds["batch"] = rounds["running"] = rounds["active"] = batch
    rounds["kv_tokens"] = np.rint(np.concatenate(kv))
    rounds["tokens"] = np.concatenate([t.sum(axis=0) for t in tokens])
    rounds["accepted"] = rounds["tokens"] - batch
    edges = bounds[np.concatenate([[0], np.cumsum(counts)])]
    spans = np.diff(edges)
    emitted = np.array([t.sum() for t in tokens], dtype=np.float64)
    output_tps = float(emitted.sum() / edges[-1])
    residual = (emitted - output_tps * spans).reshape(-1, group).sum(axis=1)
    groups = len(residual)
    error = math.sqrt(float(residual @ residual) * groups / (groups - 1)) / float(edges[-1])
    requests = np.zeros(len(windows) * batch, dtype=REQUEST_DTYPE)
    for name in ("arrival_s", "admitted_s", "first_token_s"):
        requests[name] = np.repeat(edges[:-1], batch)
    for name in ("last_token_s", "finished_s"):
        requests[name] = np.repeat(edges[1:], batch)
    requests["input_len"] = round(context)
    requests["tokens"] = requests["output_len"] = np.concatenate([t.sum(axis=1) for t in tokens])
    requests["rounds"] = np.repeat(counts, batch)
    requests["measured"] = True
    per_token = np.repeat(spans, batch) / requests["tokens"]
    p50, p99 = np.percentile(per_token, (50, 99)).tolist()
    none = Tables.none()
    return SimulationResult(
        requests=requests,
        rounds=rounds if record_rounds else none.rounds,
        prefills=none.prefills,
        retractions=none.retractions,
        window_s=(0.0, float(edges[-1])),
        output_tps=output_tps,
        output_tps_se=error,
        batch_size=float(batch),
        round_s=float(edges[-1]) / sum(counts),
        accept_length=float(emitted.sum() / (batch * sum(counts))),
        tpot_s=batch / output_tps,
        tpot_p50_s=p50,
        tpot_p99_s=p99,
        ttft_s=math.nan,
        ttft_p50_s=math.nan,
        ttft_p99_s=math.nan,
        pricers=(pricer,),
        deliveries=none.deliveries,
    )
