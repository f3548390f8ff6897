"""From what readers found to a setup and observations: what a calibration of logs starts from."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from specsim.calibrate import log_setup
from specsim.calibrate.log_setup import Known, Sources, Stated, count_of, speculates
from specsim.calibrate.rows import steps_are_priced
from specsim.engine.sglang import WHOLE_FORWARDS
from specsim.errors import CalibrationError
from specsim.logs import LogEntry, LogRow, Timing
from specsim.observations import SURVIVAL, Observation, checked, weight_of
from specsim.observations.observation import cell_text
from specsim.server import Setup
from specsim.setting import SpecSetting

USAGE_STEP = dict.fromkeys(("vllm_log", "vllm_iterations", "trtllm_log"), 0.001)
USAGE_STEP |= {"trtllm_stats": 0.0001, "server": 1e-6}
"""Step of the printed share of the KV cache in use; SGLang prints hundredths."""

CONTEXT_ERROR = 0.3  # relative error of the stated lengths as the context of the used windows
MANY_WINDOWS = 20  # the accept length of so many windows is that of the run, not of a cell


def gather(
    entries: Sequence[LogEntry],
    stated: Stated,
    base: Setup | None = None,
    *,
    rows_elsewhere: bool = False,
) -> Sources:
    """Turn the entries of all files into a setup and weighted observations.

    What is `stated` wins over the logs; `base` is a setup to start from instead of building one.
    Raises :class:`InputError`, which names every missing flag, if something that is needed is
    neither in the logs nor stated; :class:`CalibrationError` if no row can be used and there are no
    `rows_elsewhere`: a probe's hardware is worth having.
    """
    known = log_setup.collect(entries, stated)
    setup = base if base is not None else log_setup.build_setup(known, stated, entries)
    made: list[Observation] = []
    for probe in (e for e in entries if e.format == "probe"):
        from specsim.calibrate.probed import foreign, probe_rows, with_measured_gpu

        reason = foreign(probe, setup, log_setup.library_id(probe.settings["gpu"], "gpus"))
        if reason is not None:
            known.notes.append(f"{probe.path}: not used: {reason}")
            continue
        setup = with_measured_gpu(setup, probe)
        steps, about = probe_rows(probe, setup)
        made += steps
        known.notes += about
    logs = [e for e in entries if e.format != "probe"]
    observers = [_Observer(entry, known, stated, setup) for entry in logs]
    made += [observation for observer in observers for observation in observer.observations()]
    if not made and not rows_elsewhere:
        reasons = "; ".join(dict.fromkeys(known.notes))
        paths = ", ".join(sorted({e.path for e in entries})) or "no files"
        reason = "no usable measurement of decoding" + (f" ({reasons})" if reasons else "")
        remedy = "add a server log with decode lines, or a benchmark result"
        raise CalibrationError(paths, reason, remedy)
    rows = [checked(replace(o, row=i), f"logs, row {i}") for i, o in enumerate(made)]
    kept = [row for o in rows if (row := _with_priced_drafts(o, setup))]
    prompts = [o for observer in observers for o in observer.prompts(kept)]
    dropped = (_dropped(e) for e in logs if any(e.windows.dropped.values()))
    notes = (*dict.fromkeys(known.notes), *dropped)
    return Sources(setup, (*kept, *prompts), notes)


def _dropped(entry: LogEntry) -> str:
    dropped = sorted(entry.windows.dropped.items())
    listed = ", ".join(f"{count} {reason}" for reason, count in dropped if count)
    return f"{entry.path}: {entry.windows.used} windows used, dropped: {listed}"


def _with_priced_drafts(row: Observation, setup: Setup) -> Observation | None:
    """Leave out a drafting time that the model has nothing to compare with; None if nothing else.

    Of a lookup, of a single step whose token the draft extend gives, of a drafter not named.
    """
    if row.draft_time_s is None or steps_are_priced(row, setup):
        return row
    return replace(row, draft_time_s=None) if row.round_time_s is not None else None


@dataclass(frozen=True, slots=True)
class _Observer:
    """Makes observations of one entry."""

    entry: LogEntry
    known: Known  # of all entries; takes notes
    stated: Stated
    setup: Setup

    def observations(self) -> Iterator[Observation]:
        """Yield what can be used of an entry, and note why other rows cannot."""
        entry = self.entry
        for row in entry.rows:
            observation = self._of_row(row)
            if isinstance(observation, str):
                self._note(observation)
            else:
                yield observation
        if entry.format == "llamacpp":
            yield from self._of_drafting()
        elif "nccl" not in entry.format:
            yield from self._of_trace()
        if entry.format == "trtllm_log" and "algorithm" not in entry.settings and entry.rows:
            self._note(
                "it does not say whether drafts are verified, taken as without "
                "speculation; a speculating server needs its iteration statistics (JSON)"
            )

    def prompts(self, rows: Sequence[Observation]) -> Iterator[Observation]:
        """Yield prompts that ran alone in an iteration: what one client waits for."""
        settings = [o.setting for o in rows if o.source.startswith(f"{self.entry.path} (")]
        for timing in self.entry.timings:
            if timing.phase == "prefill" and self.entry.format.startswith("trtllm"):
                yield Observation(
                    kind="closed_loop",
                    setting=settings[0] if settings else SpecSetting.none(),
                    concurrency=1,
                    input_len=timing.prompt_tokens,
                    output_len=self.stated.output_len or self.setup.workload.output_len.mean,
                    ttft_s=timing.seconds,
                    source=self._source(f"{timing.count} prompts alone"),
                )

    def _note(self, text: str) -> None:
        self.known.notes.append(f"{self.entry.path}: {text}")

    def _source(self, what: str = "") -> str:
        more = f", {what}" if what else ""
        return " ".join(f"{self.entry.path} ({self.entry.format}{more})".split())

    def _setting(self) -> SpecSetting | None:
        return log_setup.setting_of(self.known.of_setting(self.entry), self.stated, self.entry.path)

    def _of_row(self, row: LogRow) -> Observation | str:
        """One observation of a row, or why there is none."""
        entry = self.entry
        setting = self._setting() if speculates(entry, row) else _plain(entry)
        if entry.format == "fpm":  # it says neither whether drafts are verified, nor of CPU gaps
            setting = self._setting() or _plain(entry)
            self._note(f"GPU times of forwards, without CPU gaps, taken as of {setting.label}")
            if setting.speculates and not self.setup.engine.parsed_version.since(WHOLE_FORWARDS):
                return f"before {WHOLE_FORWARDS} the times of speculating servers are not whole"
        if setting is None:
            return "a speculating row without its setting: add --steps, --topk, --draft-tokens"
        load = row.concurrency if row.kind == "closed_loop" else row.batch_size
        if load is None and setting.speculates and row.accept_length is not None:
            # acceptance alone, which is of any load
            row = replace(row, output_tps=None, tpot_s=None, round_time_s=None, ttft_s=None)
            load = 1.0
        if load is None or load < 0.5:
            return "a row without a number of running requests"
        if "one_rank" in entry.codes and self.setup.engine.dp > 1:
            return "one data-parallel rank's row: give a log of all, or a setup of one rank (dp 1)"
        drafts = setting.speculates
        output_tps, tpot_s, round_time_s = _speeds(entry, row)
        measured = (output_tps, tpot_s, round_time_s, row.accept_length if drafts else None)
        if all(value is None for value in measured):
            return "a row without throughput, TPOT, round time or accept length"
        scope = row.accept_length_scope
        if scope == "cell" and row.windows >= MANY_WINDOWS:
            scope = "run"
        looked_up = setting.algorithm == "NGRAM" and row.drafted_per_round is not None
        steady = row.kind == "steady_decode"
        prompt_len = row.input_len or entry.settings.get("prefill_tokens_per_sequence")
        return Observation(
            kind=row.kind,
            setting=setting,
            concurrency=max(1, round(load)),
            request_rate=row.request_rate if row.kind == "open_loop" else None,
            batch_size=_float(row.batch_size),
            max_running_requests=count_of(entry.settings, "max_running_requests"),
            # llama-server's throughput is of a steady window, not of a run from start to drain
            num_requests=None if entry.format == "llamacpp" else row.num_requests,
            input_len=None if steady else _float(prompt_len or self.stated.input_len),
            output_len=None if steady else _float(row.output_len or self.stated.output_len),
            input_cached=row.extra.get("input_cached"),
            context_len=self._context_len(row) if steady else None,
            output_tps=_float(output_tps),
            accept_length=_float(row.accept_length) if drafts else None,
            accept_length_scope=scope if drafts and row.accept_length is not None else None,
            survival=(row.survival or ())[: len(SURVIVAL)] if drafts else (),
            ttft_s=row.ttft_s,
            tpot_s=tpot_s,
            round_time_s=round_time_s,
            weight=0.5 if entry.format == "fpm" else _weight(row),
            source=self._source(f"{row.windows} windows"),
            # a lookup may find nothing: its share of rounds is fitted
            extra={"drafted_per_round": cell_text(row.drafted_per_round)} if looked_up else {},
        )

    def _context_len(self, row: LogRow) -> float:
        """KV tokens per request in steady windows: by the share of the pool, and by what is said.

        Of a few requests a printed share of a large pool says little.
        """
        if "context_len" in row.extra:  # a benchmark that sets it
            return row.extra["context_len"]
        capacity = count_of(self.entry.settings, "kv_tokens") or self.setup.engine.kv_tokens
        usual = self._usual_context()
        if not (row.kv_usage and capacity and row.batch_size):
            return round(usual, 1)
        tokens_per_unit = capacity / row.batch_size
        context = row.kv_usage * tokens_per_unit
        if self.stated.input_len is not None and self.stated.output_len is not None:
            step = USAGE_STEP.get(self.entry.format, 0.01) * tokens_per_unit
            trust = 1.0 / (1.0 + (step / (CONTEXT_ERROR * usual)) ** 2)
            context = trust * context + (1.0 - trust) * usual
        return round(context, 1)

    def _usual_context(self) -> float:
        workload = self.setup.workload
        return float(workload.input_len.mean + workload.output_len.mean / 2)

    def _of_drafting(self) -> Iterator[Observation]:
        """Drafting times that llama-server sums up: a call drafts for all slots that have one due.

        They are that of the mean number of slots, fewer than run where prompts keep some busy.
        """
        for timing in self.entry.timings:
            if not (timing.batch_size and timing.name.startswith("draft-")):
                continue
            if setting := self._setting():
                context, calls = self._usual_context(), f"{timing.count} calls of {timing.name}"
                times = {"context_len": context, "draft_time_s": timing.seconds}
                yield self._held(setting, timing.batch_size, calls, **times)

    def _of_trace(self) -> Iterator[Observation]:
        """Round times of a profiler's trace: decode, or draft + verify + extend of a batch."""
        by_batch: dict[int, dict[str, Timing]] = {}
        for timing in self.entry.timings:
            if timing.batch_size is not None:
                by_batch.setdefault(timing.batch_size, {})[timing.phase] = timing
        for batch, phases in sorted(by_batch.items()):
            seconds = {phase: timing.seconds for phase, timing in phases.items()}
            setting = self._setting() if "verify" in seconds else None
            if setting:
                round_s = sum(seconds.get(phase, 0.0) for phase in ("draft", "verify", "extend"))
            elif "decode" in seconds and "verify" not in seconds:
                setting, round_s = SpecSetting.none(), seconds["decode"]
            else:
                continue
            self._note("round times from a trace carry no CPU gaps")
            draft_s = seconds.get("draft") if setting.speculates else None
            yield self._held(setting, batch, round_time_s=round_s, draft_time_s=draft_s, weight=0.5)

    def _held(
        self, setting: SpecSetting, batch: int, what: str = "", **measured: Any
    ) -> Observation:
        """Return what was measured of a batch that was held."""
        measured["source"] = self._source(what)
        return Observation(kind="steady_decode", setting=setting, concurrency=batch, **measured)


def _plain(entry: LogEntry) -> SpecSetting:
    """Plain decoding, with the scheduler where the entry says it."""
    scheduler = entry.settings.get("scheduler")
    return SpecSetting.none(scheduler if scheduler in ("overlap", "sequential") else "auto")


def _speeds(entry: LogEntry, row: LogRow) -> tuple[float | None, float | None, float | None]:
    """Throughput, TPOT and round time of a row that a model can be compared with.

    What llama.cpp prints per request leaves the prompt out: a time per token, not the throughput
    of its client, which takes time stamps.
    """
    if entry.format == "llamacpp" and row.output_tps and row.output_tps_sem is None:
        return None, row.tpot_s or 1.0 / row.output_tps, None
    if row.output_tps is None and row.tpot_s is None:
        return None, None, row.round_time_s
    # Windows without prefill are those in which no request ends: the slow ones have more of
    # them. Their round time does not depend on that; their throughput does.
    steady = row.kind == "steady_decode" and speculates(entry, row)
    return row.output_tps, row.tpot_s, row.round_time_s if steady else None


def _weight(row: LogRow) -> float:
    """Relative inverse variance, of which the windows' standard error is a part."""
    if row.output_tps_sem is None or not row.output_tps:
        return 0.5 if row.windows <= 1 else 1.0
    return weight_of((row.output_tps_sem / row.output_tps) ** 2)


def _float(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None
