"""A page in headless Chromium, with a probe that reports what it found there."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")

PROBE = """
<script>
window.addEventListener("load", () => {
  const out = document.createElement("pre");
  out.id = "probe";
  const result = {};
  %s
  out.textContent = JSON.stringify(result);
  document.body.appendChild(out);
});
</script>
"""


def opened(address: str, folder: Path, size: str = "1200,900") -> str:
    """Open a page and return what its scripts have made of it; the console must stay silent."""
    assert CHROMIUM is not None
    run = subprocess.run(
        [
            CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", f"--window-size={size}",
            f"--user-data-dir={folder / 'user'}", "--enable-logging=stderr", "--v=0",
            "--virtual-time-budget=4000", "--dump-dom", address,
        ],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    assert [line for line in run.stderr.splitlines() if "CONSOLE" in line] == []
    return run.stdout


def probed(page: str, script: str, folder: Path, size: str = "1200,900") -> dict[str, Any]:
    """Open a page from a file, run a script that fills `result`, and return that."""
    file = folder / "report.html"
    file.write_text(page.replace("</body>", PROBE % script + "</body>"), encoding="utf-8")
    found = re.search(r'<pre id="probe">(.*?)</pre>', opened(file.as_uri(), folder, size), re.S)
    assert found is not None
    document: dict[str, Any] = json.loads(unescape(found[1]))
    return document
