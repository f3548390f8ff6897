"""Sweeps: the product of axes, failures in their place, resumed files, the same rows anywhere."""

from __future__ import annotations

import csv
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

from specsim.cli.main import run
from specsim.cli.sweep import scenarios
from specsim.decide.sweep import (
    COLUMNS,
    Sweep,
    SweepRow,
    append_rows,
    read_done,
    run_sweep,
)
from specsim.errors import FormatError, InputError
from specsim.predict import predict
from specsim.profile import load_profile, profile_names
from specsim.question import Question
from specsim.setting import SpecSetting

SETTINGS = (SpecSetting.none(), SpecSetting.of(1, 2), SpecSetting.of(2, 2))


def rows_of(sweep: Sweep, **how: object) -> list[SweepRow]:
    return [row for chunk in run_sweep(sweep, **how) for row in chunk]  # type: ignore[arg-type]


def test_every_cell_once_and_as_predict_has_it() -> None:
    sweep = Sweep(load_profile(), SETTINGS, (1, 30), (("allreduce.latency=*0.5",), ()))
    rows = rows_of(sweep)
    assert len(rows) == 2 * 3 * 2
    assert len({row.texts()[0] + "|".join(row.texts()[2:7]) for row in rows}) == len(rows)
    plain = [row for row in rows if not row.scenario]
    curve = predict(load_profile(), Question(SETTINGS[2:], (1, 30)), solver="analytic")
    asked = curve.of("asked")
    assert asked is not None
    expected = {point.concurrency: point.output_tps for point in asked.points}
    for row in plain:
        if row.topk == 2:
            assert row.output_tps == pytest.approx(expected[row.concurrency], rel=1e-9)
    faster = next(r for r in rows if r.scenario and r.algorithm == "none" and r.concurrency == 1)
    slower = next(r for r in plain if r.algorithm == "none" and r.concurrency == 1)
    assert faster.output_tps is not None
    assert slower.output_tps is not None
    assert faster.output_tps > slower.output_tps


def test_a_failing_cell_costs_no_other() -> None:
    """TP4 does not hold Kimi-K2.5 on 96 GB cards; 0.5.9 refuses trees with overlap."""
    refused = SpecSetting.of(2, 2, scheduler="overlap")
    sweep = Sweep(load_profile(), (SpecSetting.none(), refused), (1, 8), ((), ("tp=4",)))
    rows = rows_of(sweep)
    assert len(rows) == 8
    fine = [row for row in rows if not row.error]
    assert {(row.scenario, row.algorithm) for row in fine} == {("", "none")}
    errors = {row.error.split(":")[0] for row in rows if row.error}
    assert errors == {"EngineRefusal", "InputError"}
    assert all("\n" not in row.error for row in rows)
    assert not [
        r for r in rows_of(Sweep(load_profile(), (refused,), (1,), what_if=True)) if r.error
    ]


def test_a_stopped_sweep_goes_on_and_a_finished_one_does_nothing(tmp_path: Path) -> None:
    path = tmp_path / "sweep.csv"
    sweep = Sweep(load_profile(), SETTINGS, (1, 30), ((), ("draft.cost=*2",)))
    chunks = run_sweep(sweep)
    with append_rows(path) as append:
        append(next(chunks))
    with path.open("a") as file:
        file.write("draft.cost=*2,EAGLE3,1")  # torn by a kill
    with append_rows(path) as append:
        for rows in run_sweep(sweep, done=read_done(path, sweep)):
            append(rows)
    lines = list(csv.reader(path.read_text().splitlines()))
    assert tuple(lines[0]) == COLUMNS
    assert sorted(lines[1:]) == sorted(row.texts() for row in rows_of(sweep))
    assert not [rows for rows in run_sweep(sweep, done=read_done(path, sweep)) if rows]


def test_simulated_cells_share_their_seed_and_lie_by_the_closed_form() -> None:
    """2 %: what analytic and simulate may differ in steady state."""
    sweep = Sweep(load_profile(), SETTINGS[:2], (30,), solver="simulate", seed=3)
    first, again = rows_of(sweep), rows_of(sweep)
    assert [r.texts() for r in first] == [r.texts() for r in again]
    closed = rows_of(Sweep(load_profile(), SETTINGS[:2], (30,)))
    for a, b in zip(first, closed, strict=True):
        assert a.output_tps == pytest.approx(b.output_tps, rel=0.03)  # and 1 % of 128 requests


@pytest.mark.slow
def test_two_processes_give_the_same_rows_in_the_same_order() -> None:
    sweep = Sweep(load_profile(), SETTINGS, (1, 30), solver="simulate")
    done: list[tuple[int, int]] = []
    two = rows_of(sweep, jobs=2, progress=lambda n, m: done.append((n, m)))
    assert [r.texts() for r in two] == [r.texts() for r in rows_of(sweep, jobs=1)]
    assert done == [(1, 3), (2, 3), (3, 3)]


@pytest.mark.skipif(find_spec("distributed") is None, reason="dask's distributed is not installed")
@pytest.mark.slow
def test_a_dask_cluster_gives_the_same_rows() -> None:
    from distributed import LocalCluster

    sweep = Sweep(load_profile(), SETTINGS, (1, 30))
    with LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=":0", processes=True
    ) as cluster:
        rows = rows_of(sweep, dask=cluster.scheduler_address)
    assert [r.texts() for r in rows] == [r.texts() for r in rows_of(sweep)]


@pytest.mark.skipif(find_spec("distributed") is not None, reason="Dask is installed")
def test_without_dask_the_error_names_the_extra() -> None:
    with pytest.raises(InputError, match=r"specsim\[dask\]"):
        rows_of(Sweep(load_profile(), SETTINGS, (1,)), dask="tcp://localhost:1")


def test_files_of_others_are_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "other.csv"
    sweep = Sweep(load_profile(), SETTINGS, (1,))
    for content in (b"a,b\n1,2\n", b"a,b\n\xff\xfe\n", b"a," + b"x" * 200_000 + b"\n"):
        path.write_bytes(content)
        with pytest.raises(FormatError, match="is not the table of a sweep"):
            read_done(path, sweep)
        assert path.read_bytes() == content
    assert read_done(tmp_path / "none.csv", sweep) == frozenset()


def test_no_two_servers_seeds_or_versions_in_one_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An edited profile of the same name is another server, and nothing of it is known before."""
    path = tmp_path / "sweep.csv"
    sweep = Sweep(load_profile(), SETTINGS, (1, 30))
    with append_rows(path) as append:
        for rows in run_sweep(sweep):
            append(rows)
    assert len(read_done(path, replace(sweep))) == 6
    edited = load_profile()
    parameters = (replace(edited.parameters[0], value=1.01), *edited.parameters[1:])
    named = replace(edited, name="another")
    for other in (
        replace(sweep, profile=replace(edited, parameters=parameters)),
        replace(sweep, profile=named),
        replace(sweep, seed=1),
        replace(sweep, what_if=True),
    ):
        with pytest.raises(FormatError, match="line 2: holds another sweep"):
            read_done(path, other)
    monkeypatch.setattr("specsim.decide.sweep.__version__", "99.0")
    with pytest.raises(FormatError, match="version of specsim"):
        read_done(path, replace(sweep))


@pytest.mark.parametrize("name", profile_names())
def test_the_fingerprint_is_the_same_in_any_process(name: str) -> None:
    sweep = Sweep(load_profile(name), SETTINGS, (1,))
    code = (
        "from specsim.decide.sweep import Sweep; from specsim.profile import load_profile;"
        "from specsim.setting import SpecSetting;"
        f"print(Sweep(load_profile({name!r}), (SpecSetting.none(),), (1,)).run)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == sweep.run


def test_a_second_writer_is_stopped(tmp_path: Path) -> None:
    path = tmp_path / "sweep.csv"
    with append_rows(path), pytest.raises(InputError, match="by another sweep"):  # noqa: SIM117
        with append_rows(path):
            pass
    with append_rows(path):
        pass


def test_a_refused_sweep_leaves_the_file_of_another(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "sweep.csv"
    words = ("sweep", "2,1,3", "--concurrency", "1,2", "-o", str(path))
    assert run(words) == run(words) == 0
    assert "2 known before" not in capsys.readouterr().err
    before = path.read_text()
    assert run((*words, "--set", "draft.cost=*2")) == 2
    told = capsys.readouterr().err
    assert "holds another sweep" in told
    assert "choose another file" in told
    assert path.read_text() == before


def test_axes_multiply_and_must_not_be_empty() -> None:
    assert scenarios([]) == ((),)
    assert len(scenarios(["tp=4,8", "allreduce.latency=*1,*2,*3"])) == 6
    with pytest.raises(InputError):
        Sweep(load_profile(), (), (1,))
    with pytest.raises(InputError):
        Sweep(load_profile(), SETTINGS, ())
