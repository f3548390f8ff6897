"""Work on several cores: the order of the results, forks only where nothing else runs."""

import errno
import subprocess
import sys

import pytest

from specsim.processes import mapping


@pytest.mark.parametrize("jobs", [1, 2])
def test_results_come_in_the_order_of_the_arguments(jobs: int) -> None:
    with mapping(jobs) as run:
        assert list(run(abs, [-3, 2, -1])) == [3, 2, 1]


def test_where_no_process_starts_the_work_is_done_here(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr("concurrent.futures.ProcessPoolExecutor", refuse)
    with mapping(2) as run:
        assert list(run(abs, [-3, 2])) == [3, 2]


@pytest.mark.skipif(sys.platform != "linux", reason="no forks here")
@pytest.mark.parametrize(("threads", "kind"), [("pass", "fork"), ("started.wait()", "spawn")])
def test_a_process_with_threads_is_not_forked(threads: str, kind: str) -> None:
    """A forked child has what the parent had loaded; one that is started anew has not."""
    code = f"""
import sys, threading, wave
from specsim.processes import mapping
started, end = threading.Event(), threading.Event()
def wait():
    started.set()
    end.wait()
if {threads!r} != "pass":
    threading.Thread(target=wait).start()
    {threads}
with mapping(2) as run:
    print(*run(eval, ["'wave' in __import__('sys').modules"]))
end.set()
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.split() == [str(kind == "fork")]
