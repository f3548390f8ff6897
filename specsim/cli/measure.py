"""``specsim measure``: loads on a running server, and the cells that they give."""

from dataclasses import dataclass
from typing import Any

from specsim.cli import options as opt
from specsim.cli import output
from specsim.errors import InputError

SCHEMA = "specsim.loads/1"


@dataclass(frozen=True)
class Options(opt.Lengths):
    """Which loads, and how much of them."""

    url: str
    plan: str | None
    concurrency: tuple[int, ...] | None
    temperature: float | None
    prompts: str | None
    most_requests: int
    most_tokens: int
    target: str


@opt.command("measure", opt.Drafting, Options)
def measure_command(drafting: opt.Drafting, how: Options) -> None:
    """Put loads on a running server, and write a cell of observations for each.

    A closed loop of streams on /v1/completions: four requests per client. Ctrl-C keeps the cells
    that are whole. The server says its setting, else --steps or --algorithm none.

    Example: specsim measure http://localhost:8000 --plan plan.toml -o cells.csv
    """
    from specsim.calibrate.log_setup import Stated, setting_of
    from specsim.live.measure import Load, cells
    from specsim.live.server import find
    from specsim.live.watch import Watch
    from specsim.observations import Observation, write_observations
    from specsim.setting import SpecSetting
    from specsim.textfile import read_text

    plan = {} if how.plan is None else _plan(how.plan)
    watch = Watch(find(how.url))
    watch.start()
    output.remark(watch.server.notes)
    said = watch.entry().settings
    setting = setting_of(said, opt.filled(Stated, drafting), how.url)
    if setting is None and (drafting.algorithm or said.get("algorithm")) != "none":
        remedy = "say it: --steps (and --topk, --draft-tokens), or --algorithm none"
        raise InputError(how.url, "does not tell its setting", remedy)
    lines = read_text(how.prompts, "prompts").splitlines() if how.prompts else ()
    prompts = [line for line in lines if line.strip()]
    if not prompts:
        why = "what drafts are accepted of them is not what your traffic's are (--prompts FILE)"
        output.remark([f"prompts are random words: {why}"])
    load = Load(
        setting or SpecSetting.none(),
        how.concurrency or tuple(plan.get("concurrency", (1, 4, 16))),
        int(how.input_len or plan.get("input_len", 1024)),
        int(how.output_len or plan.get("output_len", 512)),
        plan.get("temperature", 0.0) if how.temperature is None else how.temperature,
        prompts=prompts,
        most_requests=how.most_requests,
        most_tokens=how.most_tokens,
    )
    measured: list[Observation] = []
    try:
        with output.progress_bar(f"measuring {load.setting.brief}") as progress:
            for cell in cells(watch.server, load, progress):
                if isinstance(cell, str):
                    output.remark([cell])
                else:
                    measured.append(cell)
                    tau = f", accepts {cell.accept_length:.2f}" if load.setting.speculates else ""
                    output.remark([f"{cell.concurrency} clients: {cell.output_tps:.1f} tok/s{tau}"])
    finally:  # an interrupt, or a server that fails, leaves the cells that are whole
        if measured:
            write_observations(how.target, measured)
            output.remark([f"wrote {how.target}"])
    for sweep in plan.get("sweep", [])[:1]:
        if sweep != load.setting.brief:
            output.remark([f"the plan asks for {sweep} first: launch that and measure again"])


def _plan(path: str) -> dict[str, Any]:
    """Read loads, lengths and settings that ``specsim plan -o`` wrote."""
    from specsim.textfile import read_toml

    plan = read_toml(path, "a plan")
    numbers = [plan.get(key) for key in ("input_len", "output_len", "temperature")]
    loads, sweep = (plan.get(key) for key in ("concurrency", "sweep"))
    whole = isinstance(loads, list) and all(type(n) is int and n > 0 for n in loads)
    good = whole and isinstance(sweep, list) and all(type(n) in (int, float) for n in numbers)
    if not good or plan.get("schema") != SCHEMA:
        raise InputError(path, f"is not {SCHEMA}", "write it with specsim plan -o")
    return plan
