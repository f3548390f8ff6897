"""The options that commands share, each declared once.

Options that belong together are the fields of a frozen dataclass. A command takes such a group by
naming it, ``@takes(server=Server)``, and gets one object. Single options are plain decorators of
click, as are those that one command alone has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from specsim.cli import values

if TYPE_CHECKING:
    from specsim.cli.settings import Settings
    from specsim.setting import Algorithm, Scheduler, SpecSetting
    from specsim.workload import Workload

Run = Callable[..., None]


def option(*names: str, **attributes: Any) -> Any:
    """Return a field of a group: the names and attributes are those of ``click.option``."""
    return field(metadata={"names": names, "attributes": attributes})


def takes(**groups: type) -> Callable[[Run], Run]:
    """Give a command the options of groups, each of which arrives as one object under its name."""

    def decorated(run: Run) -> Run:
        @wraps(run)
        def called(**said: Any) -> None:
            made = {
                name: group(**{part.name: said.pop(part.name) for part in fields(group)})
                for name, group in groups.items()
            }
            run(**made, **said)

        for group in reversed(groups.values()):
            for part in reversed(fields(group)):
                names, attributes = part.metadata["names"], part.metadata["attributes"]
                called = click.option(*names, part.name, **attributes)(called)
        return called

    return decorated


def words_of(group: Any) -> Iterator[str]:
    """Yield the command line that fills a group so: option, value, option, value."""
    for part in fields(group):
        value, flag = getattr(group, part.name), part.metadata["names"][0]
        for one in value if isinstance(value, tuple) else (value,):
            if one is not None:
                yield from (flag, f"{one:g}" if isinstance(one, float) else str(one))


# --- groups


@dataclass(frozen=True)
class Drafting:
    """One setting by its numbers, under SGLang's names too."""

    topk: int | None = option(
        "--topk",
        "--speculative-eagle-topk",
        metavar="K",
        callback=values.whole(),
        help="Branches per step; 1 is a chain.",
    )
    steps: int | None = option(
        "--steps",
        "--speculative-num-steps",
        metavar="S",
        callback=values.whole(),
        help="Depth of the draft.",
    )
    draft_tokens: int | None = option(
        "--draft-tokens",
        "--speculative-num-draft-tokens",
        metavar="N",
        callback=values.whole(),
        help="Tokens verified per round, root included. Default: all that the tree can offer.",
    )
    algorithm: Algorithm | None = option(
        "--algorithm",
        "--speculative-algorithm",
        metavar="A",
        callback=values.parsed("specsim.setting", "parse_algorithm"),
        shell_complete=values.named("specsim.setting", "Algorithm"),
        help="EAGLE, EAGLE3, MTP, STANDALONE, NGRAM or none. Default: the profile's.",
    )


@dataclass(frozen=True)
class Asked(Drafting):
    """The settings that are asked about, besides those in plain words."""

    config_list: tuple[str, ...] = option(
        "--config-list",
        metavar="S,K,N ...",
        multiple=True,
        help="Several settings: steps, topk, draft tokens.",
    )
    files: tuple[str, ...] = option(
        "--settings",
        metavar="FILE",
        type=values.FILE,
        multiple=True,
        help="JSON file of settings.",
    )
    scheduler: Scheduler = option(
        "--scheduler",
        metavar="auto|sequential|overlap",
        default="auto",
        callback=values.one_of("scheduler", "specsim.setting", "Scheduler"),
        shell_complete=values.named("specsim.setting", "Scheduler"),
        help="auto is what the engine's version does by itself.",
    )

    def settings(self, default: Algorithm | None, words: tuple[str, ...] = ()) -> Settings:
        """Collect the settings; `default` drafts those that do not say how, EAGLE3 for None."""
        from specsim.cli.settings import asked_settings

        return asked_settings(self, self.algorithm or default or "EAGLE3", words)


@dataclass(frozen=True)
class Lengths:
    """Lengths of the requests."""

    input_len: float | None = option(
        "--input-len",
        "--isl",
        metavar="N",
        callback=values.number(),
        help="Prompt tokens. Default: profile's.",
    )
    output_len: float | None = option(
        "--output-len",
        "--osl",
        metavar="N",
        callback=values.number(),
        help="Answer tokens. Default: profile's.",
    )

    def workload(self, base: Workload) -> Workload | None:
        """Return the requests with these lengths; None if none are asked for."""
        from dataclasses import replace

        from specsim.workload import Lengths as Spread

        said, own = (self.input_len, self.output_len), (base.input_len, base.output_len)
        if said == (None, None):
            return None
        input_len, output_len = (
            of if mean is None else Spread(mean, of.cv) for mean, of in zip(said, own, strict=True)
        )
        return replace(
            base,
            input_len=input_len,
            output_len=output_len,
            input_cached=base.input_cached if input_len.mean == base.input_len.mean else 0.0,
            evidence=base.evidence if None in said else "measured",
        )


@dataclass(frozen=True)
class Requests(Lengths):
    """Lengths of the requests, and whose acceptance they have."""

    dataset: str | None = option("--dataset", metavar="D", help="Whose acceptance. Default: first.")
    temperature: float | None = option(
        "--temperature", metavar="T", callback=values.number(), help="Whose acceptance."
    )


# --- single options

words = click.argument("words", metavar="[S,K,N|FILE]...", nargs=-1, type=values.FILE)
"""Settings (steps, topk, draft tokens), or JSON files of settings."""

concurrency = click.option(
    "--concurrency",
    metavar="1,2,5,...",
    callback=values.concurrency,
    help="Clients in flight. Default: 1 to 250.",
)

max_running_requests = click.option(
    "--max-running-requests",
    metavar="N",
    callback=values.whole(),
    help="Cap of requests that run at once.",
)

max_draft_tokens = click.option(
    "--max-draft-tokens",
    metavar="N",
    default="64",
    callback=values.whole(),
    help="Most tokens verified per round.",
)

max_steps = click.option(
    "--max-steps", metavar="S", default="8", callback=values.whole(), help="Deepest draft."
)

mix = click.option(
    "--mix", metavar="1:0.5,30:0.5", callback=values.mix, help="Share of the time by load."
)

measured = click.option(
    "--observations",
    metavar="FILE",
    type=values.FILE,
    help="observations.csv that the profile was fitted to: which settings were measured.",
)

what_if = click.option("--what-if", is_flag=True, help="Model what the engine's version refuses.")

seed = click.option(
    "--seed", metavar="N", default="0", callback=values.seed, help="Of the random numbers."
)

plot = click.option("--plot", metavar="FILE", type=values.FILE, help="Draw to .png, .svg or .pdf.")


def solver(default: str) -> Callable[[Run], Run]:
    """Return the option ``--solver``."""
    return click.option(
        "--solver",
        metavar="simulate|analytic",
        default=default,
        callback=values.one_of("solver", "specsim.curve", "Solver"),
        shell_complete=values.named("specsim.curve", "Solver"),
        help="analytic is instant, and close by.",
    )


def as_json(schema: str) -> Callable[[Run], Run]:
    """Return the option ``--json``, which prints a document of that schema and nothing else."""
    return click.option("--json", "as_json", is_flag=True, help=f"Print {schema} only.")


def measured_settings(observations: str | None) -> tuple[SpecSetting, ...]:
    """Return the settings of a file of observations, each once; nothing for None."""
    from specsim.observations import read_observations

    if observations is None:
        return ()
    rows = read_observations(observations).rows
    return tuple(dict.fromkeys(row.setting for row in rows if row.setting.speculates))
