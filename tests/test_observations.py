"""observations.csv: what is tolerated, what is refused and how, and round trips."""

from __future__ import annotations

import math
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specsim.errors import FormatError, InputError, UnknownNameError
from specsim.observations import (
    COLUMNS,
    Observation,
    checked,
    observations_from_rows,
    read_observations,
    write_observations,
)
from specsim.setting import SpecSetting
from specsim.workload import Load

# The rows of the format's own description, with the column that its third row needs.
EXAMPLE = """\
kind,algorithm,topk,num_steps,num_draft_tokens,scheduler,concurrency,context_len,output_tps,accept_length,source
closed_loop,none,1,0,1,overlap,1,,92.7,1,founding run
closed_loop,EAGLE3,1,2,3,overlap,30,,759.3,,founding run
steady_decode,EAGLE3,1,3,4,overlap,32,16k,1221.2,2.2,Kimi-K2.6 page v3
"""

Row = dict[str, object]
BASE: Row = {
    "kind": "closed_loop",
    "algorithm": "EAGLE3",
    "topk": 1,
    "num_steps": 3,
    "num_draft_tokens": 4,
    "concurrency": 8,
    "output_tps": 100.0,
}
NONE: Row = {"kind": "closed_loop", "algorithm": "none", "concurrency": 1, "output_tps": 92.7}


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "observations.csv"
    path.write_bytes(text.encode("utf-8"))
    return path


def one(row: Row) -> Observation:
    (observation,) = observations_from_rows([row]).rows
    return observation


def test_example_of_the_format(tmp_path: Path) -> None:
    observations = read_observations(write(tmp_path, EXAMPLE))
    plain, chain, steady = observations
    assert len(observations) == 3
    assert observations.notes == ()
    assert plain.setting == SpecSetting.none("overlap")
    assert plain.accept_length == 1
    assert chain.load == Load("closed_loop", 30)
    assert chain.accept_length is None
    assert chain.weight == 1
    assert steady.setting == SpecSetting("EAGLE3", 1, 3, 4, "overlap")
    assert steady.load == Load("steady_decode", 32, context_len=16384.0)
    assert steady.source == "Kimi-K2.6 page v3"
    assert [row.row for row in observations] == [2, 3, 4]


def test_what_people_and_spreadsheets_do_to_a_table(tmp_path: Path) -> None:
    messy = (
        "\ufeff# measured by hand, a \"quote left open\r\n"
        "\r\n"
        " kind , algorithm,topk,num_steps,num_draft_tokens , scheduler,concurrency,output_tps"
        ",source,\r\n"
        'Closed_Loop, nextn , 1, 3, 4.0 ,, 8.0, 1e2, "a, b  c" ,\r\n'
        "\r\n"
        "   # closed_loop,EAGLE3,1,3,4,,8,100,x,\r\n"
        "closed_loop,none,,,,SEQUENTIAL,1,92.7,,"
    )  # fmt: skip
    speculating, plain = read_observations(write(tmp_path, messy))
    assert speculating.setting == SpecSetting("MTP", 1, 3, 4)
    assert speculating.concurrency == 8
    assert speculating.output_tps == 100
    assert speculating.source == "a, b c"
    assert speculating.row == 4
    assert plain.setting == SpecSetting.none("sequential")
    assert plain.row == 7


@pytest.mark.parametrize(
    ("topk", "num_steps", "num_draft_tokens"),
    [(1, 0, 1), (0, 0, 0), ("", "", ""), (None, None, None), (1, 0, 0)],
)
def test_none_is_one_zero_one(topk: object, num_steps: object, num_draft_tokens: object) -> None:
    row = NONE | {"topk": topk, "num_steps": num_steps, "num_draft_tokens": num_draft_tokens}
    assert one(row).setting.key == (0, 1, 1)


def test_a_chain_needs_its_depth_only() -> None:
    row = BASE | {"topk": "", "num_draft_tokens": None}
    assert one(row).setting == SpecSetting("EAGLE3", 1, 3, 4)


@pytest.mark.parametrize(
    ("cell", "tokens"), [("16k", 16384), ("128K", 131072), ("0.5k", 512), (16384, 16384), (0, 0)]
)
def test_context_len_in_k(cell: object, tokens: float) -> None:
    assert one(BASE | {"kind": "steady_decode", "context_len": cell}).context_len == tokens


def test_open_loop_needs_a_rate_not_a_concurrency() -> None:
    row = BASE | {"kind": "open_loop", "concurrency": "", "request_rate": 2.5}
    assert one(row).load == Load("open_loop", 1, 2.5)
    assert one(row).concurrency is None


def test_survival_and_percentiles_and_unknown_columns() -> None:
    row = BASE | {
        "survival_1": 0.65,
        "survival_2": 0.4,
        "survival_3": 0.25,
        "ttft_p99_s": "1.5",
        "tpot_ms": 12,
        "gpu_hours": "",
    }
    observations = observations_from_rows([row])
    (observation,) = observations
    assert observation.survival == (0.65, 0.4, 0.25)
    assert observation.extra == {"ttft_p99_s": 1.5, "tpot_ms": "12"}
    assert observations.notes == (
        "column 'tpot_ms' is not of the format (did you mean tpot_s?): kept, not used",
        "column 'gpu_hours' is not of the format: kept, not used",
    )


def test_numbers_of_numpy_are_numbers() -> None:
    row = BASE | {"concurrency": np.int64(8), "output_tps": np.float64(0.1)}
    assert one(row).output_tps == 0.1


def test_accept_length_may_exceed_its_bound_by_rounding_only() -> None:
    # 4 tokens per round is what a perfect chain of 3 emits; 0.5 % is the slack of the format
    assert one(BASE | {"accept_length": 4.02}).accept_length == 4.02
    with pytest.raises(InputError, match=r"1\.\.4"):
        one(BASE | {"accept_length": 4.03})
    # two draft tokens with the root: one draft, so at most two tokens, however deep
    with pytest.raises(InputError, match=r"1\.\.2"):
        one(BASE | {"topk": 2, "num_draft_tokens": 2, "accept_length": 2.1})


@pytest.mark.parametrize(
    ("change", "column", "parts"),
    [
        ({"output_tps": "fast"}, "output_tps", ("'fast'", "not a number")),
        ({"output_tps": "1_000"}, "output_tps", ("'1_000'", "not a number")),
        ({"output_tps": "1,000"}, "output_tps", ("'1,000'", "not a number")),
        ({"output_tps": math.nan}, "output_tps", ("'nan'", "not finite")),
        ({"output_tps": "-Infinity"}, "output_tps", ("'-Infinity'", "not finite")),
        ({"output_tps": "1e999"}, "output_tps", ("'1e999'", "not finite")),
        ({"output_tps": 0}, "output_tps", ("'0'", "above 0")),
        ({"output_tps": 1e16}, "output_tps", ("at most 1e+15",)),
        ({"output_tps": True}, "output_tps", ("'True'", "not a number")),
        ({"output_tps": "x" * 1000}, "output_tps", ("...",)),
        ({"tpot_s": -0.01}, "tpot_s", ("'-0.01'", "above 0", "seconds")),
        ({"ttft_p99_s": "n/a"}, "ttft_p99_s", ("not a number",)),
        ({"concurrency": 0}, "concurrency", ("'0'", "at least 1")),
        ({"concurrency": 1.5}, "concurrency", ("'1.5'", "whole number")),
        ({"concurrency": ""}, "concurrency", ("not stated", "clients")),
        ({"num_requests": -1}, "num_requests", ("at least 1",)),
        ({"input_len": -1}, "input_len", ("at least 0",)),
        ({"output_len": 0.5}, "output_len", ("at least 1",)),
        ({"input_len": 10, "input_cached": 11}, "input_cached", ("input_len = 10",)),
        ({"context_len": "k"}, "context_len", ("not a number",)),
        ({"context_len": "16kk"}, "context_len", ("not a number",)),
        ({"weight": 0}, "weight", ("above 0",)),
        ({"accept_length": 0.9}, "accept_length", ("1..4", "bonus")),
        ({"accept_length": 5}, "accept_length", ("1..4",)),
        ({"survival_1": 45}, "survival_1", ("'45'", "0.45, not 45")),
        ({"survival_1": "45%"}, "survival_1", ("'45%'", "0.45, not 45")),
        ({"survival_1": 0.5, "survival_2": 0.6}, "survival_2", ("survival_1 = 0.5",)),
        ({"survival_1": 0.5, "survival_3": 0.1}, "survival_3", ("gap",)),
        ({"num_steps": 1, "num_draft_tokens": 2, "survival_1": 0.5, "survival_2": 0.1},
         "survival_2", ("deeper",)),
        ({"num_steps": ""}, "num_steps", ("not stated", "depth")),
        ({"topk": 4, "num_draft_tokens": ""}, "num_draft_tokens", ("not stated",)),
        ({"algorithm": "none"}, "num_steps", ("1, 0, 1",)),
        ({"kind": "open_loop"}, "request_rate", ("not stated", "per second")),
        ({"kind": "open_loop", "request_rate": math.inf}, "request_rate", ("not finite",)),
        ({"kind": "steady_decode", "concurrency": None}, "concurrency", ("held batch",)),
        ({"kind": ""}, "kind", ("closed_loop, open_loop, steady_decode",)),
        ({"algorithm": None}, "algorithm", ("not stated",)),
    ],
)  # fmt: skip
def test_a_wrong_cell_is_named(change: Row, column: str, parts: tuple[str, ...]) -> None:
    with pytest.raises(InputError) as caught:
        observations_from_rows([BASE, BASE | change], "run.csv")
    message = str(caught.value)
    assert message.startswith(f"run.csv, row 1, column {column}: ")
    assert "\n" not in message
    assert len(message) < 250
    for part in parts:
        assert part in message


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"output_tps": math.nan}, "run, row 2, column output_tps: 'nan': is not finite"),
        ({"ttft_s": -1.0}, "run, row 2, column ttft_s: '-1': must be above 0"),
        ({"accept_length": 4.5}, r"column accept_length: '4.5': must lie in 1\.\.4"),
        ({"survival": (0.5, 0.6)}, "column survival_2: '0.6': is above survival_1 = 0.5"),
        ({"extra": {"ttft_p99_s": 0.0}}, "column ttft_p99_s: '0': must be above 0"),
        ({"concurrency": None}, "column concurrency: '': is not stated"),
        ({"output_tps": None}, "run, row 2: measures nothing"),
    ],
)
def test_rows_of_a_program_pass_the_same_checks(change: Row, message: str) -> None:
    good = one(BASE)
    assert checked(good, "run, row 2") == good
    with pytest.raises(InputError, match=message):
        checked(replace(good, **change), "run, row 2")


@pytest.mark.parametrize(
    ("change", "near"),
    [
        ({"kind": "close_loop"}, "closed_loop"),
        ({"algorithm": "EAGEL3"}, "EAGLE3"),
        ({"scheduler": "overlapped"}, "overlap"),
        ({"accept_length_scope": "cells"}, "cell"),
    ],
)
def test_an_unknown_name_names_the_nearest(change: Row, near: str) -> None:
    with pytest.raises(UnknownNameError, match=rf"row 0, column .*did you mean '{near}'"):
        one(BASE | change)


def test_a_setting_that_cannot_be_names_its_row() -> None:
    with pytest.raises(InputError, match=r"row 0: draft tokens 99: .*between 2 and 21"):
        one(BASE | {"topk": 4, "num_steps": 2, "num_draft_tokens": 99})


@pytest.mark.parametrize(
    ("row", "measures"),
    [
        (NONE | {"output_tps": ""}, False),
        (NONE | {"output_tps": "", "accept_length": 1, "ttft_s": 0.1}, False),
        (NONE | {"output_tps": "", "tpot_s": 0.01}, True),
        (BASE | {"output_tps": ""}, False),
        (BASE | {"output_tps": "", "ttft_s": 0.1}, False),
        *(
            (BASE | {"output_tps": "", column: 1}, True)
            for column in ("accept_length", "survival_1", "tpot_s", "itl_s", "round_time_s")
        ),
    ],
)
def test_a_row_measures_something(row: Row, measures: bool) -> None:
    if measures:
        assert one(row).output_tps is None
    else:
        with pytest.raises(InputError, match="measures nothing; fill at least one of"):
            one(row)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("", "is empty"),
        ("# nothing\n", "comments only"),
        ("kind,algorithm,output_tps\n", "no row below its header"),
        ("kind;algorithm;output_tps\n", "separated by semicolons"),
        ("kind\talgorithm\n", "separated by tabs"),
        ("algorithm,output_tps\nnone,1\n", "no column 'kind'; add it"),
        ("kind,algoritm,output_tps\nclosed_loop,none,1\n", "'algorithm'; rename 'algoritm'"),
        ("kind,algorithm,kind\nclosed_loop,none,1\n", "two columns 'kind'"),
        (EXAMPLE + "closed_loop,none,1\n", "line 5: has 3 cells where the header has 11"),
        (EXAMPLE + 'closed_loop,"none\n', "line 5: has a double quote that is not closed"),
        (EXAMPLE.replace("92.7", "92,7"), "line 2: has 12 cells"),
        (EXAMPLE + "x" * 200_000, "line 5: field larger than field limit"),
        (EXAMPLE + "\0", "binary"),
    ],
)
def test_files_that_are_no_table(tmp_path: Path, text: str, part: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(FormatError, match=part) as caught:
        read_observations(path)
    assert str(caught.value).startswith(str(path))


def test_a_wrong_cell_of_a_file_names_file_and_line(tmp_path: Path) -> None:
    path = write(tmp_path, "# note\n" + EXAMPLE.replace("759.3", "nan"))
    with pytest.raises(InputError) as caught:
        read_observations(path)
    assert str(caught.value).startswith(f"{path}, line 4, column output_tps: 'nan': is not finite")


def test_frame_has_the_columns_of_the_format(tmp_path: Path) -> None:
    frame = read_observations(write(tmp_path, EXAMPLE)).to_frame()
    assert tuple(frame.columns) == COLUMNS
    assert list(frame["topk"]) == [1, 1, 1]
    assert frame["accept_length"].isna().tolist() == [False, True, False]
    assert frame["context_len"].iloc[2] == 16384


def test_written_file_is_the_example_in_the_same_order(tmp_path: Path) -> None:
    rows = read_observations(write(tmp_path, EXAMPLE)).rows
    again = tmp_path / "again.csv"
    write_observations(again, rows)
    assert again.read_text(encoding="utf-8") == EXAMPLE.replace("16k", "16384")
    assert sorted(os.listdir(tmp_path)) == ["again.csv", "observations.csv"]


def test_a_file_that_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    rows = observations_from_rows([NONE]).rows
    target = tmp_path / "taken"
    target.mkdir()
    for path in (target, tmp_path / "absent" / "x.csv", write(tmp_path, "x") / "x.csv"):
        with pytest.raises(InputError, match="cannot be written"):
            write_observations(path, rows)
    assert sorted(os.listdir(tmp_path)) == ["observations.csv", "taken"]


positive = st.floats(1e-9, 1e9)
words = st.text("ab ,\"'#;é\n0", max_size=8).map(lambda text: " ".join(text.split()))


@st.composite
def observation_rows(draw: st.DrawFn) -> Row:
    """Draw any valid row."""
    if draw(st.booleans()):
        row = dict(NONE)
    else:
        topk, steps = draw(st.integers(1, 8)), draw(st.integers(1, 8))
        n = draw(st.integers(2, 1 + topk + (steps - 1) * topk**2))
        row = BASE | {"topk": topk, "num_steps": steps, "num_draft_tokens": n}
        most = min(steps, n - 1)
        row["accept_length"] = draw(st.none() | st.floats(1, 1 + most))
        falling = sorted(draw(st.lists(st.floats(0, 1), max_size=most)), reverse=True)
        row |= {f"survival_{depth}": value for depth, value in enumerate(falling, 1)}
    for column in ("output_tps", "weight", "window_s", "ttft_s", "itl_s", "ttft_p99_s"):
        row[column] = draw(positive if column == "output_tps" else st.none() | positive)
    row["kind"] = draw(st.sampled_from(["closed_loop", "open_loop", "steady_decode"]))
    row["request_rate"] = draw(positive)
    row["scheduler"] = draw(st.sampled_from(["", "overlap", "sequential", "auto"]))
    row["input_len"] = draw(st.none() | st.floats(0, 1e9))
    row["num_requests"] = draw(st.none() | st.integers(1, 10**6))
    row |= {column: draw(words) for column in ("source", "dataset", "engine_version", "mine, too")}
    return row


@settings(deadline=None)  # the first read imports the boundary modules
@given(st.lists(observation_rows(), min_size=1, max_size=4))
def test_written_rows_read_back_the_same(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Row]
) -> None:
    path = tmp_path_factory.getbasetemp() / "round-trip.csv"
    before = observations_from_rows(rows).rows
    write_observations(path, before)
    assert read_observations(path).rows == before


@settings(deadline=None)
@given(st.text("ekind,algorithm\n\r\"' #;0159.kEAGL_\t", max_size=60), st.integers(0, 300))
def test_any_text_is_either_a_table_or_an_error_of_ours(
    tmp_path_factory: pytest.TempPathFactory, junk: str, place: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "junk.csv"
    path.write_text(EXAMPLE[:place] + junk + EXAMPLE[place:], encoding="utf-8", newline="")
    try:
        observations = read_observations(path)
    except InputError:
        return
    assert all(row.load.concurrency >= 1 for row in observations)
