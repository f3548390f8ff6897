"""Options of the command line as data: each declared once, in groups that arrive as one object.

A group is a frozen dataclass whose fields are made by `option`, `flag`, `file` and `argument`. A
command names its groups and is called with one object of each:

    @command("plan", AnyServer, Requests, Options)
    def plan_command(server: AnyServer, requests: Requests, how: Options) -> None:
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from inspect import getdoc
from typing import TYPE_CHECKING, Any

import click

from specsim.cli import values

if TYPE_CHECKING:
    from specsim.cli.settings import Settings
    from specsim.cli.values import Callback, Completion
    from specsim.setting import Algorithm, Scheduler, SpecSetting
    from specsim.workload import Workload


def command(name: str, *groups: type) -> Callable[[Callable[..., None]], click.Command]:
    """Make a function a command: it is called with one object of each group, in their order."""

    def decorated(run: Callable[..., None]) -> click.Command:
        def called(**said: Any) -> None:
            made = ({part.name: said[part.name] for part in fields(group)} for group in groups)
            run(*(group(**own) for group, own in zip(groups, made, strict=True)))

        parameters = [_parameter(part.name, part.metadata) for g in groups for part in fields(g)]
        return click.Command(name, params=parameters, callback=called, help=getdoc(run))

    return decorated


def _parameter(name: str, declared: Any) -> click.Parameter:
    names, attributes = declared["names"], declared["attributes"]
    if not names:
        return click.Argument([name], **attributes)
    return click.Option([*names, name], **attributes)


def option(
    names: str,
    metavar: str,
    about: str,
    read: Callback | None = None,
    complete: Completion | None = None,
    **attributes: Any,
) -> Any:
    """Return a field that an option with a value fills; `attributes` are those of click."""
    attributes |= {"metavar": metavar, "help": about, "callback": read, "shell_complete": complete}
    return field(metadata={"names": names.split(), "attributes": attributes})


def file(names: str, about: str, metavar: str = "FILE", **attributes: Any) -> Any:
    """Return a field that the name of a file fills, which the shell completes."""
    return option(names, metavar, about, type=values.FILE, **attributes)


def flag(names: str, about: str) -> Any:
    """Return a field that is true if the option is given."""
    attributes = {"is_flag": True, "help": about}
    return field(metadata={"names": names.split(), "attributes": attributes})


def argument(metavar: str, **attributes: Any) -> Any:
    """Return a field that words without an option fill."""
    attributes |= {"metavar": metavar, "type": values.FILE}
    return field(metadata={"names": (), "attributes": attributes})


def words_of(group: Any) -> Iterator[str]:
    """Yield the command line that fills a group so: option, value, option, value."""
    for part in fields(group):
        said = getattr(group, part.name)
        for value in said if isinstance(said, tuple) else (said,):
            if value is not None:
                yield part.metadata["names"][0]
                yield f"{value:g}" if isinstance(value, float) else str(value)


# --- options that several groups have


def words() -> Any:
    """Return the settings, or files of settings, that are asked for in plain words."""
    return argument("[S,K,N|FILE]...", nargs=-1)


def concurrency() -> Any:
    """Return ``--concurrency``: loads, or None."""
    about = "Clients in flight. Default: 1 to 250."
    return option("--concurrency", "1,2,5,...", about, values.concurrency)


def max_running_requests() -> Any:
    """Return ``--max-running-requests``."""
    about = "Cap of requests that run at once."
    return option("--max-running-requests", "N", about, values.whole())


def max_draft_tokens() -> Any:
    """Return ``--max-draft-tokens``."""
    about = "Most tokens verified per round."
    return option("--max-draft-tokens", "N", about, values.whole(), default="64")


def max_steps() -> Any:
    """Return ``--max-steps``."""
    return option("--max-steps", "S", "Deepest draft.", values.whole(), default="8")


def slo(example: str, about: str) -> Any:
    """Return ``--slo``: targets, or None."""
    return option("--slo", example, about, values.parsed("specsim.decide.slo", "parse_slo"))


def mix() -> Any:
    """Return ``--mix``: pairs of load and share."""
    return option("--mix", "1:0.5,30:0.5", "Share of the time by load.", values.mix)


def measured() -> Any:
    """Return ``--observations`` of what a profile was fitted to."""
    about = "observations.csv that the profile was fitted to: which settings were measured."
    return file("--observations", about)


def solver(default: str) -> Any:
    """Return ``--solver``."""
    return option(
        "--solver",
        "simulate|analytic",
        "analytic is instant, and close by.",
        values.one_of("solver", "specsim.curve", "Solver"),
        values.named("specsim.curve", "Solver"),
        default=default,
    )


def what_if() -> Any:
    """Return ``--what-if``."""
    return flag("--what-if", "Model what the engine's version refuses.")


def seed() -> Any:
    """Return ``--seed``."""
    return option("--seed", "N", "Of the random numbers.", values.seed, default="0")


def plot(names: str = "--plot") -> Any:
    """Return ``--plot``."""
    return file(names, "Draw to .png, .svg or .pdf.")


def as_json(schema: str) -> Any:
    """Return ``--json``, which prints a document of that schema."""
    return flag("--json", f"Print {schema} only.")


# --- groups


@dataclass(frozen=True)
class Drafting:
    """One setting by its numbers, under SGLang's names too."""

    topk: int | None = option(
        "--topk --speculative-eagle-topk", "K", "Branches per step; 1 is a chain.", values.whole()
    )
    steps: int | None = option(
        "--steps --speculative-num-steps", "S", "Depth of the draft.", values.whole()
    )
    draft_tokens: int | None = option(
        "--draft-tokens --speculative-num-draft-tokens",
        "N",
        "Tokens verified per round, root included. Default: all that the tree can offer.",
        values.whole(),
    )
    algorithm: Algorithm | None = option(
        "--algorithm --speculative-algorithm",
        "A",
        "EAGLE, EAGLE3, MTP, STANDALONE, NGRAM or none. Default: the profile's.",
        values.parsed("specsim.setting", "parse_algorithm"),
        values.named("specsim.setting", "Algorithm"),
    )

    @property
    def setting(self) -> SpecSetting | None:
        """The one setting of these numbers; None if there are none."""
        from specsim.setting import SpecSetting

        if self.steps is None:
            return None
        return SpecSetting.of(self.topk, self.steps, self.draft_tokens, self.algorithm or "EAGLE3")


@dataclass(frozen=True)
class Asked(Drafting):
    """The settings that are asked about, by options."""

    config_list: tuple[str, ...] = option(
        "--config-list",
        "S,K,N ...",
        "Several settings: steps, topk, draft tokens.",
        multiple=True,
    )
    files: tuple[str, ...] = file("--settings", "JSON file of settings.", multiple=True)
    scheduler: Scheduler = option(
        "--scheduler",
        "auto|sequential|overlap",
        "auto is what the engine's version does by itself.",
        values.one_of("scheduler", "specsim.setting", "Scheduler"),
        values.named("specsim.setting", "Scheduler"),
        default="auto",
    )

    def settings(self, default: Algorithm | None, words: tuple[str, ...] = ()) -> Settings:
        """Collect the settings; `default` drafts those that do not say how, EAGLE3 for None."""
        from specsim.cli.settings import asked_settings

        return asked_settings(self, self.algorithm or default or "EAGLE3", words)


@dataclass(frozen=True)
class Lengths:
    """Lengths of the requests."""

    input_len: float | None = option(
        "--input-len --isl", "N", "Prompt tokens. Default: profile's.", values.number()
    )
    output_len: float | None = option(
        "--output-len --osl", "N", "Answer tokens. Default: profile's.", values.number()
    )

    def workload(self, base: Workload) -> Workload:
        """Return the requests of a profile with these lengths."""
        from specsim.question import Question

        return Question(input_len=self.input_len, output_len=self.output_len).workload(base)


@dataclass(frozen=True)
class Requests(Lengths):
    """Lengths of the requests, and whose acceptance they have."""

    dataset: str | None = option("--dataset", "D", "Whose acceptance. Default: first.")
    temperature: float | None = option("--temperature", "T", "Whose acceptance.", values.number())


def measured_settings(observations: str | None) -> tuple[SpecSetting, ...]:
    """Return the settings of a file of observations, each once; nothing for None."""
    from specsim.observations import read_observations

    if observations is None:
        return ()
    rows = read_observations(observations).rows
    return tuple(dict.fromkeys(row.setting for row in rows if row.setting.speculates))
