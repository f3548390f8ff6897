"""specsim: which speculative-decoding setting to launch, before a GPU hour is spent.

    import specsim
    curve = specsim.load_profile().predict(topk=2, num_steps=2)
    curve.to_frame()

The names below are imported when they are first used, so that ``specsim --help`` stays instant.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from specsim.acceptance import Acceptance as Acceptance
    from specsim.curve import Curve as Curve
    from specsim.curve import CurvePoint as CurvePoint
    from specsim.curve import Series as Series
    from specsim.errors import SpecsimError as SpecsimError
    from specsim.profile import Profile as Profile
    from specsim.profile import load_profile as load_profile
    from specsim.profile import profile_names as profile_names
    from specsim.profile import save_profile as save_profile
    from specsim.question import Question as Question
    from specsim.server import Setup as Setup
    from specsim.server import read_setup as read_setup
    from specsim.setting import SpecSetting as SpecSetting

__version__ = "0.1.0"

_HOMES = {
    "Acceptance": "specsim.acceptance",
    "Curve": "specsim.curve",
    "CurvePoint": "specsim.curve",
    "Profile": "specsim.profile",
    "Question": "specsim.question",
    "Series": "specsim.curve",
    "Setup": "specsim.server",
    "SpecSetting": "specsim.setting",
    "SpecsimError": "specsim.errors",
    "load_profile": "specsim.profile",
    "profile_names": "specsim.profile",
    "read_setup": "specsim.server",
    "save_profile": "specsim.profile",
}
"""Where each public name lives. The function ``predict`` is ``specsim.predict.predict``: at the
top it would share its name with its module, and :meth:`Profile.predict` is the shorter way."""

__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
