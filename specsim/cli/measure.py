"""``specsim measure``: loads on a running server, and the cells that they give."""

from __future__ import annotations

from dataclasses import dataclass

from specsim.cli import options as opt
from specsim.cli import output
from specsim.cli.options import argument, command, file, filled, option
from specsim.cli.readers import number, whole
from specsim.errors import InputError

SCHEMA = "specsim.loads/1"


@dataclass(frozen=True)
class Options(opt.Lengths):
    """Which loads, and how much of them."""

    url: str = argument("URL", required=True)
    plan: str | None = file("Loads that specsim plan -o wrote.")
    concurrency: tuple[int, ...] | None = opt.concurrency()
    temperature: float | None = option("T", "Of sampling. Default: the plan's, or 0.", number(0))
    prompts: str | None = file("Prompts, one a line: acceptance is theirs. Default: random words.")
    most_requests: int = option("N", "In all.", whole(1), names="--max-requests", default="2000")
    most_tokens: int = option("N", "In all.", whole(1), names="--max-tokens", default="2000000")
    target: str = opt.written("observations.csv to write.", names="--output -o", required=True)


@command("measure", opt.Drafting, Options)
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
    from specsim.textfile import read_text, read_toml

    plan = {} if how.plan is None else read_toml(how.plan, "a plan of specsim plan -o")
    if how.plan is not None and plan.get("schema") != SCHEMA:
        raise InputError(how.plan, f"is not {SCHEMA}", "write it with specsim plan -o")
    watch = Watch(find(how.url))
    watch.start()
    output.remark(watch.server.notes)
    said = watch.entry().settings
    setting = setting_of(said, filled(Stated, drafting), how.url)
    if setting is None and (drafting.algorithm or said.get("algorithm")) != "none":
        remedy = "say it: --steps (and --topk, --draft-tokens), or --algorithm none"
        raise InputError(how.url, "does not tell its setting", remedy)
    wanted = {
        key: plan.get(key, otherwise) if (own := getattr(how, key)) is None else own
        for key, otherwise in (
            ("concurrency", [1, 4, 16]),
            ("input_len", 1024),
            ("output_len", 512),
            ("temperature", 0.0),
        )
    }
    load = Load(
        setting or SpecSetting.none(),
        concurrency=tuple(map(int, wanted["concurrency"])),
        input_len=int(wanted["input_len"]),
        output_len=int(wanted["output_len"]),
        temperature=float(wanted["temperature"]),
        prompts=read_text(how.prompts, "prompts").splitlines() if how.prompts else (),
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
