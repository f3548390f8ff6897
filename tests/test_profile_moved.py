"""What parameters move, and a profile in a notebook."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from servers import kimi, llama, setup_of
from test_profile import SHIPPED, prior_profile

from specsim.acceptance import Acceptance
from specsim.cost.model import cost_parameters
from specsim.errors import UnknownNameError
from specsim.parameters import (
    COST,
    KNOT,
    KNOT_OCTAVES,
    SPECULATING_KNOT,
    acceptance_priors,
    correction_priors,
    cost_priors,
    knot_of,
)
from specsim.profile import (
    acceptance_name,
    assembled,
    load_profile,
    moved_acceptance,
    save_profile,
)
from specsim.server import setup_from_mapping
from specsim.server.system import assemble

# --- what parameters move


def test_every_cost_parameter_reaches_the_cost() -> None:
    """At coordinate 1 each prior of a MoE server moves its own field and no other."""
    parameters = cost_priors(kimi().facts)
    base = cost_parameters(parameters, np.zeros(len(parameters)))
    for j, p in enumerate(parameters):
        moved = cost_parameters(parameters, np.eye(len(parameters))[j])
        changed = [name for name in COST if moved[name] != base[name]]
        assert changed == [p.name]


def test_correction_knots_fill_the_correction() -> None:
    parameters = correction_priors({KNOT: 0.1, SPECULATING_KNOT: 0.2})
    values = cost_parameters(parameters, 0.1 * np.arange(len(parameters)))
    for family, octaves in KNOT_OCTAVES.items():
        own = [(j, p) for j, p in enumerate(parameters) if knot_of(p.name)[0] == family]
        assert len(own) == len(octaves)
        expected = [p.prior_median + 0.1 * j * p.prior_sd for j, p in own]
        assert values[family] == pytest.approx(expected)
    assert len(cost_parameters((), np.zeros(0))[KNOT]) == 0


def test_levels_move_their_own_acceptance_and_shapes_move_all() -> None:
    chat, code = Acceptance("chat"), Acceptance("code", 0.7, level=0.1)
    parameters = acceptance_priors((acceptance_name(chat), acceptance_name(code)))
    names = [p.name for p in parameters]
    assert names[:2] == ["accept_level[chat@0]", "accept_level[code@0.7]"]
    coordinates = np.zeros(len(parameters))
    coordinates[1], coordinates[names.index("rank_scale")] = 1.0, 1.0
    moved = [moved_acceptance(a, parameters, coordinates) for a in (chat, code)]
    assert moved[0].level == 0.0
    assert moved[1].level == pytest.approx(0.1 + parameters[1].prior_sd)
    assert moved[0].rank_scale == moved[1].rank_scale > 1


def test_acceptances_are_found_by_name() -> None:
    base = prior_profile(llama())
    code = replace(base.acceptances[0], dataset="code", temperature=0.7)
    profile = replace(base, acceptances=(*base.acceptances, code))
    assert profile.acceptance().dataset == "chat"
    assert profile.acceptance("code").temperature == 0.7
    assert profile.acceptance(temperature=0.7).dataset == "code"
    with pytest.raises(UnknownNameError, match=r"chat@0, code@0\.7"):
        profile.acceptance("poetry")


def test_priors_know_the_server() -> None:
    """No link, no experts, no such parameters; a logged pool is believed; backends differ."""
    dense = {p.name for p in cost_priors(llama().facts)}
    sparse = {p.name: p for p in cost_priors(kimi().facts)}
    assert set(sparse) - dense >= {"coverage", "expert_sharing", "allreduce_latency"}
    assert not {"coverage", "allreduce_latency"} & dense
    assert sparse["kv_pool"].prior_sd < 0.05
    reads = {
        backend: next(
            p.prior_median
            for p in cost_priors(
                assemble(setup_of("llama-3.1-8b", gpu, attention_backend=backend)).facts
            )
            if p.name == "kv_reads"
        )
        for backend, gpu in (("triton", "h100-sxm"), ("fa3", "h100-sxm"), (None, "mi300x"))
    }
    assert reads["fa3"] < reads[None] < reads["triton"]


# --- in a notebook


@SHIPPED
def test_a_notebook_shows_the_server_and_what_was_fitted(name: str) -> None:
    profile = load_profile(name)
    html = profile._repr_html_()
    engine = profile.setup.engine
    for word in (name, f"{engine.name} {engine.version}", "driven by", "measured cells"):
        assert word in html
    shown = [p for p in profile.parameters if p.fitted and not p.name.startswith("correction")]
    assert html.count("<tr>") == 1 + len(shown)
    assert html.count("<td>data</td>") == sum(p.driven == "data" for p in shown)
    assert len(html) < 5000


def test_a_notebook_shows_texts_of_a_file_as_text() -> None:
    profile = prior_profile(llama())
    evil = replace(profile, name="<script>alert(1)</script>")
    html = evil._repr_html_()
    assert "<script>" not in html
    assert "&lt;script&gt;" in html
    assert "Nothing was measured on this server." in html
    assert "<tr>" not in html  # nothing was fitted


def test_an_edited_own_link_is_read_again(tmp_path: Path) -> None:
    """Assembled servers are kept, but not past a change of the files that they are made of."""
    link = tmp_path / "mine.toml"
    rates = []
    for i, rate in enumerate((1.0e10, 3.0e10)):
        link.write_text(f'kind = "pcie"\nbytes_per_s = {rate}\n')
        os.utime(link, ns=(i, i))
        setup = setup_of("llama-3.1-8b", "h100-sxm", tp=2, link=str(link))
        rates.append(assembled(setup).link.bytes_per_s)
    assert rates == [1.0e10, 3.0e10]


def test_a_profile_moves_without_the_files_that_it_was_made_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Model, GPU, link and drafter of the user's own, by relative paths; and once more."""
    here, there = tmp_path / "here", tmp_path / "there"
    for folder in (here / "model", there):
        folder.mkdir(parents=True)
    config = Path(__file__).parent / "configs" / "llama-3.1-8b.json"
    (here / "model" / "config.json").write_text(config.read_text())
    sizes = "mem_bytes = 8e10\nmem_bandwidth = 3e12\nflops_bf16 = 9e14\n"
    (here / "gpu.toml").write_text(f'name = "Mine"\nlink = "nvlink4"\n{sizes}')
    (here / "link.toml").write_text('kind = "pcie"\nbytes_per_s = 3e10\n')
    drafter = 'kind = "eagle3"\nlayers = 1\nhidden = 4096\nheads = 32\nkv_heads = 8\n'
    (here / "drafter.toml").write_text(f"{drafter}head_dim = 128\nffn_inter = 14336\n")
    engine = {"name": "sglang", "version": "0.5.9", "tp": 2}
    for name in ("model/config.json", "model"):
        monkeypatch.chdir(here)
        key = "config" if name.endswith(".json") else "id"
        given = {"id": f"./{name}"} if key == "id" else {"config": name}
        hardware = {"gpu": "gpu.toml", "gpu_count": 2, "link": "link.toml"}
        mapping = {"schema": "specsim.setup/1", "hardware": hardware, "model": given}
        mapping |= {"draft": {"id": "drafter.toml"}, "engine": engine}
        profile = prior_profile(assemble(setup_from_mapping(mapping)))
        before = profile.predict(topk=1, num_steps=3, concurrency=(1, 8), solver="analytic")
        save_profile(profile, there / "mine.toml")
        monkeypatch.chdir(there)
        here.rename(tmp_path / "gone")
        save_profile(load_profile("mine.toml"), "again.toml")
        assert Path("again.toml").read_bytes() == Path("mine.toml").read_bytes()
        after = load_profile("again.toml").predict(
            topk=1, num_steps=3, concurrency=(1, 8), solver="analytic"
        )
        assert after.rows == before.rows
        (tmp_path / "gone").rename(here)
