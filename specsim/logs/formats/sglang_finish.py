"""What SGLang logs of each request that it finished (``--log-requests``)."""

import re
from collections import Counter

from specsim.logs.entry import LogEntry
from specsim.logs.formats._results import agree, with_unread
from specsim.logs.formats.bench_json import Answer, answer_entry
from specsim.logs.source import Source
from specsim.logs.unread import CONTRADICTION, DAMAGED, TRUNCATED, check, counted

_MARK = b"Finish: obj="
_NUMBER = re.compile(
    rb"'(completion_tokens|spec_verify_ct|spec_accept_length|spec_num_proposed_drafts)': "
    rb"(\d{1,12}(?:\.\d{1,20})?)(?=[,}])"
)


def parse(source: Source) -> list[LogEntry]:
    """Read accept lengths: tokens over rounds of verification, of all requests."""
    unread: Counter[str] = Counter()
    answers = []
    for line in source.lines():
        at = line.find(_MARK)
        if at < 0 or b"'spec_verify_ct'" not in line[at:]:
            continue
        if not line.endswith((b"\n", b"\r")):
            unread[TRUNCATED] += 1
            continue
        with counted(unread):
            found = _NUMBER.findall(line, at)
            said = {name: float(value) for name, value in found}
            tokens, rounds = said.get(b"completion_tokens"), said.get(b"spec_verify_ct")
            check(len(said) == len(found) and tokens and rounds, DAMAGED)
            tokens, rounds = int(tokens or 0), int(rounds or 1)
            check(1 <= rounds <= tokens, CONTRADICTION)
            check(agree(said.get(b"spec_accept_length"), tokens / rounds), CONTRADICTION)
            drafted = said.get(b"spec_num_proposed_drafts")
            answers.append(
                Answer("sglang", tokens, rounds, None if drafted is None else int(drafted))
            )
    entries = [answer_entry(answers, source.path)] if answers else []
    return with_unread(entries, unread, source.path, "sglang_finish")
