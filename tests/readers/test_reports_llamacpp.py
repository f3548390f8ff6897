"""llama.cpp as people paste it: the drafter, what is not indented, what did not end."""

from __future__ import annotations

import pytest
from parsing import parse, parse_one

from specsim.logs import LogEntry

approx = pytest.approx


def llamacpp(text: str) -> LogEntry:
    return parse_one("llamacpp", text)


def timings(
    tokens: int = 200, each_ms: float = 77.0, accepted: int = 126, prefix: str = "", pad: str = ""
) -> str:
    """A request's timings; 175 tokens drafted."""
    text = (
        f"{prefix}prompt eval time =     201.60 ms /    12 tokens (   16.80 ms per token,    59.52 "
        "tokens per second)\n"
        f"{prefix}{pad}eval time = {tokens * each_ms:.2f} ms /   {tokens} tokens "
        f"(   {each_ms:.2f} ms per token,    {1e3 / each_ms:.2f} tokens per second)\n"
    )
    if accepted:
        text += (
            f"{prefix}draft acceptance rate = {accepted / 175:.5f} (  {accepted} accepted /   175 "
            "generated)\n"
        )
    return text


def statistics(name: str, calls: int, drafts: int, ms: float) -> str:
    return (
        f"6.12.255.327 I statistics {name}: #calls(b,g,a) = 9 {calls} {drafts}, #gen drafts = "
        f"{drafts}, #acc drafts = {drafts // 2}, #gen tokens = {3 * drafts}, #acc tokens = "
        f"{drafts}, dur(b,g,a) = 0.300, {ms:.3f}, 1.100 ms\n"
    )


@pytest.mark.parametrize(
    ("names", "algorithm"),
    [
        (["draft-eagle3"], "EAGLE3"),
        (["draft-mtp"], "MTP"),
        (["ngram-map-k4v"], "NGRAM"),
        (["ngram-mod", "draft-mtp"], "MTP"),
        (["draft-simple", "ngram-mod"], "STANDALONE"),
        (["draft-dflash"], "DFLASH"),
    ],
)
def test_drafter_by_its_statistics(names: list[str], algorithm: str) -> None:
    """One of several tried first may find next to nothing: the other is what drafts."""
    drafts = {name: 3 if name == "ngram-mod" and len(names) > 1 else 700 for name in names}
    lines = [statistics(name, 701, drafts[name], 28000.0) for name in names]
    entry = llamacpp(timings() + "".join(lines))
    assert entry.settings["algorithm"] == algorithm
    assert entry.rows[0].accept_length == approx(200 / 74)
    assert {t.name for t in entry.timings} == set(names)
    assert entry.timings[0].seconds == approx(28.0 / 701)


@pytest.mark.parametrize(
    ("line", "algorithm"),
    [
        ("", None),
        ("0.00.1 I common_speculative_impl_draft_eagle3: - n_max=3, n_min=0\n", "EAGLE3"),
        ("$ llama-server -m a.gguf --spec-type draft-mtp\n", "MTP"),
        ("adding speculative implementation 'ngram-simple'\n", "NGRAM"),
        ("llama_model_loader: loading model '/m/a.gguf'\n", None),
    ],
)
def test_a_drafter_is_named_or_unknown(line: str, algorithm: str | None) -> None:
    assert llamacpp(line + timings()).settings.get("algorithm") == algorithm


@pytest.mark.parametrize("pad", ["", " ", "       "])
@pytest.mark.parametrize(
    "prefix", ["", "[40217] ", "slot print_timing: id  0 | task 4 | ", "> ", "llama-1  | "]
)
def test_timings_with_any_indent(prefix: str, pad: str) -> None:
    entry = llamacpp(timings(prefix=prefix, pad=pad))
    (row,) = entry.rows
    assert (row.output_tps, row.accept_length) == approx((1e3 / 77, 200 / 74))
    assert (row.batch_size, entry.unread) == (1, {})


def test_timings_without_the_prompt_and_indent() -> None:
    (row,) = llamacpp("".join(timings().splitlines(keepends=True)[1:])).rows
    assert (row.output_tps, row.round_time_s) == approx((1e3 / 77, 0.077 * 200 / 74))


@pytest.mark.parametrize("prefix", ["", "0.18.600.123 I slot print_timing: id  2 | task 4 | "])
@pytest.mark.parametrize("torn", ["\n", "\r\n", "|", " >", ":  ", "]"])
@pytest.mark.parametrize("at", range(1, 8))
def test_the_rest_of_a_torn_prompt_line_is_no_decoding(prefix: str, torn: str, at: int) -> None:
    whole = timings(prefix=prefix, pad="       ")
    begins = len(prefix) + at
    for before in ("", whole, whole.splitlines(keepends=True)[0]):
        entries = parse("llamacpp", before + whole[:begins] + torn + whole[begins:])
        rows = [row for entry in entries for row in entry.rows]
        assert all(row.tpot_s in (None, approx(0.077)) for row in rows), entries


def test_one_request_with_time_stamps_has_its_throughput() -> None:
    entry = llamacpp(timings(prefix="0.18.600.123 I slot print_timing: id  2 | task 4 | "))
    (row,) = entry.rows
    assert (row.concurrency, row.output_tps, row.tpot_s) == approx((1, 1e3 / 77, 0.077))


def progress(name: str = "n_decoded", slot: int = 0) -> str:
    return "".join(
        f"11.{44 + 3 * i}.144.849 I slot print_timing: id  {slot} | task 7 | "
        f"{name} = {800 + 50 * i:6d}, tg =  {17.2 - 0.01 * i:.2f} t/s, tg_3s =  16.63 t/s\n"
        for i in range(4)
    )


@pytest.mark.parametrize("name", ["n_decoded", "n_gen"])
def test_a_request_that_did_not_end(name: str) -> None:
    entry = llamacpp(progress(name))
    (row,) = entry.rows
    assert (row.output_tps, row.batch_size, row.accept_length) == (approx(17.17), 1, None)
    assert ("algorithm" in entry.settings, entry.unread) == (False, {})


def test_requests_that_did_not_end_on_two_slots_have_no_total() -> None:
    (row,) = llamacpp(progress() + progress(slot=1)).rows
    assert (row.output_tps, row.tpot_s) == (None, approx(1 / 17.17))


def test_progress_of_a_request_that_ended_changes_nothing() -> None:
    ended = timings(prefix="12.00.600.123 I slot print_timing: id  0 | task 7 | ")
    assert llamacpp(progress() + ended).rows[0].tpot_s == approx(0.077)
