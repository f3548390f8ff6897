"""How a rule of an engine meets a setting: it refuses, or it runs something else instead."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from specsim.engine.setup import EngineSetup
from specsim.errors import EngineRefusal
from specsim.setting import SpecSetting


@dataclass(frozen=True, slots=True)
class Ruling:
    """What a rule says about a setting.

    Parameters
    ----------
    rule
        The engine's own words, or the rule in short, with its versions.
        Noted beside the setting; empty where there is nothing to say.
    instead
        What the engine runs in place of the setting; None if it refuses, the setting itself if
        the rule only asks for a note.
    remedy
        What to do about a refusal; ``--what-if`` is added.
    bends
        Whether the engine bends what was asked for, so that ``--what-if`` keeps it.
    """

    rule: str
    instead: SpecSetting | None = None
    remedy: str = ""
    bends: bool = False


Rule = Callable[[SpecSetting, EngineSetup], Ruling | None]


@dataclass(frozen=True, slots=True)
class Verdict:
    """A setting after all rules: what is run or modelled, why it is refused, what to note."""

    setting: SpecSetting
    reason: str | None
    notes: tuple[str, ...]


def judge(
    setting: SpecSetting, engine: EngineSetup, rules: Iterable[Rule], what_if: bool
) -> Verdict:
    """Apply the rules in order.

    Raises
    ------
    EngineRefusal
        If a rule refuses the setting and it is not a what-if.
    """
    reasons: list[str] = []
    notes: list[str] = []
    for rule in rules:
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


def scheduler_default(setting: SpecSetting, overlap: bool) -> SpecSetting:
    """Return the setting with `auto` replaced by what the engine does by itself."""
    if setting.scheduler != "auto":
        return setting
    return setting.with_scheduler("overlap" if overlap else "sequential")


def as_chain(setting: SpecSetting) -> SpecSetting:
    """Return the chain of the same depth, all of it verified: n = S + 1."""
    return replace(setting, topk=1, num_draft_tokens=setting.num_steps + 1)
