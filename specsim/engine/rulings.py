"""What an engine of a release says of a setting: the rows of ``rulings.csv``, in their order.

Beside them ``servers.csv``, which servers it refuses, ``states.csv``, what its state means, and
``attention.csv``, whose rows, of which the first that fits holds, were read in the wheels: vLLM
0.24.0 ``platforms/cuda.py:84`` (priorities) and ``v1/attention/backends`` (what each takes), SGLang
0.5.9 ``server_args.py:1772`` [@attention-kernels].
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache, partial

from specsim.engine.plan import DraftExtend, FirstDraft, GraphUnit, Prefill, RunPlan, Timeline
from specsim.engine.rules import EngineSpec, EngineVersion, parse_version, rows
from specsim.errors import EngineRefusal, InputError
from specsim.setting import Scheduler, SpecSetting


@dataclass(frozen=True, slots=True)
class Ruling:
    """What a rule says about a setting."""

    # The engine's own words, or the rule in short, with its versions: noted beside the setting.
    # Empty where there is nothing to say.
    rule: str
    # What the engine runs in place of the setting; None if it refuses, the setting itself if the
    # rule only asks for a note.
    instead: SpecSetting | None = None
    remedy: str = ""  # what to do about a refusal; --what-if is added
    bends: bool = False  # whether it bends what was asked for, so that --what-if keeps it


Rule = Callable[[SpecSetting, EngineSpec], Ruling | None]


@dataclass(frozen=True, slots=True)
class Verdict:
    """A setting after all rules: what is run or modelled, why it is refused, what to note."""

    setting: SpecSetting
    reason: str | None
    notes: tuple[str, ...]


def judge(
    setting: SpecSetting, engine: EngineSpec, what_if: bool, rules: Sequence[Rule] = ()
) -> Verdict:
    """Apply the stages of ``rulings.csv`` as they stand there, then rules of the engine's own.

    Parameters
    ----------
    setting
        As it is asked for.
    engine
        As it is launched.
    what_if
        Whether the setting is kept where the engine would refuse or bend it.
    rules
        What no row can say.

    Raises
    ------
    EngineRefusal
        In the engine's own words, if a rule refuses the setting and it is not a what-if.
    """
    staged = _staged(engine.name, engine.version)
    stages: list[Rule] = [partial(listed, stage=stage) for stage in staged]
    reasons: list[str] = []
    notes: list[str] = []
    for rule in (*stages, *rules):
        ruling = rule(setting, engine)
        if ruling is None:
            continue
        if ruling.instead is None:
            if not what_if:
                raise EngineRefusal(
                    f"{setting.label} ({setting.algorithm}, scheduler {setting.scheduler})",
                    engine.name,
                    engine.version,
                    ruling.rule,
                    f"{ruling.remedy}, or model it all the same with --what-if",
                )
            reasons.append(ruling.rule)
        elif what_if and ruling.bends:
            reasons.append(ruling.rule)
        else:
            setting = ruling.instead
            notes += [ruling.rule] if ruling.rule else []
    return Verdict(setting, "; ".join(reasons) or None, tuple(notes))


def run_plan(
    verdict: Verdict,
    engine: EngineSpec,
    *,
    max_running_requests: int,
    chunked_prefill_size: int,
    graph_sizes: tuple[int, ...],
    graph_unit: GraphUnit,
    overlapped: Timeline,
    prefill: Prefill = "mixed",
    alloc_tokens: int | None = None,
    reserved_tokens: int | None = None,
    draft_extend: DraftExtend = "verify",
    extend_eager: bool = False,
    first_draft: FirstDraft = "extend",
    notes: Sequence[str] = (),
) -> RunPlan:
    """Return the plan of a setting that was judged.

    Parameters
    ----------
    verdict
        What the rules say of the setting.
    engine
        As it is launched.
    max_running_requests, chunked_prefill_size
        Requests of one data-parallel rank, and prompt tokens of a step, at most.
    graph_sizes, graph_unit
        Captured sizes, and what they count; none where graphs are off.
    overlapped
        Who waits for whom under the overlap scheduler.
    prefill
        How a server prefills that does so itself.
    alloc_tokens, reserved_tokens
        KV slots of a request in a round, and those held beyond its committed tokens; None for the
        tokens that are verified.
    draft_extend, extend_eager, first_draft
        See :class:`RunPlan`; of a drafter without a KV cache there is no extend.
    notes
        What is to be told besides the states of the server and the rules.
    """
    setting = verdict.setting
    overlap = setting.scheduler == "overlap"
    alloc = setting.num_draft_tokens if alloc_tokens is None else alloc_tokens
    return RunPlan(
        setting=setting,
        engine=engine.name,
        version=engine.version,
        allowed=verdict.reason is None,
        reason=verdict.reason,
        notes=(*state_notes(engine), *verdict.notes, *notes),
        max_running_requests=max_running_requests,
        alloc_tokens=alloc,
        reserved_tokens_per_request=alloc if reserved_tokens is None else reserved_tokens,
        draft_extend=draft_extend if setting.follows_text else "none",
        extend_eager=extend_eager and setting.follows_text,
        graph_batch_sizes=() if engine.disable_cuda_graph else graph_sizes,
        graph_unit=graph_unit,
        prefill="elsewhere" if engine.disaggregation == "decode" else prefill,
        chunked_prefill_size=chunked_prefill_size,
        finish_lag_rounds=1 if overlap else 0,
        timeline=overlapped if overlap else "sequential",
        ranks=engine.dp,
        first_draft=first_draft,
    )


# --- rows of data


@cache
def _staged(engine: str, version: str) -> dict[str, list[dict[str, str]]]:
    stages: dict[str, list[dict[str, str]]] = {}
    for row in rows("rulings", engine):
        if _of_release(row, parse_version(version)):
            stages.setdefault(row["stage"], []).append(row)
    return stages


def listed(setting: SpecSetting, engine: EngineSpec, stage: str) -> Ruling | None:
    """Return what the first fitting row of a stage of ``rulings.csv`` says; None where none fits.

    A row holds of some algorithms (``*``: all that speculate), from release `since` and before
    `before`, and under all its conditions on fields of engine or setting: ``name>N``,
    ``name=value``, ``name!=value`` (a backend that is not stated is no other). Its effect is to
    refuse, a note, the whole chain, or the scheduler that runs (``bend``: another was asked for).
    """
    known = {setting.algorithm, "*" * setting.speculates}
    for row in _staged(engine.name, engine.version).get(stage, ()):
        named = not known.isdisjoint(row["algorithms"].split())
        if named and _applies(row, setting, engine):
            chain = replace(setting, topk=1, num_draft_tokens=setting.num_steps + 1)
            names: dict[str, object] = {"algorithm": setting.algorithm, "spec": engine}
            names |= {**row, "steps": setting.num_steps, "tokens": chain.num_draft_tokens}
            text, remedy = (row[part].format(**names) for part in ("text", "remedy"))
            bend, _, effect = row["effect"].rpartition(" ")
            if effect == "chain":  # of S drafts S + 1 tokens are verified
                tree = setting.topk > 1 and not bend
                return None if tree or setting == chain else Ruling(text, chain, bends=bool(bend))
            if effect in ("refuse", "note"):
                return Ruling(text, setting if effect == "note" else None, remedy)
            runs: Scheduler = "overlap" if effect == "overlap" else "sequential"
            return Ruling(text, setting.with_scheduler(runs), bends=bool(bend))
    return None


def server_refusal(engine: EngineSpec, kinds: Mapping[str, bool]) -> tuple[str, str] | None:
    """Return why ``servers.csv`` says that the engine refuses such a server, and the remedy."""
    for row in rows("servers", engine.name):
        named = all(map(kinds.get, row["kinds"].split()))
        holds = named and _of_release(row, engine.parsed_version)
        if holds and _applies(row, SpecSetting.none(), engine):
            return row["text"], row["remedy"].format(**row)
    return None


def _of_release(row: Mapping[str, str], version: EngineVersion) -> bool:
    since, before = row["since"] or "0", row["before"]
    return version.since(since) and not (before and version.since(before))


def _applies(row: Mapping[str, str], setting: SpecSetting, engine: EngineSpec) -> bool:
    """Whether the conditions of a row hold."""
    return all(_holds(condition, setting, engine) for condition in row["when"].split())


def _holds(condition: str, setting: SpecSetting, engine: EngineSpec) -> bool:
    name, sign, value = re.split(r"(!=|=|>)", condition)
    said = getattr(engine if hasattr(engine, name) else setting, name)
    if sign == ">":
        return int(said) > int(value)
    return str(said) == value if sign == "=" else str(said) not in ("", value)


def state_notes(engine: EngineSpec) -> list[str]:
    """Return what ``states.csv`` says of fields that are set; what has a remedy is refused."""
    notes: dict[str, str] = {}
    defaults = {field.name: field.default for field in fields(engine)}
    for row in rows("states", engine.name):
        name, value = row["field"], getattr(engine, row["field"])
        if value == defaults[name] or name in notes:
            continue
        given = f"{engine.name}, {name} = {value}"
        if value == "prefill":
            raise InputError(given, "such a server decodes nothing", "ask about the decode server")
        if row["remedy"]:
            raise InputError(given, row["text"], row["remedy"])
        notes[name] = row["text"].format(value=value)
    return list(notes.values())


# --- attention kernels: which one is taken where none is stated, and how it verifies

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

    Parameters
    ----------
    engine
        Its name and what it was told.
    compute_capability
        None where the GPU is none of NVIDIA's, or nobody says.
    latent
        Whether the cache is one of latent attention.
    small_kv
        Whether it has 8 bits or fewer per number.

    Examples
    --------
    >>> attention_kernel(EngineSpec("vllm", "0.24.0"), 12.0, False, False).name
    'fa2'
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
